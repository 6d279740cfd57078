"""Reads TOML files into typed structs; what is wrong is named by file, line and key."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from chatapp.errors import UsageError

T = TypeVar("T")

_HEADER = re.compile(r"^\s*(\[\[?)(.+?)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+|\.\.\.)\]")


class TomlFile:
    """The parsed tables of one file, and where each key stands in it.

    Attributes:
        path: The file.
        tables: What `tomllib` made of it.
    """

    def __init__(self, path: Path, text: str, tables: dict[str, Any]) -> None:
        self.path = path
        self.text = text
        self.tables = tables

    def line(self, keys: tuple[str, ...]) -> int:
        """The line of a key, or of its nearest table that has one of its own (1 if there is none)."""
        lines = _lines(self.text)
        while keys and keys not in lines:
            keys = keys[:-1]
        return lines.get(keys, 1)

    def error(self, keys: tuple[str, ...], problem: str) -> UsageError:
        """One sentence about a key: file, line, key, problem."""
        name = ".".join(key if re.fullmatch(r"[\w-]+", key) else f'"{key}"' for key in keys)
        return UsageError(f"{self.path}, line {self.line(keys)}: {name}: {problem}")

    def convert(self, value: object, type_: type[T], keys: tuple[str, ...] = ()) -> T:
        """Makes a struct of a table.

        Args:
            value: The table, found under ``keys``.
            type_: A msgspec struct.
            keys: For the error.

        Raises:
            UsageError: A key is unknown or has the wrong type; it names file, line and key.
        """
        self._refuse_unknown(value, type_, keys)
        try:
            return msgspec.convert(value, type_, str_keys=True)
        except msgspec.ValidationError as error:
            problem, _, where = str(error).partition(" - at `$")
            path = _guilty(type_, value, _STEP.findall(where))
            raise self.error((*keys, *path), problem[0].lower() + problem[1:] + ".") from None

    def _refuse_unknown(self, value: object, type_: Any, keys: tuple[str, ...]) -> None:
        fields = _fields(type_)
        if not fields or not isinstance(value, dict):
            return
        for key, inner in value.items():
            if key not in fields:
                near = difflib.get_close_matches(key, list(fields), 1)
                hint = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(sorted(fields))}."
                raise self.error((*keys, key), f"unknown key: {hint}")
            self._refuse_unknown(inner, fields[key], (*keys, key))


def read_toml(path: Path) -> TomlFile:
    """Reads a file.

    Raises:
        UsageError: It cannot be read, is not UTF-8 or not TOML; the line is named.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check its permissions.") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: not UTF-8 text: save the file as UTF-8.") from None
    try:
        return TomlFile(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}, {_position(str(error), text)}") from None


def _position(message: str, text: str) -> str:
    """``tomllib`` says "Problem (at line 3, column 7)"; the line belongs in front."""
    found = re.search(r"^(.*?) \(at line (\d+), column \d+\)$", message, re.DOTALL)
    if found:
        return f"line {found[2]}: {found[1]}: correct it, or remove the line."
    problem = message.removesuffix(" (at end of document)")
    return f"line {max(1, text.rstrip().count(chr(10)) + 1)}: {problem}: correct it, or remove the line."


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Where each table header and key stands, by its full path; of repeated tables the last."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _path(header[2]) or table
            found[table] = number
        elif key := _KEY.match(line):
            path = (*table, *_path(key[1]))
            for end in range(len(table) + 1, len(path) + 1):
                found.setdefault(path[:end], number)
    return found


def _path(dotted: str) -> tuple[str, ...]:
    try:
        tree: Any = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    keys: list[str] = []
    while isinstance(tree, dict):
        key, tree = next(iter(tree.items()))
        keys.append(key)
    return tuple(keys)


def _fields(type_: Any) -> dict[str, Any]:
    """The keys of a struct (or of the struct in a union) and their types; empty for other types."""
    for candidate in (type_, *get_args(type_)):
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return {field.encode_name: field.type for field in msgspec.structs.fields(candidate)}
    return {}


def _guilty(type_: Any, value: Any, steps: list[tuple[str, str]]) -> tuple[str, ...]:
    """The keys to what msgspec complained of; it writes ``[...]`` for "some key of this table"."""
    path: list[str] = []
    for name, index in steps:
        step = name or index
        if step == "..." and isinstance(value, dict):
            type_ = get_args(type_)[-1]
            step = next((str(key) for key, inner in value.items() if not _converts(inner, type_)), step)
        else:
            type_ = _fields(type_).get(step, type_)
        value = value.get(step) if isinstance(value, dict) else None
        path.append(step)
    return tuple(path)


def _converts(value: object, type_: Any) -> bool:
    try:
        msgspec.convert(value, type_, str_keys=True)
    except msgspec.ValidationError:
        return False
    return True
