"""Text to ids and back: byte-level BPE (Sennrich et al. 2016; Radford et al. 2019), whole words or characters.

A thin layer over the `tokenizers` library, so that `tokenizer.json` is a file that other programs read too. `encode`
never gives a special token: callers add START and END, and no text can contain one.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Literal, final

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from headway.errors import InputError, refuse
from headway.text.chat import Chat
from headway.text.codec import Codec, enclosed, hashed, readable

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
PAD, START, END, UNKNOWN = range(len(SPECIALS))

BYTES = 256
KINDS = ("bpe", "word", "char", "wordpiece")
SPACE, NOT_SPACE = r"[\s\x1c-\x1f]", r"[^\s\x1c-\x1f]"  # as str.isspace sees it
WORD_OR_MARK = r"[^\W_]+(?:['’][^\W_]+)*|([^\w\s]|_)\1*"  # don't is one word, -- one mark
LINES_AT_ONCE = 1_000

# The library warns at every fork unless this is set, and its thread pool does not survive one: so threads in this
# process, none in a forked child. A setting of the user's own stays.
if "TOKENIZERS_PARALLELISM" not in os.environ:
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.register_at_fork(after_in_child=lambda: os.environ.update(TOKENIZERS_PARALLELISM="false"))


@dataclass(frozen=True)
class TextOptions:
    """How text becomes ids.

    kind: `bpe` splits words into tokens of bytes, so no character is unknown; `word` splits on spaces; `char` has one
    entry for each character of the text, line ends too; `wordpiece`, of models that learn from masked words, splits
    words into parts.
    size: entries in the vocabulary, specials included; small corpora may give fewer.
    joint: one vocabulary for source and target, or one each.
    min_count: how often a pair of tokens must occur to be merged, or a word to be kept.
    exact: for whole documents: decoding restores the text with its spaces and line ends. `bpe` puts no space before the
    first word, `word` has tokens for all white space but single spaces between words, and there is no NFC. `char` is
    always exact.
    lines: for language models: each line is a text of its own, followed by END.
    nfd: for `char`: letters are taken apart, é into e and its accent, 한 into three.
    marks: for `word` that is not exact: punctuation marks are tokens of their own, not part of the word before.
    """

    kind: Literal["bpe", "word", "char", "wordpiece"] = "bpe"
    size: int = 10_000
    lowercase: bool = False
    nfc: bool = True
    joint: bool = True
    min_count: int = 2
    exact: bool = False
    lines: bool = False
    marks: bool = False
    nfd: bool = False

    def __post_init__(self) -> None:
        refuse(self.kind not in KINDS, f"text.kind is {self.kind!r}: it must be one of {', '.join(KINDS)}")
        smallest = len(SPECIALS) + (BYTES if self.kind == "bpe" else 1)
        if self.size < smallest:
            raise InputError(f"text.size is {self.size}: a {self.kind} vocabulary needs at least {smallest} entries")
        refuse(self.min_count < 1, f"text.min_count is {self.min_count}: it must be at least 1")
        if self.marks and (self.kind != "word" or self.exact):
            raise InputError("text.marks splits words from punctuation: it needs text.kind=word and text.exact=false")
        refuse(
            self.nfd and self.kind != "char",
            f"text.nfd takes characters apart: it needs text.kind=char, not {self.kind}",
        )


@dataclass(frozen=True)
class Symbols:
    """The ids that stand around a text which a model writes: headway's own, or those of a model from elsewhere.

    start: what a decoder is given before its first word. end: what it ends with. never: what is not written at all.
    first: what every text begins with, such as the token of its language (None: anything).
    """

    start: int = START
    end: int = END
    never: tuple[int, ...] = ()
    first: int | None = None


@final
class Tokenizer(Codec):
    """encode: text → ids without special tokens; decode: ids → text, without PAD, START and END."""

    # Specials by their role, as every tokenizer has them (see `headway.text.codec`).
    pad, start, end, unknown = PAD, START, END, UNKNOWN
    stops = frozenset({END})
    opening: tuple[int, ...] = ()
    closing: tuple[int, ...] = (END,)
    chat: Chat | None = None

    def __init__(self, inner: tokenizers.Tokenizer):
        self.inner = inner
        # The library does not save this setting; without it "</s>" in a user's text would end the sentence.
        self.inner.encode_special_tokens = True
        of_letters: Literal["char", "bpe"] = "char" if isinstance(inner.decoder, decoders.Fuse) else "bpe"
        self.kind = of_letters if isinstance(inner.model, models.BPE) else "word"
        # Whether spaces and line ends come back as they were.
        cut = inner.pre_tokenizer
        prefixed = getattr(cut, "add_prefix_space", None)
        self.exact = cut is None or isinstance(cut, pre_tokenizers.Sequence) or prefixed is False

    @classmethod
    def train(cls, lines: Iterable[str], options: TextOptions) -> "Tokenizer":
        """Learn a vocabulary. The same lines and options give the same file, byte for byte."""
        refuse(
            options.kind == "wordpiece", "text.kind=wordpiece is for masked words (headway train bert): set bpe or word"
        )
        chunks = chunked(lines, blank=options.exact or options.kind == "char")
        first = next(chunks, None)
        if first is None:
            raise InputError("there is no text to learn a vocabulary from: every line is empty")
        inner = {"bpe": _train_bpe, "word": _train_words, "char": _train_characters}[options.kind]
        return cls(inner(chain([first], chunks), options))

    @classmethod
    def of_words(cls, words: Iterable[str], options: TextOptions) -> "Tokenizer":
        """A vocabulary of these words, in this order, after the special tokens."""
        return cls(_known_words(words, options))

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """The tokenizer in the text of a `tokenizer.json`; its first entries must be headway's special tokens."""
        try:
            inner = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception
            raise InputError(f"not a tokenizer.json: {error}") from error
        found = tuple(inner.id_to_token(i) for i in range(len(SPECIALS)))
        refuse(found != SPECIALS, f"the first entries of the vocabulary are {found}, expected {SPECIALS}")
        return cls(inner)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"no tokenizer at {path}: a model folder has its tokenizer.json") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {path}: {error}") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def to_json(self) -> str:
        return str(self.inner.to_str(pretty=True))

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides how text becomes ids."""
        return hashed(self.to_json())

    @cached_property
    def template(self) -> tokenizers.Tokenizer:
        """START text END, of a pair START text END text END."""
        framed = tokenizers.Tokenizer.from_str(self.to_json())
        framed.encode_special_tokens = True
        framed.post_processor = enclosed(framed, SPECIALS[START], SPECIALS[END], f"$B:1 {SPECIALS[END]}:1")
        return framed

    def __len__(self) -> int:
        return int(self.inner.get_vocab_size())

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Tokenizer.from_json, (self.to_json(),)

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]:
        kept = [[i for i in self._checked(ids) if i > END] for ids in batch]
        if self.kind == "word" and self.exact:
            return [_spaced(str(self.inner.id_to_token(i)) for i in ids) for ids in kept]
        texts: list[str] = self.inner.decode_batch(kept, skip_special_tokens=False)
        # `encode` puts a space before the first word, so that a word has the same tokens everywhere in a text.
        return [text.removeprefix(" ") for text in texts] if self.kind == "bpe" and not self.exact else texts

    def tokens(self, ids: Iterable[int]) -> list[str]:
        known = self._checked(ids)
        if self.kind != "word":
            return super().tokens(known)
        words = [str(self.inner.id_to_token(i)) for i in known]
        return [readable(word.encode("utf-8")) if word.isspace() else word for word in words]

    def labels(self, ids: Iterable[int]) -> list[str]:
        return self.tokens(ids) if self.kind == "word" else super().labels(ids)

    def words(self, ids: Iterable[int]) -> tuple[list[str], list[int]]:
        if self.kind == "word":
            return (words := self.tokens(ids)), list(range(len(words)))
        return super().words(ids)

    def is_special(self, i: int) -> bool:
        return i < len(SPECIALS)

    def _begins(self, raw: bytes, before: bytes) -> bool:
        """A token that is only a space belongs to the word after it."""
        return super()._begins(raw, before) and not before.isspace()

    def _raw(self, i: int) -> bytes:
        """The bytes of a token."""
        token = str(self.inner.id_to_token(i))
        if i < len(SPECIALS) or self.kind != "bpe":
            return token.encode("utf-8")
        return bytes(BYTE_OF[letter] for letter in token)

    def _checked(self, ids: Iterable[int]) -> list[int]:
        """Plain ints, all of them in the vocabulary: the library would drop the others silently."""
        plain = [int(i) for i in ids]
        size = len(self)
        for i in plain:
            if not 0 <= i < size:
                raise InputError(f"id {i} is not in the vocabulary of {size} entries: another model's tokenizer?")
        return plain


def _train_bpe(chunks: Iterator[list[str]], options: TextOptions) -> tokenizers.Tokenizer:
    """Merge the most frequent pair of tokens repeatedly, starting from single bytes."""
    inner = tokenizers.Tokenizer(models.BPE())
    if steps := _normalizers(options):
        inner.normalizer = normalizers.Sequence(steps)
    # Its pattern splits letters from punctuation, so a learned token can never spell a special token.
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=not options.exact, use_regex=True)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=options.size,
        min_frequency=options.min_count,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(chunks, trainer)
    return inner


def _train_words(chunks: Iterator[list[str]], options: TextOptions) -> tokenizers.Tokenizer:
    """The most frequent words; every other word is UNKNOWN."""
    counting = _word_level(models.WordLevel(), options)
    # The library's trainer gives a special token that occurs as a word a second id, so they are added here.
    trainer = trainers.WordLevelTrainer(
        vocab_size=options.size, min_frequency=options.min_count, special_tokens=[], show_progress=False
    )
    counting.train_from_iterator(chunks, trainer)
    id_of = counting.get_vocab()
    words = [word for word in sorted(id_of, key=id_of.__getitem__) if word not in SPECIALS]
    refuse(not words, f"no word occurs {options.min_count} times: lower text.min_count or give more text")
    return _known_words(words[: options.size - len(SPECIALS)], options)


def _known_words(words: Iterable[str], options: TextOptions) -> tokenizers.Tokenizer:
    vocabulary = {entry: i for i, entry in enumerate([*SPECIALS, *words])}
    inner = _word_level(models.WordLevel(vocabulary, unk_token=SPECIALS[UNKNOWN]), options)
    inner.add_special_tokens(list(SPECIALS))
    return inner


def _word_level(model: models.WordLevel, options: TextOptions) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(model)
    # A special token that is spelled out in a text is an unknown word.
    inside = NOT_SPACE if options.exact else r"\S"
    specials_in_text = Regex(rf"(?<!{inside})(?:{'|'.join(SPECIALS)})(?!{inside})")
    steps = _normalizers(options)
    if options.marks:  # which splits the brackets of a special token from its letters
        inner.pre_tokenizer = pre_tokenizers.Split(Regex(WORD_OR_MARK), "removed", invert=True)
    else:
        steps.append(normalizers.Replace(specials_in_text, SPECIALS[UNKNOWN]))
        inner.pre_tokenizer = _words_and_other_space() if options.exact else pre_tokenizers.WhitespaceSplit()
    inner.normalizer = normalizers.Sequence(steps)
    return inner


def _train_characters(chunks: Iterator[list[str]], options: TextOptions) -> tokenizers.Tokenizer:
    """Every character, in the order of their codes; if they are too many, the most frequent. The others are UNKNOWN."""
    steps = [
        step for step, on in ((normalizers.Lowercase(), options.lowercase), (normalizers.NFD(), options.nfd)) if on
    ]
    changed = normalizers.Sequence(steps) if len(steps) > 1 else steps[0] if steps else None
    counts: Counter[str] = Counter()
    for chunk in chunks:
        text = "".join(chunk)
        counts.update(changed.normalize_str(text) if changed else text)
    refuse(not "".join(counts).strip(), "there is no text to learn a vocabulary from: it is all white space")
    frequent = sorted(counts, key=lambda letter: (-counts[letter], letter))[: options.size - len(SPECIALS)]
    vocabulary = {entry: i for i, entry in enumerate([*SPECIALS, *sorted(frequent)])}
    # BPE without merges: the library then splits into characters without a regular expression, four times as fast.
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token=SPECIALS[UNKNOWN], fuse_unk=False))
    if changed:
        inner.normalizer = changed
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(list(SPECIALS))
    return inner


def _words_and_other_space() -> pre_tokenizers.PreTokenizer:
    """A single space between words is implicit; every other run of white space is a token."""
    between = pre_tokenizers.Split(Regex(rf"(?<={NOT_SPACE}) (?={NOT_SPACE})"), "removed")
    return pre_tokenizers.Sequence([between, pre_tokenizers.Split(Regex(rf"{SPACE}+"), "isolated")])


def _spaced(words: Iterable[str]) -> str:
    """The text that `_words_and_other_space` has split."""
    parts: list[str] = []
    for word in words:
        if parts and not parts[-1].isspace() and not word.isspace():
            parts.append(" ")
        parts.append(word)
    return "".join(parts)


def _normalizers(options: TextOptions) -> list[normalizers.Normalizer]:
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if options.lowercase else []
    # NFC comes last: lower-casing can take a composed letter apart (İ).
    return [*steps, normalizers.NFC()] if options.nfc and not options.exact else steps


def chunked(lines: Iterable[str], blank: bool = False) -> Iterator[list[str]]:
    """Lines with text, or `blank` ones too, in lists: a call into Python for each line is slow."""
    kept = (line for line in lines if line and (blank or not line.isspace()))
    while chunk := list(islice(kept, LINES_AT_ONCE)):
        yield chunk


def _byte_of_letter() -> dict[str, int]:
    """GPT-2's table: a byte that is printable stands for itself, the others for letters from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(BYTES) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(BYTES + n): byte for n, byte in enumerate(others)}


BYTE_OF = _byte_of_letter()
