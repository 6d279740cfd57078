"""``chatapp models``: list, fetch, info, rm; from a person's side."""

import json
import shutil
import sys
import warnings

import pytest

from chatapp import paths
from chatapp.cli import main
from chatapp.models.catalog import look, look_at_all
from chatapp.models.registry import ModelSpec, load_registry
from chatapp.models.space import size_text
from tests.models.gguf_files import Shape, write_gguf
from tests.models.test_hub import WEIGHTS, fetch, hub  # noqa: F401 - a fixture
from tests.models.test_pypi import index, write_wheel  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Nothing but ``fetch`` may need one; the Hub's cache is empty."""
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was used"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(paths.cache_dir() / "hub"))


@pytest.fixture
def tiny(index, tmp_path):  # noqa: F811
    """A model of the person's own registry, in a wheel that pip finds."""
    content = write_gguf(tmp_path / "tiny.gguf", Shape()).read_bytes()
    write_wheel(index, {"tiny_model/tiny.gguf": content})
    (paths.config_dir() / "models.toml").write_text(
        "[models.tiny]\nsource = 'pypi:tiny-model==1.0/tiny_model/tiny.gguf'\nlicense = \"[bold]MIT\\u001b[2J\"\n"
    )
    return content


def run(capsys, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = main(["models", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_from_nothing_to_ready_to_nothing(tiny, capsys):
    code, out, _ = run(capsys, "fetch", "tiny", "--json")
    fetched = json.loads(out)
    assert code == 0
    assert fetched["model"] == "tiny"

    _, out, _ = run(capsys, "list", "--json")
    listed = {entry["model"]: entry for entry in map(json.loads, out.splitlines())}
    assert listed["tiny"]["state"] == "ready"
    assert listed["tiny"]["folder"] == fetched["folder"]
    assert listed["qwen3-8b"]["state"] == "absent"
    on_disk = sum(path.stat().st_size for path in paths.cache_dir().rglob("*") if path.is_file())
    assert listed["tiny"]["bytes"] == on_disk

    code, out, _ = run(capsys, "rm", "tiny", "--yes", "--json")
    assert (code, json.loads(out)) == (0, {"model": "tiny", "freed": on_disk})
    assert [path for path in paths.cache_dir().rglob("*") if path.is_file() and not path.name.endswith(".lock")] == []
    code, _, err = run(capsys, "rm", "tiny", "--yes")
    assert (code, err) == (1, "chatapp: Nothing of tiny is here.\n")


def test_the_list_is_readable_and_its_text_is_no_markup(tiny, capsys):
    run(capsys, "fetch", "tiny")
    code, out, _ = run(capsys)
    assert code == 0
    line = next(line for line in out.splitlines() if line.startswith("tiny"))
    assert "here" in line
    assert "[bold]MIT␛[2J" in line
    assert "\x1b" not in out
    assert "17.2 GB" in next(line for line in out.splitlines() if line.startswith("qwen3-30b-a3b"))


def test_info_says_which_matrix_library_is_in_use(tiny, capsys, monkeypatch):
    monkeypatch.setattr("chatapp.engine.blas.use_fast_blas", lambda: "openblas")
    code, out, _ = run(capsys, "info", "tiny", "--json")
    facts = json.loads(out)
    assert (code, facts["blas"], facts["state"]) == (0, "openblas", "absent")
    assert run(capsys, "info")[1].splitlines()[0].split() == ["model", "smollm2-135m"]
    assert "blas" in run(capsys, "info")[1]


def test_removing_asks_and_says_how_much_is_freed(tiny, capsys, monkeypatch):
    run(capsys, "fetch", "tiny")
    code, _, err = run(capsys, "rm", "tiny")
    assert code == 2
    assert "say --yes, as nobody can be asked here" in err

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda: "")
    code, _, err = run(capsys, "rm", "tiny")
    assert code == 1
    assert f"Remove tiny and free {size_text(look(load_registry().find('tiny')).bytes)}?" in err
    assert look(load_registry().find("tiny")).state == "ready"

    monkeypatch.setattr("builtins.input", lambda: "y")
    code, out, _ = run(capsys, "rm", "tiny")
    assert code == 0
    assert "are free again" in out
    assert look(load_registry().find("tiny")).state == "absent"


def test_a_folder_of_ones_own_is_never_removed(tmp_path, capsys):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    code, _, err = run(capsys, "rm", str(folder), "--yes")
    assert code == 2
    assert "is a folder of your own" in err
    assert folder.exists()


def test_a_gguf_of_ones_own_stays_when_its_conversion_goes(tmp_path, capsys):
    path = write_gguf(tmp_path / "tiny.gguf", Shape())
    assert run(capsys, "fetch", str(path))[0] == 0
    assert run(capsys, "rm", str(path), "--yes")[0] == 0
    assert path.exists()
    assert look(load_registry().find(str(path))).state == "absent"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rm", "nope"], "There is no model “nope”"),
        (["frobnicate"], "invalid choice"),
        (["fetch"], "the following arguments are required: model"),
        (["fetch", "/nowhere/model.gguf"], "There is no file"),
        (["fetch", "/nowhere/at/all"], "There is no folder"),
    ],
)
def test_wrong_calls_are_one_sentence(capsys, arguments, sentence):
    code, out, err = run(capsys, *arguments)
    assert code in (1, 2)
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_a_broken_list_is_named(capsys):
    path = paths.config_dir() / "models.toml"
    path.write_text("[models.x]\nsource = 3\n")
    code, _, err = run(capsys)
    assert code == 2
    assert f"{path}, line 2: models.x.source: expected `str`" in err


def test_models_of_the_hubs_cache(hub, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.undo()
    monkeypatch.setenv("CHATAPP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CHATAPP_CONFIG_DIR", str(tmp_path / "config"))
    fetch(hub, tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    spec = ModelSpec(name="x", source="hf:owner/tiny")
    entry = look(spec)
    assert entry.state == "ready"
    assert (entry.folder / WEIGHTS).exists()
    assert entry.bytes >= sum(len(hub.files[name]) for name in ("config.json", WEIGHTS, "tokenizer.json"))
    found = [entry for entry in look_at_all(load_registry()) if not entry.known]
    assert [entry.spec.name for entry in found] == ["owner/tiny"]
    shutil.rmtree(entry.folder)
    assert look(spec).state == "partial"
    assert [entry for entry in look_at_all(load_registry()) if not entry.known] == [], "another program's"


def test_an_interrupted_download_is_listed(hub, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.undo()
    monkeypatch.setenv("CHATAPP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CHATAPP_CONFIG_DIR", str(tmp_path / "config"))
    hub.stall_after[WEIGHTS] = 2_000_000
    fetch(hub, tmp_path, "hf:owner/tiny", 1_000_000)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    [found] = [entry for entry in look_at_all(load_registry()) if not entry.known]
    assert (found.spec.name, found.state) == ("owner/tiny", "partial")
    assert found.bytes >= 1_000_000


def test_a_folder_that_is_no_model_is_not_called_ready(tmp_path, capsys):
    code, out, err = run(capsys, "fetch", str(tmp_path))
    assert (code, out) == (1, "")
    assert "has no config.json" in err
    (tmp_path / "config.json").write_text("{}")
    code, out, err = run(capsys, "fetch", str(tmp_path))
    assert (code, out) == (1, "")
    assert "has no model*.safetensors" in err
