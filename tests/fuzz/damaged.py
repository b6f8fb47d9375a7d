"""Damage to files: bytes flipped, cut, zeroed, deleted; values in JSON and lines of text replaced; headers of tensors
changed."""

from __future__ import annotations

import gzip
import json
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEEP = 20_000
TRACE = "headway.trace"
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 0.5, 1e9, 10**12, 10**40, -(10**40), float("nan"), float("inf"), "", "x", "é" * 50,
    "a" * 100_000, [], [[]], ["x"], {}, {"x": 1}, "\ud800", "../../x", "name", 2, 7,
)  # fmt: skip


def flip(path: Path, dice: random.Random) -> str:
    data = bytearray(path.read_bytes())
    at = dice.randrange(len(data))
    data[at] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    return f"flip a bit of byte {at}"


def cut(path: Path, dice: random.Random) -> str:
    data = path.read_bytes()
    at = dice.randrange(len(data))
    path.write_bytes(data[:at])
    return f"cut at {at} of {len(data)}"


def zero(path: Path, dice: random.Random) -> str:
    data = bytearray(path.read_bytes())
    start = dice.randrange(len(data))
    end = min(len(data), start + dice.choice([1, 16, 4096]))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    return f"zero bytes {start} to {end}"


def delete(path: Path, dice: random.Random) -> str:
    path.unlink()
    return "delete it"


def add(path: Path, dice: random.Random) -> str:
    with path.open("ab") as stream:
        stream.write(dice.choice([b"\0", b"{}", b"\n", b"x" * 1000, b"\xff\xfe"]))
    return "add bytes at the end"


def replace_by_folder(path: Path, dice: random.Random) -> str:
    path.unlink()
    path.mkdir()
    return "put a folder in its place"


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, one in inner for place in _places(one, (*at, key)))]


def change_json(path: Path, dice: random.Random) -> str:
    """Replace, delete, add or nest a value somewhere."""
    text, what = changed_json(path.read_text(encoding="utf-8"), dice)
    path.write_text(text, encoding="utf-8")
    return what


def changed_json(text: str, dice: random.Random) -> tuple[str, str]:
    value = json.loads(text)
    place = dice.choice(_places(value)[:5000])
    new = dice.choice(VALUES)
    what = dice.choice(["replace", "replace", "replace", "delete", "add", "nest"])
    if not place or what == "nest":
        return "[" * DEEP + "]" * DEEP if what == "nest" else json.dumps(new), f"{what} all of it"
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    if what == "delete":
        del holder[place[-1]]
    elif what == "add" and isinstance(holder, dict):
        holder["unheard_of"] = new
    else:
        holder[place[-1]] = new
    return json.dumps(value), f"{what} {'.'.join(map(str, place))} by {str(new)[:30]!r}"


def change_header(path: Path, dice: random.Random) -> str:
    """Another type, shape, place or name of a tensor in a safetensors file."""
    header, tensors = _parted(path)
    names = [key for key in header if key != "__metadata__"]
    if not names:
        return flip(path, dice)
    name = dice.choice(names)
    what = dice.choice(["dtype", "shape", "data_offsets", "name"])
    if what == "dtype":
        header[name]["dtype"] = dice.choice(["I32", "U32", "F64", "BF16", "F8_E4M3", "x"])
    elif what == "name":
        header[name + ".x"] = header.pop(name)
    else:
        header[name][what] = dice.choice([[], [0], [10**9, 10**9], [-1], [2**62, 4], [1, 2, 3], "x"])
    _join(path, header, tensors)
    return f"another {what} of {name}"


def change_metadata(path: Path, dice: random.Random) -> str:
    """The JSON that a trace has in the header of its safetensors file."""
    header, tensors = _parted(path)
    header["__metadata__"][TRACE], what = changed_json(header["__metadata__"][TRACE], dice)
    _join(path, header, tensors)
    return f"in its metadata {what}"


def _parted(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def _join(path: Path, header: dict[str, Any], tensors: bytes) -> None:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + tensors)


def change_line(path: Path, dice: random.Random) -> str:
    """Delete, repeat, empty or lengthen a line of text, or replace one of its fields."""
    packed = path.suffix == ".gz"
    data = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    rows = data.decode("utf-8").split("\n")
    at = dice.randrange(len(rows))
    what = dice.choice(["delete", "repeat", "empty", "lengthen", "field", "field", "field"])
    fields = re.split(r"([ \t]+)", rows[at])
    fields[dice.randrange(0, len(fields), 2)] = new = as_text(dice.choice(VALUES))
    rows[at : at + 1] = {
        "delete": [], "repeat": [rows[at]] * 2, "empty": [""], "lengthen": [rows[at] + "\tx y\t1"],
        "field": ["".join(fields)],
    }[what]  # fmt: skip
    data = "\n".join(rows).encode("utf-8", "surrogatepass")
    path.write_bytes(gzip.compress(data) if packed else data)
    return f"{what} line {at + 1}" + (f", {new[:30]!r}" if what == "field" else "")


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


Damage = Callable[[Path, random.Random], str]
TEXT = (".txt", ".tsv", ".csv", ".conll", ".conllu", ".jsonl", ".arpa", ".vec", ".en", ".fr", ".toml")


def damages(path: Path) -> list[Damage]:
    """What can be done to a file of this kind."""
    plain: list[Damage] = [delete, replace_by_folder, add]
    if path.stat().st_size:
        plain += [flip, flip, cut, zero]
    if path.suffix == ".json":
        plain += [change_json] * 6
    if path.suffix == ".safetensors":
        plain += [change_header] * 3
        plain += [change_metadata] * 12 if TRACE in _parted(path)[0].get("__metadata__", {}) else []
    bare = path.with_suffix("") if path.suffix == ".gz" else path
    if bare.suffix in TEXT:
        plain += [change_line] * 5
    return plain


def damage(folder: Path, seed: int, leave: tuple[str, ...] = ()) -> str:
    """Do one thing to one file below the folder; returns what."""
    dice = random.Random(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in leave)
    path = dice.choice(files)
    done = dice.choice(damages(path))(path, dice)
    return f"{path.relative_to(folder)}: {done}"
