"""SentencePiece models (Kudo and Richardson 2018): the pieces of a `.model` or `.spm` file as a tokenizer.

Such a file is a message of Protocol Buffers; of its fields those that decide how text becomes pieces are read here, and
what would change that and is not known is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from headway.errors import InputError
from headway.text.tokenizer import SPACE_MARK

Value = int | bytes
VARINT, EIGHT_BYTES, COUNTED, FOUR_BYTES = 0, 1, 2, 5  # how a field is stored
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # what a piece is
KINDS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}
# Before the spelling of a piece that the other side of a translator has: no text has it, so it is never cut out of one.
ELSEWHERE = "\ufffe"
AT_THE_ENDS = Regex("^ +| +$")
NOT_THERE = -10.0  # what a letter without a piece costs beside the rarest piece, as in SentencePiece


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieces:
    """fallback: a letter without a piece is its bytes. prefix: a text gets a space before it. tidy: of several spaces
    one is kept, and none at the ends. table: a normaliser's, in SentencePiece's own form."""

    pieces: tuple[Piece, ...]
    kind: Literal["unigram", "bpe"]
    fallback: bool
    prefix: bool
    tidy: bool
    table: bytes

    @property
    def unknown(self) -> int:
        return next((i for i, piece in enumerate(self.pieces) if piece.kind == UNKNOWN), 0)

    def tokenizer(
        self, each_section: bool, more: tuple[str, ...] = (), places: Mapping[str, int] | None = None
    ) -> tokenizers.Tokenizer:
        """each_section: what stands behind a special gets a space before it too, not only the whole text. more: entries
        that are no pieces. places: another order of all entries, among which are the other side's pieces; a text that
        is written then has no space at its ends."""
        inner = tokenizers.Tokenizer(self._merged(more) if self.kind == "bpe" else self._weighed(more, places))
        steps: list[normalizers.Normalizer] = [normalizers.Precompiled(self.table)] if self.table else []
        if self.tidy:
            steps += [normalizers.Replace(AT_THE_ENDS, ""), normalizers.Replace(Regex(" {2,}"), " ")]
        if steps:
            inner.normalizer = normalizers.Sequence(steps)
        where = ("always" if each_section else "first") if self.prefix else "never"
        inner.pre_tokenizer = pre_tokenizers.Metaspace(SPACE_MARK, where, split=False)
        inner.decoder = decoders.Sequence([
            *([decoders.Replace(ELSEWHERE, "")] if places else []),
            decoders.Replace(SPACE_MARK, " "),
            *([decoders.ByteFallback()] if self.fallback else []),
            decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if self.prefix else []),
            *([decoders.Replace(AT_THE_ENDS, "")] if places else []),
        ])  # fmt: skip
        inner.add_tokens([
            tokenizers.AddedToken(piece.text, normalized=False, special=piece.kind == CONTROL)
            for piece in self.pieces
            if piece.kind in (CONTROL, USER) and (places is None or piece.text in places)
        ])  # fmt: skip
        inner.add_special_tokens([tokenizers.AddedToken(text, normalized=False, special=True) for text in more])
        return inner

    def _merged(self, more: tuple[str, ...]) -> models.BPE:
        """The file has no merges: two pieces are one where the file has it, the best piece first."""
        entries = {text: i for i, text in enumerate([*(piece.text for piece in self.pieces), *more])}
        pairs = [
            (-piece.score, cut, piece.text)
            for piece in self.pieces
            for cut in range(1, len(piece.text))
            if piece.text[:cut] in entries and piece.text[cut:] in entries and piece.kind in (NORMAL, USER)
        ]
        merges = [(text[:cut], text[cut:]) for _, cut, text in sorted(pairs, key=lambda pair: pair[:2])]
        unknown = self.pieces[self.unknown].text
        return models.BPE(entries, merges, unk_token=unknown, fuse_unk=True, byte_fallback=self.fallback)

    def _weighed(self, more: tuple[str, ...], places: Mapping[str, int] | None) -> models.Unigram:
        scores = {piece.text: piece.score for piece in self.pieces}
        if places is None:
            entries = [*scores.items(), *((text, 0.0) for text in more)]
            return models.Unigram(entries, self.unknown, self.fallback)
        rarest = min(scores.values()) + NOT_THERE
        entries = []
        for text in sorted(places, key=lambda text: places[text]):
            # A single letter of the other side is found where this one has no piece, at the price of having none.
            known = text in scores or text in more or len(text) == 1
            entries.append((text if known else ELSEWHERE + text, scores.get(text, rarest)))
        unknown = self.pieces[self.unknown].text
        return models.Unigram(entries, places[unknown], self.fallback)


def read_pieces(path: Path) -> SentencePieces:
    try:
        return _model(path.read_bytes(), path)
    except (OSError, ValueError, LookupError, TypeError, struct.error) as error:
        raise InputError(f"{path} is no SentencePiece model, or a broken one ({error}): copy it again") from error


def _model(data: bytes, path: Path) -> SentencePieces:
    pieces: list[Piece] = []
    parts: dict[int, dict[int, Value]] = {2: {}, 3: {}, 5: {}}  # training, normalising, and undoing that
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_piece(_counted(value)))
        elif number in parts:
            parts[number] |= dict(_fields(_counted(value)))
    training, normalising, undoing = parts.values()
    if not pieces:
        raise ValueError("it has no pieces")
    kind = KINDS.get(int(training.get(3, 1)))
    faults = {
        f"model_type {training.get(3, 1)!r}": kind is None,
        "spaces behind words (treat_whitespace_as_suffix)": bool(training.get(24, 0)),
        "spaces as they are (escape_whitespaces false)": not normalising.get(5, 1),
        "a normaliser for what is decoded": bool(undoing.get(2)),
        "pieces that are switched off": any(piece.kind == UNUSED for piece in pieces),
    }
    for fault, there in faults.items():
        if there:
            raise InputError(f"{path} has {fault}, which headway does not know: save its tokenizer.json beside it")
    assert kind is not None
    return SentencePieces(
        tuple(pieces), kind, bool(training.get(35, 0)), bool(normalising.get(3, 1)), bool(normalising.get(4, 1)),
        _counted(normalising.get(2, b"")),
    )  # fmt: skip


def _piece(data: bytes) -> Piece:
    facts = dict(_fields(data))
    (score,) = struct.unpack("<f", _counted(facts.get(2, bytes(4))))
    return Piece(_counted(facts[1]).decode("utf-8"), score, int(facts.get(3, NORMAL)))


def _counted(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number stands where bytes are expected")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of each field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(key & 7)
        if key & 7 == COUNTED:
            size, at = _varint(data, at)
        if size is None or at + size > len(data):
            raise ValueError("it ends too early" if size else f"it has a field of kind {key & 7}")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; the eighth says that there are more."""
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return number, at
