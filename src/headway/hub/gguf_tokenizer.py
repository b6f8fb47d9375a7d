"""The tokenizer in a GGUF file's metadata: byte-level BPE ("gpt2") or SentencePiece's BPE ("llama")."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Split

from headway.errors import InputError, nearest, of_library, refuse
from headway.extras import wanted
from headway.hub.sentencepiece import BPE, CONTROL, LONGEST, UNUSED, USER, SentencePieces
from headway.text.foreign import ForeignTokenizer, Settings

CONTRACTED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = [ByteLevel(add_prefix_space=False)]
THREE_DIGITS = [Split(Regex(f"{CONTRACTED}|{REST % '{1,3}'}"), "isolated"), BYTES]
ONE_DIGIT = [Split(Regex(f"{CONTRACTED}|{REST % ''}"), "isolated"), BYTES]
# How text is split before BPE, by the name that llama.cpp gives it.
SPLITS: dict[str, list[Any]] = {
    "default": GPT2, "gpt-2": GPT2, "gpt2": GPT2, "llama-bpe": THREE_DIGITS, "llama3": THREE_DIGITS,
    "qwen2": ONE_DIGIT, "smollm": [Digits(individual_digits=True), *GPT2],
    "starcoder": [Digits(individual_digits=True), *GPT2],
}  # fmt: skip
ROLES = {"start": "bos", "end": "eos", "unknown": "unknown", "pad": "padding", "mask": "mask"}


def gguf_tokenizer(facts: dict[str, Any], where: Path) -> ForeignTokenizer:
    def of(key: str, default: Any = None) -> Any:
        return facts.get(f"tokenizer.ggml.{key}", default)

    kind, tokens, types = of("model"), of("tokens"), of("token_type")
    builders = {"llama": _sentencepiece, "gpt2": _byte_pairs}
    if kind not in builders:
        raise InputError(f"{where}: headway has no GGUF tokenizer '{kind}'{nearest(str(kind), builders)}")
    strings = isinstance(tokens, list) and tokens and all(isinstance(token, str) for token in tokens)
    if not strings or max(map(len, tokens)) > LONGEST or (types is not None and len(types) != len(tokens)):
        raise InputError(f"{where}: its tokenizer has no whole list of tokens: the file is broken")
    types = types or [1] * len(tokens)
    try:
        inner = builders[kind](of, tokens, types, where)
        specials = [text for text, type_ in zip(tokens, types, strict=True) if type_ == CONTROL]
        inner.add_special_tokens([tokenizers.AddedToken(text, normalized=False, special=True) for text in specials])
        added = [text for text, type_ in zip(tokens, types, strict=True) if type_ == USER]
        inner.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in added])
        return ForeignTokenizer(inner, _settings(facts, of, tokens, builders[kind] is _sentencepiece))
    except InputError:
        raise
    except BaseException as error:  # the library raises bare Exception, and panics beyond it
        raise InputError(f"{where}: its tokenizer cannot be built: {of_library(error)}") from error


def _settings(facts: dict[str, Any], of: Any, tokens: list[str], begins: bool) -> Settings:
    """`begins`: a text begins with the start token, where the file does not say it."""

    def text(name: str) -> str | None:
        i = of(f"{name}_token_id")
        return tokens[i] if isinstance(i, int) and 0 <= i < len(tokens) else None

    roles: dict[str, Any] = {role: text(name) for role, name in ROLES.items()}
    starts = bool(of("add_bos_token", begins)) and roles["start"] is not None
    ends = bool(of("add_eos_token", False)) and roles["end"] is not None
    stops = tuple(i for name in ("eot", "eom") if isinstance(i := of(f"{name}_token_id"), int))
    chat = facts.get("tokenizer.chat_template")
    return Settings(**roles, stops=stops, frame=(starts, ends), chat=chat if isinstance(chat, str) else None)


def _byte_pairs(of: Any, tokens: list[str], types: list[int], where: Path) -> tokenizers.Tokenizer:
    name, merges = of("pre", "default"), of("merges")
    if name not in SPLITS:
        raise InputError(f"{where}: headway does not split texts as '{name}'{nearest(str(name), SPLITS)}")
    parted = [tuple(line.split(" ", 1)) for line in merges or []]
    refuse(any(len(pair) != 2 for pair in parted), f"{where}: a merge of its tokenizer is no pair of tokens")
    pairs = [(str(pair[0]), str(pair[1])) for pair in parted]
    inner = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(tokens)}, pairs, fuse_unk=False))
    inner.pre_tokenizer = pre_tokenizers.Sequence(SPLITS[name])
    inner.decoder = decoders.ByteLevel()
    return inner


def _sentencepiece(of: Any, tokens: list[str], types: list[int], where: Path) -> tokenizers.Tokenizer:
    scores = of("scores")
    refuse(scores is None or len(scores) != len(tokens), f"{where}: its tokenizer has no score for each token")
    refuse(UNUSED in types, f"{where}: its tokenizer has tokens that are switched off, which headway does not support")
    proto = wanted("sentencepiece.sentencepiece_model_pb2", "hub").ModelProto()
    for text, score, type_ in zip(tokens, scores, types, strict=True):
        proto.pieces.add(piece=text, score=float(score), type=int(type_))
    proto.trainer_spec.model_type = BPE
    proto.trainer_spec.byte_fallback = 6 in types
    proto.normalizer_spec.add_dummy_prefix = bool(of("add_space_prefix", True))
    proto.normalizer_spec.remove_extra_whitespaces = bool(of("remove_extra_whitespaces", False))
    return SentencePieces(proto).tokenizer(each_section=False)
