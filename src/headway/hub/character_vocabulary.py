"""A vocab.json of single characters with their ids, as small programs of their own write it: a tokenizer of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models

from headway.errors import InputError, refuse
from headway.hub.vocabularies import ids_in
from headway.text.foreign import ForeignTokenizer, Settings

FILE = "vocab.json"
# What the special symbols are called, without their brackets.
SYMBOLS = {
    "pad": ("pad", "blank"),
    "start": ("s", "sos", "bos", "start", "go"),
    "end": ("/s", "eos", "end"),
    "unknown": ("unk", "unknown", "oov"),
}


def read_characters(folder: Path) -> ForeignTokenizer:
    """A text is its characters between start and end. The symbol for unknown ones is written out when it is decoded, as
    no character would stand for it."""
    path = folder / FILE
    entries = ids_in(path)
    symbols = [entry for entry in entries if len(entry) > 1]
    role_of = {entry: role for entry in symbols for role, names in SYMBOLS.items() if _bare(entry) in names}
    if words := [entry for entry in symbols if entry not in role_of and _bare(entry) == entry]:
        raise InputError(
            f"{path} has {words[0][:40]!r}: expected single characters and special symbols such as <s>; for another "
            "vocabulary save its tokenizer.json beside the weights"
        )
    named: dict[str, Any] = {role: entry for entry, role in role_of.items()}
    refuse("unknown" not in named, f"{path} has no symbol for characters that it lacks, such as <unk>")
    inner = tokenizers.Tokenizer(models.BPE(entries, [], unk_token=named.pop("unknown"), fuse_unk=False))
    inner.decoder = decoders.Fuse()
    more = tuple(entry for entry in symbols if entry not in role_of)
    framed = tuple(role in named for role in ("start", "end"))
    return ForeignTokenizer(inner, Settings(**named, more=more, frame=framed, spelled=True))


def _bare(entry: str) -> str:
    """Without brackets."""
    return entry.strip("<>[]{}|_").lower()
