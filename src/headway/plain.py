"""Frozen dataclasses to plain JSON values and back, and `key=value` changes to them.

A field whose type is a union of dataclasses is a choice of part: each has a class variable `name`, its JSON
carries that name under "name", and `key=othername` swaps the part. A wrong value is an error of one line that
names the key, what was expected and the nearest right name.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headway.errors import InputError, nearest, refuse

T = TypeVar("T")
NUMBER = re.compile(r"[+-]?(\d+(_\d+)*\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)  # also .5 and 10_000
Change = tuple[list[str], Any, str]  # where, what, and the key as it was written


def to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tag = {"name": value.name} if hasattr(value, "name") else {}
        return tag | {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return {key: to_plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def json_line(value: Any) -> str:
    """One line of JSON as its definition has it: a number that is not finite is null."""
    return json.dumps(finite(value), ensure_ascii=False, allow_nan=False)


def finite(value: Any) -> Any:
    """Plain values with null for every number that JSON has no way to write."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def from_plain(kind: Any, data: Any, key: str = "") -> Any:
    """`data` as a value of type `kind`; every wrong key or type is an InputError that names it."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _from_union(get_args(kind), data, key)
    if origin is Literal:
        if data not in get_args(kind):
            raise InputError(f"{key}: '{data}' is not a choice{nearest(str(data), map(str, get_args(kind)))}")
        return data
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise InputError(f"{key} must be a list, not {data!r}")
        return tuple(from_plain(get_args(kind)[0], item, f"{key}[{i}]") for i, item in enumerate(data))
    if origin is dict:
        if not isinstance(data, dict):
            raise InputError(f"{key} must be an object with keys, not {json.dumps(data)}")
        return {name: from_plain(get_args(kind)[1], item, f"{key}.{name}") for name, item in data.items()}
    return (_from_fields if dataclasses.is_dataclass(kind) else _scalar)(kind, data, key)


def _scalar(kind: Any, data: Any, key: str) -> Any:
    if kind is Any:
        return data
    if isinstance(data, int) and abs(data) >= 2**63:
        raise InputError(f"{key} is a number of {len(str(abs(data)))} digits: no such number means anything here")
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if kind is int and isinstance(data, float) and data.is_integer():
        return int(data)  # 1e4
    if isinstance(kind, type) and isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(kind, str(kind))
    raise InputError(f"{key} must be {wanted}, not {json.dumps(data)}")


def _from_fields(kind: Any, data: Any, key: str) -> Any:
    if not isinstance(data, dict):
        raise InputError(f"{key or kind.__name__} must be an object with keys, not {json.dumps(data)}")
    hints = get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    given = {name: item for name, item in data.items() if not (name == "name" and "name" not in fields)}
    prefix = f"{key}." if key else ""
    for name in given:
        if name not in fields:
            raise InputError(f"unknown key '{prefix}{name}'{nearest(name, fields)}")
    for name, f in fields.items():
        if name not in given and f.default is f.default_factory is dataclasses.MISSING:
            raise InputError(f"key '{prefix}{name}' is missing")
    return kind(**{name: from_plain(hints[name], item, prefix + name) for name, item in given.items()})


def _from_union(kinds: tuple[Any, ...], data: Any, key: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    parts: dict[str, Any] = {getattr(kind, "name", ""): kind for kind in kinds if dataclasses.is_dataclass(kind)}
    if not parts:
        for kind in kinds:
            try:
                return from_plain(kind, data, key)
            except InputError:
                continue
        return from_plain(kinds[0], data, key)
    # Files from before there was a choice have no name here: they mean the first kind.
    name = data.get("name", next(iter(parts))) if isinstance(data, dict) else "none" if data is None else data
    if not isinstance(name, str) or name not in parts:
        raise InputError(f"{key}: there is no '{name}'{nearest(str(name), parts)}")
    return _from_fields(parts[name], data if isinstance(data, dict) else {}, key)


def change(value: T, settings: list[str]) -> T:
    """`value` with `key.path=value` settings applied; of two for one key the later holds.

    They are checked together, so a setting that is valid only with another one may come before it.
    """
    changes = []
    for setting in settings:
        path, equals, text = setting.partition("=")
        refuse(not equals, f"'{setting}' is not a setting: write key=value, for example engine.steps=1000")
        changes.append((path.strip().split("."), _parse(text.strip()), path.strip()))
    return _change(value, changes) if changes else value


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a word, or more digits or brackets than a number or list of ours has
        return {"True": True, "False": False, "None": None, "none": None}.get(text, text)


def _change(value: Any, changes: list[Change]) -> Any:
    hints = get_type_hints(type(value))
    names = [f.name for f in dataclasses.fields(value)]
    new: dict[str, Any] = {}
    below: dict[str, list[Change]] = {}
    for (head, *rest), item, whole in changes:
        if head not in names:
            raise InputError(f"unknown key '{whole}': there is no '{head}'{nearest(head, names)}")
        if rest:
            below.setdefault(head, []).append((rest, item, whole))
        else:
            new[head] = _leaf(hints[head], item, whole)
            below.pop(head, None)
    for head, inner in below.items():
        part = new.get(head, getattr(value, head))
        whole = inner[0][2]
        refuse(part is None, f"unknown key '{whole}': '{head}' is not set: set it first, in the same command")
        refuse(not dataclasses.is_dataclass(part), f"unknown key '{whole}': '{head}' has no keys below it")
        new[head] = _change(part, inner)
    return dataclasses.replace(value, **new)


def _leaf(kind: Any, item: Any, key: str) -> Any:
    if kind is str and not isinstance(item, str):
        item = json.dumps(item)
    if get_origin(kind) is tuple and isinstance(item, str):
        item = [_leaf(get_args(kind)[0], part.strip(), key) for part in item.split(",")]
    if kind is not str and isinstance(item, str) and NUMBER.fullmatch(item):
        item = float(item) if any(mark in item for mark in ".eE") else int(item)
    return from_plain(kind, item, key)


def differences(a: Any, b: Any, key: str = "") -> list[str]:
    """`key: a → b` for each leaf that differs."""
    a, b = to_plain(a), to_plain(b)
    if isinstance(a, dict) and isinstance(b, dict):
        prefix = f"{key}." if key else ""
        return [line for name in a | b for line in differences(a.get(name), b.get(name), prefix + name)]
    return [] if a == b else [f"{key}: {json.dumps(a)} → {json.dumps(b)}"]
