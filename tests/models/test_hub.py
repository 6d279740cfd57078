"""Downloads from a hub on localhost by the real client, with everything that goes wrong on the way."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.models.fake_hub import COMMIT, TOKEN, FakeHub
from tests.models.folders import safetensors_bytes

WEIGHTS = "model.safetensors"


@pytest.fixture
def hub():
    weights = safetensors_bytes({"w": random.Random(1).randbytes(3_000_000)})
    files = {
        "config.json": json.dumps({"model_type": "llama"}).encode(),
        "tokenizer.json": b"{}",
        WEIGHTS: weights,
        "pytorch_model.bin": b"not needed",
        "README.md": b"not needed",
        "evil.py": b"raise SystemExit",
    }
    with FakeHub(files=files) as server:
        yield server


def start(hub, home: Path, source="hf:owner/tiny", *arguments, **environment):
    home.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.models.hub_client", source, *map(str, arguments)],
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_TOKEN": "", **environment},
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def fetch(*arguments, **environment):
    process = start(*arguments, **environment)
    output, _ = process.communicate(timeout=120)
    return json.loads(output.splitlines()[-1])


def test_only_needed_files_with_progress_then_no_network_at_all(hub, tmp_path):
    result = fetch(hub, tmp_path)
    folder = Path(result["folder"])
    assert folder.name == COMMIT
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", WEIGHTS, "tokenizer.json"]
    assert (folder / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
    total = len(hub.files[WEIGHTS]) + len(hub.files["tokenizer.json"])
    assert result["steps"][-1] == ["download", "", total, total]
    assert {step[1] for step in result["steps"] if step[0] == "download"} >= {""}

    hub.requests.clear()
    assert fetch(hub, tmp_path)["folder"] == str(folder)
    assert hub.requests == []


def test_a_broken_connection_is_resumed_where_it_broke(hub, tmp_path):
    hub.cut[WEIGHTS] = [1_000_000]
    result = fetch(hub, tmp_path)
    assert (Path(result["folder"]) / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
    ranges = [request.split("bytes=")[1] for request in hub.asked(f"GET /cdn/{WEIGHTS} bytes=")]
    assert len(ranges) == 1
    assert 0 < int(ranges[0].rstrip("-")) <= 1_000_000


def test_a_stopped_download_is_resumed_by_the_next_process(hub, tmp_path):
    hub.stall_after[WEIGHTS] = 2_000_000
    result = fetch(hub, tmp_path, "hf:owner/tiny", 1_000_000)
    assert result["kind"] == "cancelled"

    del hub.stall_after[WEIGHTS]
    hub.requests.clear()
    result = fetch(hub, tmp_path)
    assert (Path(result["folder"]) / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
    [resumed] = hub.asked(f"GET /cdn/{WEIGHTS} bytes=")
    assert int(resumed.split("bytes=")[1].rstrip("-")) >= 1_000_000


def test_a_killed_download_is_resumed_by_the_next_process(hub, tmp_path):
    hub.stall_after[WEIGHTS] = 2_000_000
    process = start(hub, tmp_path)
    blobs = tmp_path / "hub" / "models--owner--tiny" / "blobs"
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 500_000 for path in blobs.glob("*.incomplete")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.communicate()

    del hub.stall_after[WEIGHTS]
    hub.requests.clear()
    assert (Path(fetch(hub, tmp_path)["folder"]) / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
    assert len(hub.asked(f"GET /cdn/{WEIGHTS} bytes=")) == 1
    assert list(blobs.glob("*.incomplete")) == []


def test_a_wrong_hash_is_read_again_and_then_refused(hub, tmp_path):
    hub.spoiled[WEIGHTS] = 1
    assert "folder" in fetch(hub, tmp_path / "once")

    hub.spoiled[WEIGHTS] = 9
    result = fetch(hub, tmp_path / "always")
    assert result["kind"] == "network"
    assert f"{WEIGHTS} of owner/tiny arrives damaged" in result["error"]
    assert not list((tmp_path / "always").rglob(f"snapshots/*/{WEIGHTS}"))


@pytest.mark.parametrize(
    ("status", "code", "kind", "sentence"),
    [
        (401, "", "model", "There is no public repository owner/tiny"),
        (403, "GatedRepo", "model", "hf auth login"),
        (404, "RepoNotFound", "model", "There is no public repository owner/tiny"),
        (429, "", "network", "too many requests"),
        (500, "", "network", "The Hub has trouble (HTTP 500)"),
        (503, "", "network", "The Hub has trouble (HTTP 503)"),
    ],
)
def test_refusals_are_sentences(hub, tmp_path, status, code, kind, sentence):
    hub.api_status, hub.error_code = status, code
    result = fetch(hub, tmp_path)
    assert result["kind"] == kind
    assert sentence in result["error"]
    assert "\n" not in result["error"]


def test_gated_files_say_how_to_log_in_and_come_with_a_token(hub, tmp_path):
    hub.gated = True
    result = fetch(hub, tmp_path)
    assert f"accept its terms at {hub.url}/owner/tiny, log in with `hf auth login`" in result["error"]
    assert "folder" in fetch(hub, tmp_path, HF_TOKEN=TOKEN)


def test_an_unknown_revision_is_named(hub, tmp_path):
    assert "no revision “v9”" in fetch(hub, tmp_path, "hf:owner/tiny@v9")["error"]
    assert "folder" in fetch(hub, tmp_path, f"hf:owner/tiny@{COMMIT}")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"config.json": b'{"model_type": "martian"}'}, "of the type “martian”"),
        ({"config.json": b'{"model_type": "llama", "model_file": "evil.py"}'}, "needs program code of its own"),
        ({"config.json": b"{}"}, "names no model_type"),
        ({"config.json": None}, "has no config.json"),
        ({WEIGHTS: None}, "has no model*.safetensors"),
        ({WEIGHTS: None, "model-q4.gguf": b"GGUF"}, "it holds GGUF files"),
    ],
)
def test_what_cannot_be_run_is_refused_before_the_weights(hub, tmp_path, changes, sentence):
    for name, content in changes.items():
        hub.files.pop(name, None)
        if content is not None:
            hub.files[name] = content
    result = fetch(hub, tmp_path)
    assert sentence in result["error"]
    assert hub.asked(WEIGHTS) == []


def test_offline(hub, tmp_path):
    assert "HF_HUB_OFFLINE" in fetch(hub, tmp_path, HF_HUB_OFFLINE="1")["error"]
    assert hub.requests == []
    folder = fetch(hub, tmp_path)["folder"]
    assert fetch(hub, tmp_path, HF_HUB_OFFLINE="1")["folder"] == folder


def test_no_network(tmp_path):
    with FakeHub() as hub:
        pass  # its port is free again: nobody answers there
    result = fetch(hub, tmp_path)
    assert result["kind"] == "network"
    assert "check the network or proxy" in result["error"]


def test_the_space_is_asked_for_before_the_weights(hub, tmp_path):
    hub.claimed[WEIGHTS] = 10**18
    result = fetch(hub, tmp_path)
    assert result["kind"] == "space"
    assert "1000000000.1 GB are needed" in result["error"], "with what has to stay free"
    assert hub.asked(WEIGHTS) == []
