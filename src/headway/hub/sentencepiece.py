"""SentencePiece models (Kudo and Richardson 2018): a `.model` or `.spm` file as a tokenizer.

The sentencepiece package parses the file. Settings that change how text becomes tokens and that `tokenizers` has no
counterpart for are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from headway.errors import InputError, refuse
from headway.extras import wanted
from headway.text.codec import SPACE_MARK

NORMAL, UNKNOWN, CONTROL, USER, UNUSED = range(1, 6)  # types of a token in the file
UNIGRAM, BPE = 1, 2  # types of a model
# Before the spelling of a token that only the other side of a translator has. No text contains this character, so the
# token never matches.
ELSEWHERE = "\ufffe"
AT_THE_ENDS = Regex("^ +| +$")
LONGEST = 10_000  # letters of a token: where it may be cut, and what of it are tokens, is tried letter by letter
UNKNOWN_PENALTY = -10.0  # added to the lowest score for a character without a token, as SentencePiece does


@dataclass(frozen=True)
class SentencePieces:
    """A parsed file: `proto` is its ModelProto."""

    proto: Any

    @property
    def unigram(self) -> bool:
        return bool(self.proto.trainer_spec.model_type == UNIGRAM)

    @property
    def unknown(self) -> int:
        return next((i for i, token in enumerate(self.proto.pieces) if token.type == UNKNOWN), 0)

    @property
    def unknown_text(self) -> str:
        return str(self.proto.pieces[self.unknown].piece)

    def tokenizer(
        self, each_section: bool, more: tuple[str, ...] = (), places: Mapping[str, int] | None = None
    ) -> tokenizers.Tokenizer:
        """The same segmentation by `tokenizers`.

        each_section: the text after a special token gets a leading space too, not only the whole text. more: entries
        beside the tokens of the file. places: the id of every entry, including tokens of the other side; decoded text
        then has no space at its ends.
        """
        training, normalizing = self.proto.trainer_spec, self.proto.normalizer_spec
        prefix, fallback = normalizing.add_dummy_prefix, training.byte_fallback
        inner = tokenizers.Tokenizer(self._unigram(more, places) if self.unigram else self._bpe(more))
        table = normalizing.precompiled_charsmap
        steps: list[normalizers.Normalizer] = [normalizers.Precompiled(table)] if table else []
        if normalizing.remove_extra_whitespaces:
            steps += [normalizers.Replace(AT_THE_ENDS, ""), normalizers.Replace(Regex(" {2,}"), " ")]
        if steps:
            inner.normalizer = normalizers.Sequence(steps)
        where = ("always" if each_section else "first") if prefix else "never"
        inner.pre_tokenizer = pre_tokenizers.Metaspace(SPACE_MARK, where, split=False)
        inner.decoder = decoders.Sequence([
            *([decoders.Replace(ELSEWHERE, "")] if places else []),
            decoders.Replace(SPACE_MARK, " "),
            *([decoders.ByteFallback()] if fallback else []),
            decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if prefix else []),
            *([decoders.Replace(AT_THE_ENDS, "")] if places else []),
        ])  # fmt: skip
        inner.add_tokens([
            tokenizers.AddedToken(token.piece, normalized=False, special=token.type == CONTROL)
            for token in self.proto.pieces
            if token.type in (CONTROL, USER) and (places is None or token.piece in places)
        ])  # fmt: skip
        inner.add_special_tokens([tokenizers.AddedToken(text, normalized=False, special=True) for text in more])
        return inner

    def _bpe(self, more: tuple[str, ...]) -> models.BPE:
        """The file has no merges: two tokens merge where their concatenation is a token, the highest score first."""
        entries = {text: i for i, text in enumerate([*(token.piece for token in self.proto.pieces), *more])}
        pairs = [
            (-token.score, cut, token.piece)
            for token in self.proto.pieces
            for cut in range(1, len(token.piece))
            if token.type in (NORMAL, USER) and token.piece[:cut] in entries and token.piece[cut:] in entries
        ]
        merges = [(text[:cut], text[cut:]) for _, cut, text in sorted(pairs, key=lambda pair: pair[:2])]
        fallback = self.proto.trainer_spec.byte_fallback
        return models.BPE(entries, merges, unk_token=self.unknown_text, fuse_unk=True, byte_fallback=fallback)

    def _unigram(self, more: tuple[str, ...], places: Mapping[str, int] | None) -> models.Unigram:
        scores = {token.piece: token.score for token in self.proto.pieces}
        fallback = self.proto.trainer_spec.byte_fallback
        if places is None:
            return models.Unigram([*scores.items(), *((text, 0.0) for text in more)], self.unknown, fallback)
        lowest = min(scores.values()) + UNKNOWN_PENALTY
        entries = []
        for text in sorted(places, key=lambda text: places[text]):
            # A single character of the other side replaces the unknown token, at the same score.
            known = text in scores or text in more or len(text) == 1
            entries.append((text if known else ELSEWHERE + text, scores.get(text, lowest)))
        return models.Unigram(entries, places[self.unknown_text], fallback)


def read_sentencepiece(path: Path) -> SentencePieces:
    proto = wanted("sentencepiece.sentencepiece_model_pb2", "hub").ModelProto()
    broken = wanted("google.protobuf.message", "hub").DecodeError
    try:
        proto.ParseFromString(path.read_bytes())
    except (OSError, ValueError, broken) as error:
        raise InputError(f"{path} is not a SentencePiece model, or it is broken ({error}): copy it again") from error
    texts = [token.piece for token in proto.pieces]
    readable = all(isinstance(text, str) and text for text in texts)  # bytes: not UTF-8
    if not texts or not readable or max(map(len, texts)) > LONGEST:
        long = f"a token of more than {LONGEST:,} letters"
        problem = "no tokens" if not texts else long if readable else "a token without readable text"
        raise InputError(f"{path} has {problem}: it is not a SentencePiece model, or it is broken; copy it again")
    training, normalizing = proto.trainer_spec, proto.normalizer_spec
    unsupported = {
        f"model_type {training.model_type}": training.model_type not in (UNIGRAM, BPE),
        "spaces after words (treat_whitespace_as_suffix)": training.treat_whitespace_as_suffix,
        "spaces kept as they are (escape_whitespaces false)": not normalizing.escape_whitespaces,
        "a normalizer for decoded text": bool(proto.denormalizer_spec.precompiled_charsmap),
        "tokens that are switched off": any(token.type == UNUSED for token in proto.pieces),
    }
    for fault, present in unsupported.items():
        refuse(present, f"{path} has {fault}, which headway does not support: save its tokenizer.json beside it")
    return SentencePieces(proto)
