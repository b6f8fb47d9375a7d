"""Vocabularies with a token for a gap, for models that learn from masked words.

WordPiece (Schuster and Nakajima 2012), as BERT has it, with [CLS] before a text and [SEP] after it; or byte-level BPE,
as RoBERTa has it, with <s> and </s>. The file is one that other programs read as it is (`ForeignTokenizer`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from headway.errors import InputError, refuse
from headway.text.codec import enclosed
from headway.text.foreign import ForeignTokenizer, Settings
from headway.text.tokenizer import TextOptions, chunked

SQUARE = Settings(pad="[PAD]", unknown="[UNK]", first="[CLS]", separator="[SEP]", mask="[MASK]")
ANGLE = Settings(
    start="<s>", pad="<pad>", end="</s>", unknown="<unk>", mask="<mask>", first="<s>", separator="</s>"
)  # fmt: skip
IDS = {
    "wordpiece": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "bpe": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],  # RoBERTa counts positions from behind its padding's id
}
CONTINUES = "##"  # before a part of a word that does not begin it
ALPHABET = 1000  # characters that WordPiece knows, as BERT's own; a word with another one is unknown
KINDS = {"wordpiece": "BERT's", "bpe": "RoBERTa's"}


def learn(texts: Iterable[str], options: TextOptions) -> ForeignTokenizer:
    """The same texts and options give the same file, byte for byte."""
    if options.kind not in KINDS:
        known = " or ".join(f"{kind} ({whose})" for kind, whose in KINDS.items())
        raise InputError(f"masked words need data.text.kind={known}, not {options.kind}")
    settings = SQUARE if options.kind == "wordpiece" else ANGLE
    chunks = list(chunked(texts))
    refuse(not chunks, "there is no text to learn a vocabulary from: every document is empty")
    inner = (_wordpiece if options.kind == "wordpiece" else _bytes)(chunks, options, IDS[options.kind])
    first, last = str(settings.first), str(settings.separator)
    second = f"$B:1 {last}:1" if options.kind == "wordpiece" else f"{last}:0 $B:0 {last}:0"
    inner.post_processor = enclosed(inner, first, last, second)
    return ForeignTokenizer.from_json(str(inner.to_str(pretty=True)), settings)


def _wordpiece(chunks: Sequence[list[str]], options: TextOptions, specials: list[str]) -> tokenizers.Tokenizer:
    normalizer = normalizers.BertNormalizer(lowercase=options.lowercase)
    counts: Counter[str] = Counter()
    for chunk in chunks:
        counts.update(letter for text in chunk for letter in normalizer.normalize_str(text) if not letter.isspace())
    frequent = sorted(sorted(counts), key=lambda letter: -counts[letter])[:ALPHABET]
    # The library numbers letters in an order that differs between processes, and breaks ties by it. Here they have
    # their numbers before it starts.
    letters = [mark + letter for mark in ("", CONTINUES) for letter in sorted(frequent)]
    least = len(specials) + len(letters)
    refuse(options.size < least, f"data.text.size is {options.size}: this text needs at least {least} entries")
    learned = _like_bert(models.WordPiece(unk_token=SQUARE.unknown), normalizer)
    trainer = trainers.WordPieceTrainer(
        vocab_size=options.size, min_frequency=options.min_count, special_tokens=[*specials, *letters],
        limit_alphabet=len(frequent), continuing_subword_prefix=CONTINUES, show_progress=False,
    )  # fmt: skip
    learned.train_from_iterator(iter(chunks), trainer)
    vocabulary = learned.get_vocab()
    inner = _like_bert(
        models.WordPiece(vocabulary, unk_token=SQUARE.unknown, continuing_subword_prefix=CONTINUES), normalizer
    )
    inner.decoder = decoders.WordPiece(prefix=CONTINUES)
    inner.add_special_tokens(specials)
    return inner


def _like_bert(model: models.WordPiece, normalizer: normalizers.Normalizer) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(model)
    inner.normalizer, inner.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    return inner


def _bytes(chunks: Sequence[list[str]], options: TextOptions, specials: list[str]) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(models.BPE())
    if options.lowercase:
        inner.normalizer = normalizers.Lowercase()
    # A space before the first word too: a word then has the same tokens everywhere in a text.
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=options.size, min_frequency=options.min_count, special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
    )  # fmt: skip
    inner.train_from_iterator(iter(chunks), trainer)
    inner.add_special_tokens([tokenizers.AddedToken(str(ANGLE.mask), lstrip=True)])  # the space before belongs to it
    return inner
