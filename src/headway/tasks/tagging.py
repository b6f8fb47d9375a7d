"""Tagging: a tag of each word of a text, by an encoder with a head for words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from textwrap import shorten
from typing import Any, ClassVar, get_args

import numpy as np
import torch

from headway.batch import IGNORED, TextInputs
from headway.card import Loaded
from headway.data import tagged
from headway.data.labelled import listed
from headway.data.replaced_words import ReplacedWords, words_once
from headway.data.tag_schemes import OUTSIDE, Scheme, rewritten, scheme_of, types_of
from headway.data.tagged import Sentence, TaggedBatch, TaggedStore, align, aligned
from headway.data.tagged_files import (
    WORD,
    Given,
    TagColumns,
    has_columns,
    read_given,
    read_tagged,
    refuse_unknown_tags,
)
from headway.errors import InputError, refuse
from headway.evaluate.entities import EntityScores, TagJudge
from headway.generate.encoder import Encoder, Tagged
from headway.generate.one_or_many import is_text, one_or_many
from headway.models import blank_letters
from headway.models.configs import letters
from headway.tasks.encoding import answered
from headway.tasks.files import DividedFiles
from headway.tasks.labelling import TextLabelling
from headway.tasks.objective import Labels
from headway.tasks.start import RunContext, starts_from_vectors
from headway.tasks.task import Figure, Prediction, Report, entropy, random_ids, refuse_unknown
from headway.text.framing import Framed
from headway.text.tokenizer import SPECIALS, UNKNOWN, TextOptions

SCHEMES: tuple[str, ...] = get_args(Scheme)
COLUMN_OPTIONS = ("text_column", "label_column")


@dataclass(frozen=True)
class TaggedText(DividedFiles):
    """Sentences with a tag for each word: files (CoNLL's columns, .conllu, or .jsonl), or names of a data set below
    HEADWAY_DATA.

    Without `valid`, the share `hold_out` of the training sentences is. text: for a vocabulary of its own, where the run
    starts from nothing; capitals mark names, so case is kept. text_column, label_column: where words and tags stand, as
    numbers from 1 on, names of CoNLL-U's columns or keys of JSON objects (nothing: first and last column, form and
    upos, words and tags). scheme: of the chunks that the model learns, whatever the files have. unknown: the share of
    the words that occur once which each training batch reads as unknown, for a vocabulary of words. beside: a further
    column that the model reads with the letters of each word, such as its part of speech.
    """

    name: ClassVar[str] = "tagged-text"
    wanted: ClassVar[str] = "FILE (CoNLL's columns, .conllu, or .jsonl with words and tags)"
    text: TextOptions = field(default_factory=TextOptions)
    text_column: tuple[str, ...] = ()
    label_column: str = ""
    scheme: Scheme = "bio"
    unknown: float = 0.0
    beside: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(not 0 <= self.unknown <= 1, f"data.unknown must lie between 0 and 1, not {self.unknown}")
        refuse(
            self.unknown and self.text.kind != "word",
            f"data.unknown replaces words that occur once: set data.text.kind=word, not {self.text.kind}",
        )
        columns_of(self.text_column, self.label_column)


@dataclass(frozen=True)
class WordLabels(Labels):
    """The loss of a head for words, per word. `judge`: the figure by which the best weights are chosen: F1 of whole
    entities, the share of words with their own tag, or `auto`: F1 where the tags mark entities."""

    name: ClassVar[str] = "word-labels"
    judge: TagJudge = "auto"  # type: ignore[assignment]


class Tagger(Encoder):
    """Of a model that was trained on given words: a text's words are what white space separates."""

    @one_or_many(is_text)
    def tag(self, texts: Sequence[str], *, truncate: bool = False) -> list[list[Tagged]]:
        refuse_texts(self)
        framed = self._framed(texts, truncate, spans=True)
        words = [[found.span() for found in WORD.finditer(text)] for text in texts]
        return self.tagged(texts, [align(one, spans) for one, spans in zip(framed, words, strict=True)])


class Tagging(TextLabelling):
    """Evaluated by the entities that it finds in held-out sentences, or by the words with their own tag."""

    unit = "words"
    name = "tagging"
    data = TaggedText
    objectives = (WordLabels,)
    headline = ("f1", True)
    spans = True
    options = ("truncate", "conll", "tag_scheme")

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        share, seed = run.data.unknown, run.engine.seed
        texts = (one.ids for one in self.stores["train"].framed)
        if share:
            self.changes = ReplacedWords(words_once(texts, len(SPECIALS)), UNKNOWN, share, seed)

    @classmethod
    def check(cls, run: Any) -> None:
        known = run.init and not starts_from_vectors(run)
        refuse(run.data.unknown and known, f"data.unknown has no meaning for the vocabulary of {run.init}: set it to 0")
        spells = letters(run.model)
        refuse(run.data.beside and not spells, "data.beside is read with the letters of words: set model.letters too")

    def open_parts(self) -> dict[str, list[Sentence]]:
        parts = self.divided(self._read, tagged.hold_out_tagged)
        self.labels = tagged.labels_of([sentence for part in parts.values() for sentence in part])
        self.log.say(f"tags ({listed(self.labels)}), words: {shorten(parts['train'][0].text, 60, placeholder=' …')}")
        known = set(tagged.labels_of(parts["train"]))
        for part, sentences in parts.items():
            if new := [label for label in tagged.labels_of(sentences) if label not in known]:
                self.log.say(f"warning: {part}: no training sentence has these tags ({listed(new)})")
        refuse(len(self.labels) < 2, f"every word has the tag '{self.labels[0]}': at least two tags are needed")
        if self.run.objective.judge == "f1" and not types_of(self.labels):
            raise InputError(f"no tag begins with B- or I- ({', '.join(self.labels[:5])} …), so there are no "
                             "entities: set objective.judge=accuracy")  # fmt: skip
        return parts

    def _read(self, files: list[Any]) -> list[Sentence]:
        data = self.run.data
        columns = replace(columns_of(data.text_column, data.label_column), beside=data.beside)
        found = read_tagged(files, columns, data.scheme)
        if not data.label_column:
            tagged.refuse_swapped(found, files)
        return found

    def store(self, part: str, texts: Sequence[Sentence], framed: Sequence[Framed]) -> TaggedStore:
        number_of = {label: number for number, label in enumerate(self.labels)}
        return TaggedStore(texts, framed, number_of, self.tokenizer.pad or 0)

    def amount(self, texts: Sequence[Sentence]) -> str:
        return f"{super().amount(texts)}, {sum(len(sentence.words) for sentence in texts):,} words"

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        found, name = figures_of(self.scores("valid"), self.labels), self.run.objective.judge
        name = next(iter(found)) if name == "auto" else name
        return name, Figure(found[name], True, 4)

    def final_figures(self) -> dict[str, Any]:
        found = figures_of(self.scores("test"), self.labels) if "test" in self.held else {}
        return {f"test {name}": round(value, 4) for name, value in found.items()}

    @torch.no_grad()
    def scores(self, part: str) -> EntityScores:
        self.model.eval()
        store, found = self.stores[part], dict[int, list[str]]()
        for whole in self.held[part].epoch():
            batch = whole.map(lambda tensor: tensor.to(self.context.device))
            label_BT, _ = self.model.head.tags(self.model.encode(batch.inputs), batch.labels_BT != IGNORED)
            for example, labels in zip(batch.examples, label_BT.tolist(), strict=False):  # empty rows are no example
                found[example] = store.named(example, labels, self.labels)
        true = [sentence.labels for sentence in store.sentences]
        return EntityScores.of(true, [found[number] for number in range(len(found))])

    def shown(self, example: int) -> str:
        return self.stores["train"].sentences[example].text

    def guess(self) -> float:
        labels = np.array([label for row in self.stores["train"].labels for label in row])
        return entropy(np.bincount(labels[labels != IGNORED]))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> TaggedBatch:
        ids = random_ids(run, size, device)
        inputs = TextInputs(ids, letters_BTC=blank_letters(run.model, ids))
        return TaggedBatch(inputs.with_lengths(), torch.ones_like(ids))

    @staticmethod
    def opens(loaded: Loaded, device: torch.device, dtype: torch.dtype) -> Encoder:
        """A model that headway trained gets its words as its data gave them, another as its tokenizer divides them."""
        return (Tagger if loaded.card.run else Encoder)(loaded, device, dtype)

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        """Words with or without tags where a file's name says so, else texts. With a column for the words any file has
        columns, of which no other is read."""
        files = [file for file in inputs if columns or has_columns(file)]
        if not files:
            refuse(columns, "--text-column needs a file: headway predict MODEL FILE --text-column 1")
            return super().read(inputs, texts, lines)
        refuse(texts, "--text and a file were both given: pass one of them")
        refuse(len(files) < len(inputs), f"{inputs[0]} and {inputs[-1]} are of two kinds: give files of one kind")
        wanted = columns_of(columns, "", required=False)
        found = [given for file in files for given in read_given(file, wanted)]
        refuse(not found, f"{', '.join(files)}: there is no sentence in it")
        return [replace(given, tags=()) for given in found] if columns else found

    @classmethod
    def answer(cls, model: Encoder, values: Sequence[str | Given], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse_unknown(options, cls.options, "a model that tags words")
        scheme = options.get("tag_scheme", "bio")
        refuse(scheme not in SCHEMES, f"--tag-scheme must be {' or '.join(SCHEMES)}, not {scheme}")
        found = answered(values, lambda asked: _asked(model, asked, "truncate" in options))
        for value, words in zip(values, found, strict=True):
            if scheme != scheme_of(model.labels):
                tags = rewritten([word.label for word in words], scheme)
                words = [replace(word, label=tag) for word, tag in zip(words, tags, strict=True)]
            true = () if isinstance(value, str) else rewritten(value.tags, scheme)
            yield _prediction(value if isinstance(value, str) else value.text, words, true, "conll" in options)

    @classmethod
    def evaluate(cls, model: Encoder, files: Sequence[str], options: dict[str, Any]) -> Report:
        """F1, precision and recall of the entities that an encoder finds in these sentences, cut where they are longer
        than it takes, as they were in training; of tags that mark no entities the accuracy."""
        refuse_unknown(options, COLUMN_OPTIONS, "a model that tags words")
        data = data_of(model)
        words_in, tags_in = (options.get(name) or data.get(name) for name in COLUMN_OPTIONS)
        columns = replace(columns_of(tuple(words_in or ()), str(tags_in or "")), beside=str(data.get("beside", "")))
        sentences = read_tagged(list(files), columns, scheme_of(model.labels), model.labels)
        given = [[word.label for word in words] for words in tags_of(model, sentences, truncate=True)]
        found = EntityScores.of([sentence.labels for sentence in sentences], given)
        figures = figures_of(found, model.labels)
        rows = [f"{name:<22}  {value:.4f}" for name, value in figures.items()]
        counted = f"{len(sentences):,} sentences, {found.words:,} words"
        entities = f", {found.true:,} entities" if "f1" in figures else ""
        return Report(asdict(found) | figures, [*rows, counted + entities])


def columns_of(words: Sequence[str], tags: str, required: bool = True) -> TagColumns:
    refuse(len(words) > 1, f"--text-column takes the one column with the words, not {len(words)}")
    return TagColumns(words[0] if words else "", tags, required)


def refuse_texts(model: Encoder) -> None:
    """Refuse texts where a model reads more of a word than is written there."""
    beside = data_of(model).get("beside", "")
    refuse(beside, f"this model reads column {beside} of a file beside the words: give a file with columns (.conll)")


def data_of(model: Encoder) -> dict[str, Any]:
    """The settings of the data that a model was trained with; of one from elsewhere there are none."""
    run = model.card.run
    return dict(run.get("data", {})) if isinstance(run, dict) else {}


def figures_of(scores: EntityScores, labels: Sequence[str]) -> dict[str, float]:
    """The figures that these tags have, the one that a model is chosen by first."""
    figures = scores.figures()
    return figures if types_of(labels) else {"accuracy": figures["accuracy"]}


def tags_of(model: Encoder, sentences: Sequence[Sentence], truncate: bool) -> list[list[Tagged]]:
    """A tag for each of the given words; one that is cut off, or has no token, is in no chunk."""
    texts = [sentence.text for sentence in sentences]
    framed = model.framed(texts, truncate)
    fitted = [aligned(one, sentence) for one, sentence in zip(framed, sentences, strict=True)]
    found = []
    for sentence, words in zip(sentences, model.tagged(texts, fitted), strict=True):
        tagged_at = {word.start: word for word in words}
        spans = zip(sentence.words, sentence.spans, strict=True)
        found.append([tagged_at.get(start, Tagged(word, start, end, OUTSIDE, 0.0)) for word, (start, end) in spans])
    return found


def _asked(model: Encoder, values: list[Any], truncate: bool) -> list[list[Tagged]]:
    """The tagged words of texts, or of given words, whose own tags the model must know."""
    beside = str(data_of(model).get("beside", ""))
    if not values or isinstance(values[0], str):
        return model.tag(values, truncate=truncate)
    for given in values:
        refuse_unknown_tags(given, model.labels)
    sentences = [Sentence(given.words, given.tags, given.column(beside) if beside else ()) for given in values]
    return tags_of(model, sentences, truncate)


def _prediction(text: str, words: Sequence[Tagged], true: Sequence[str], conll: bool) -> Prediction:
    """As a line or, with `conll`, a line for each word: the word, its true tag where there is one, and the model's."""
    labels = [asdict(word) | {"probability": round(word.probability, 6)} for word in words]
    values: dict[str, Any] = {
        "text": text,
        "words": [word.text for word in words],
        "tags": [word.label for word in words],
    }
    values |= ({"true": list(true)} if true else {}) | {"labels": labels}
    if not conll:
        return Prediction(" ".join(f"{word.text}/{word.label}" for word in words), values)
    middle = [f"\t{tag}" for tag in true] or [""] * len(words)
    rows = [f"{word.text}{tag}\t{word.label}\n" for word, tag in zip(words, middle, strict=True)]
    return Prediction("".join(rows), values)
