"""The list of known models: the shipped models.toml, and the person's own, which adds to it and overrides."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from chatapp import paths
from chatapp.errors import UsageError
from chatapp.models.ranges import check_adaptive, check_capacity, check_sampling
from chatapp.models.sources import Source, guess_source, parse_source
from chatapp.protocol import Sampling
from chatapp.tomlfile import TomlFile, read_toml

FILE = "models.toml"

DEFAULT_MODEL = "smollm2-135m"

#: In place of a draft model: guesses come from the text itself.
LOOKUP = "lookup"

#: A number of tokens, weights or bytes.
Count = Annotated[int, msgspec.Meta(ge=0)]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class TemplateOptions(msgspec.Struct, frozen=True):
    """How the model's chat template wants to be called.

    Attributes:
        thinking: Whether reasoning is on where nobody says otherwise; None leaves the template's own default.
        thinking_key: The template variable that switches reasoning; empty finds out from the template.
        system: False for a template that has no place for a system message.
        variables: Further variables given to the template.
    """

    thinking: bool | None = None
    thinking_key: str = ""
    system: bool = True
    variables: dict[str, bool | int | float | str] = {}


class ModelSpec(msgspec.Struct, frozen=True):
    """What is known about a model before it is loaded.

    Attributes:
        name: The registry's name; for a model outside it, what the person typed.
        title: Shown to people.
        source: As in `chatapp.models.sources`.
        sha256: Of the GGUF file of a ``gguf`` or ``pypi`` source; empty if it is not pinned.
        context: Trained context in tokens; 0 takes the model's configuration.
        max_kv_size: Default capacity of the KV cache in tokens; 0 takes the context.
        license: SPDX identifier, or the licence's name.
        parameters: Number of weights.
        download_bytes: What is fetched, in bytes; 0 if unknown.
        memory_bytes: The weights in memory, in bytes; 0 if unknown.
        sampling: Defaults of this model.
        adaptive: Thresholds of the ``adaptive`` sampler, by its option names (entropies in nats).
        ask: Text of the token by which the model questions itself, for ``adaptive``; empty if it has none.
        stop: Strings that end a reply, beside the tokenizer's end tokens.
        template: Chat-template options.
        shape: What decides how ranks share the model, by config.json's names; for a source that brings its
            configuration with the weights, so that what cannot be shared is refused before a download.
        draft: Model for speculative decoding, named as a model is, or `LOOKUP`.
        adapter: Folder of a LoRA adapter.
        note: One sentence for the list.
    """

    name: str
    source: str
    title: str = ""
    sha256: str = ""
    context: Count = 0
    max_kv_size: Count = 0
    license: str = ""
    parameters: Count = 0
    download_bytes: Count = 0
    memory_bytes: Count = 0
    sampling: Sampling = Sampling()
    adaptive: dict[str, float] = {}
    ask: str = ""
    stop: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    template: TemplateOptions = TemplateOptions()
    shape: dict[str, str | int] = {}
    draft: str | None = None
    adapter: str | None = None
    note: str = ""

    @property
    def place(self) -> Source:
        """The parsed source."""
        return parse_source(self.source)


class Registry:
    """All models known by name, in the order of the files."""

    def __init__(self, specs: dict[str, ModelSpec]) -> None:
        self._specs = specs

    def __iter__(self) -> Iterator[ModelSpec]:
        return iter(self._specs.values())

    def __contains__(self, name: str) -> bool:
        return name in self._specs

    def find(self, text: str) -> ModelSpec:
        """The model that a person means: a name, a source, a folder, a .gguf file or ``owner/repo[@revision]``.

        Raises:
            UsageError: It is none of these; near names are offered.
        """
        if text in self._specs:
            return self._specs[text]
        source = guess_source(text)
        if source is not None:
            known = (spec for spec in self if _is_meant(source, spec.place))
            return next(known, ModelSpec(name=text, title=_title(source), source=str(source)))
        near = difflib.get_close_matches(text.lower(), list(self._specs), 2, 0.75)
        hint = f"Did you mean {' or '.join(near)}?" if near else "`chatapp models` lists the known ones."
        raise UsageError(
            f"There is no model “{text}”. {hint} Any owner/repo of the Hub, folder or .gguf file works too."
        )


def load_registry() -> Registry:
    """Reads the shipped list and the person's ``models.toml``.

    Raises:
        UsageError: A file is damaged; file, line and key are named.
    """
    specs: dict[str, ModelSpec] = {}
    for path in (paths.shipped(FILE), paths.config_dir() / FILE):
        if path.exists():
            file = read_toml(path)
            specs = _read(file, specs)
            _check_drafts(file, Registry(specs))
    return Registry(specs)


def _read(file: TomlFile, known: dict[str, ModelSpec]) -> dict[str, ModelSpec]:
    for key in file.tables:
        if key != "models":
            raise file.error((key,), 'unknown key: a model is a table such as [models."my-model"].')
    tables = file.tables.get("models", {})
    if not isinstance(tables, dict):
        raise file.error(("models",), 'must be a table such as [models."my-model"].')
    specs = dict(known)
    for name, table in tables.items():
        specs[name] = _spec(file, name, table, known.get(name))
    return specs


def _spec(file: TomlFile, name: str, table: Any, base: ModelSpec | None) -> ModelSpec:
    keys = ("models", name)
    if not _NAME.fullmatch(name):
        raise file.error(keys, "a model's name has only a-z, 0-9, dots, dashes and underscores.")
    if not isinstance(table, dict):
        raise file.error(keys, f'must be a table: write [models."{name}"].')
    if "name" in table:
        raise file.error((*keys, "name"), "unknown key: the name is in the table's header.")
    merged = _merge(msgspec.to_builtins(base, str_keys=True), table) if base else table
    spec = file.convert({"source": "", "title": name, **merged, "name": name}, ModelSpec, keys)
    _check_values(file, keys, spec)
    if "source" not in merged:
        raise file.error(keys, 'source is missing: write for example source = "hf:owner/repo".')
    base_folder = file.path.parent
    try:
        place = parse_source(spec.source, base_folder)
    except UsageError as error:
        raise file.error((*keys, "source"), str(error)) from None
    adapter = str(base_folder / Path(spec.adapter).expanduser()) if spec.adapter else None
    return msgspec.structs.replace(spec, source=str(place), adapter=adapter)


def _check_values(file: TomlFile, keys: tuple[str, ...], spec: ModelSpec) -> None:
    check_sampling(file, (*keys, "sampling"), spec.sampling)
    check_adaptive(file, (*keys, "adaptive"), spec.adaptive)
    check_capacity(file, keys, spec.max_kv_size)
    if spec.sha256 and not _SHA256.fullmatch(spec.sha256):
        raise file.error((*keys, "sha256"), "must be 64 hexadecimal digits in lower case.")


def _check_drafts(file: TomlFile, registry: Registry) -> None:
    """Looks for the models that the file's models name to draft for them; they may stand anywhere in the files."""
    for name in file.tables.get("models", {}):
        draft = registry.find(name).draft
        if not draft or draft == LOOKUP:
            continue
        try:
            registry.find(draft)
        except UsageError as error:
            raise file.error(("models", name, "draft"), str(error)) from None


def _is_meant(asked: Source, known: Source) -> bool:
    """A repository named without a revision means the known one, with its pin; ``@main`` asks for the newest."""
    return asked in (known, msgspec.structs.replace(known, revision=""))


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Keys of ``over`` win; tables are merged key by key."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _title(source: Source) -> str:
    name = source.location.rstrip("/").rsplit("/", 1)[-1]
    return name or source.location
