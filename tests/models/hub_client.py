"""Fetches a repository in a process of its own, as huggingface_hub reads its environment when it is imported.

Prints one JSON object: the folder or the error, and the progress that was reported. Usage: SOURCE [STOP_AFTER_BYTES]
"""

import json
import sys

from chatapp.errors import ChatappError, Interrupted
from chatapp.models.hub import fetch_snapshot
from chatapp.models.sources import parse_source

stop_after = int(sys.argv[2]) if len(sys.argv) > 2 else None
steps = []


def report(step):
    steps.append([step.stage, step.file, step.done, step.total])
    if stop_after is not None and step.file and step.done >= stop_after:
        raise Interrupted


result = {"steps": steps}
try:
    result["folder"] = str(fetch_snapshot(parse_source(sys.argv[1]), report))
except ChatappError as error:
    result["error"], result["kind"] = str(error), error.kind
print(json.dumps(result))
