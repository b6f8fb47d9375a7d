"""Damage to files: bytes flipped, cut, zeroed, deleted; values in JSON replaced; headers of tensors changed."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEEP = 20_000
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
    value = json.loads(path.read_text(encoding="utf-8"))
    place = dice.choice(_places(value)[:5000])
    new = dice.choice(VALUES)
    what = dice.choice(["replace", "replace", "replace", "delete", "add", "nest"])
    if not place or what == "nest":
        text = "[" * DEEP + "]" * DEEP if what == "nest" else json.dumps(new)
        path.write_text(text, encoding="utf-8")
        return f"{what} all of it"
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    if what == "delete":
        del holder[place[-1]]
    elif what == "add" and isinstance(holder, dict):
        holder["unheard_of"] = new
    else:
        holder[place[-1]] = new
    path.write_text(json.dumps(value), encoding="utf-8")
    return f"{what} {'.'.join(map(str, place))} by {str(new)[:30]!r}"


def change_header(path: Path, dice: random.Random) -> str:
    """Another type, shape, place or name of a tensor in a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    name = dice.choice([key for key in header if key != "__metadata__"])
    what = dice.choice(["dtype", "shape", "data_offsets", "name"])
    if what == "dtype":
        header[name]["dtype"] = dice.choice(["I32", "U32", "F64", "BF16", "F8_E4M3", "x"])
    elif what == "name":
        header[name + ".x"] = header.pop(name)
    else:
        header[name][what] = dice.choice([[], [0], [10**9, 10**9], [-1], [2**62, 4], [1, 2, 3], "x"])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
    return f"another {what} of {name}"


Damage = Callable[[Path, random.Random], str]


def damages(path: Path) -> list[Damage]:
    """What can be done to a file of this kind."""
    plain: list[Damage] = [delete, replace_by_folder, add]
    if path.stat().st_size:
        plain += [flip, flip, cut, zero]
    if path.suffix == ".json":
        plain += [change_json] * 6
    if path.suffix == ".safetensors":
        plain += [change_header] * 3
    return plain


def damage(folder: Path, seed: int, leave: tuple[str, ...] = ()) -> str:
    """Do one thing to one file below the folder; returns what."""
    dice = random.Random(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in leave)
    path = dice.choice(files)
    done = dice.choice(damages(path))(path, dice)
    return f"{path.relative_to(folder)}: {done}"
