"""Masked words: an encoder learns from running text which words were hidden, and whether a text follows another
(Devlin et al. 2019, 3.1). The same task answers what stands in a gap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from headway.batch import IGNORED, TextInputs
from headway.data.catalog import cache_folder
from headway.data.documents import Corpus, Documents
from headway.data.masked_rows import Marks, MaskedRows
from headway.data.masking import MaskedBatch, Masking, Shares
from headway.data.sentences import Cut, SentenceStore, prepare_sentences
from headway.data.split import hold_out
from headway.data.token_store import LEARNED_FROM, LEARNING_CHUNK
from headway.errors import refuse
from headway.generate.encoder import GAP, Encoder
from headway.models.protocols import Terms
from headway.plain import from_plain
from headway.tasks.encoding import Encoding, answered
from headway.tasks.files import vocabularies
from headway.tasks.language import TextFiles, found_text
from headway.tasks.objective import Config, HeadObjective, Objective
from headway.tasks.start import RunContext, earlier_model
from headway.tasks.task import Figure, Prediction, Report, entropy, random_ids, refuse_unknown
from headway.text.foreign import ForeignTokenizer
from headway.text.masked_vocabulary import learn
from headway.text.tokenizer import TextOptions

SHORTEST = 8  # tokens of a row: less has no room for two texts and a gap
SHOWN = 12  # tokens on either side of the gap that a validation shows
# What a validation logs of each mean.
NAMES = {
    "loss": "loss", "right": "accuracy", "pair": "next_sentence_loss", "pair_right": "next_sentence_accuracy",
}  # fmt: skip


@dataclass(frozen=True)
class MaskedText(TextFiles):
    """Text whose words are hidden.

    length: tokens of a row, special ones counted (at most the model's own). mask: which tokens are hidden, and how.
    sentences, documents: see `Cut`. A vocabulary of one's own is of the kind `wordpiece` or `bpe`.
    """

    name: ClassVar[str] = "masked-text"
    length: int = 128
    mask: Shares = field(default_factory=Shares)
    sentences: Literal["marks", "lines"] = "marks"
    documents: Literal["files", "blank-lines"] = "files"
    text: TextOptions = field(
        default_factory=lambda: TextOptions(kind="wordpiece", size=16_000, lowercase=True), kw_only=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(self.length < SHORTEST, f"data.length must be at least {SHORTEST}, not {self.length}")


@dataclass(frozen=True)
class MaskedLoss(Config):
    """Cross-entropy of the hidden words, and of the order of two texts where the head has it."""

    name: ClassVar[str] = "masked-words"
    objective: ClassVar[type[Objective]] = HeadObjective
    smoothing: float = 0.0


def marks_of(tokenizer: Any) -> Marks:
    """Those of the tokenizer's own template."""
    ends = tokenizer.opening, tokenizer.closing
    if getattr(tokenizer, "mask", None) is None or any(len(some) != 1 for some in ends):
        refuse(True, "the tokenizer of this model has no mask, or no token before and after a text: take a BERT")
    return Marks(ends[0][0], ends[1][0], tokenizer.pad or 0)


class MaskedWords(Encoding):
    """Judged by the loss of the hidden words of held-out text, with the same gaps each time."""

    name = "masked-words"
    data = MaskedText
    objectives = (MaskedLoss,)
    verb = "fill"

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier, data = earlier_model(run), run.data
        self.length = min(data.length, run.max_length)
        self.head = run.head
        if earlier and type(earlier.card.head) is type(run.head):
            self.head = earlier.card.head  # with the norms and activations of its own
        with context.ranks.in_turn():
            parts = self._parts()
            self.tokenizer = earlier.source_tokenizer if earlier else self._learned(parts["train"])
            self.marks = marks_of(self.tokenizer)
            self.stores = {part: self._encoded(part, corpus) for part, corpus in parts.items()}
        self.data_names = {part: store.folder.name for part, store in self.stores.items()}
        self.begin([self.tokenizer], earlier, head=self.head)
        masking, rows = Masking.of(data.mask, self.tokenizer), max(1, run.engine.batch // self.length)
        self.batches = MaskedRows(
            self.stores["train"], masking, self.marks, rows, self.length, run.engine.seed, self.head.pairs
        )
        self.held = {
            part: MaskedRows(store, masking, self.marks, rows, self.length, 0, self.head.pairs)
            for part, store in self.stores.items() if part != "train"
        }  # fmt: skip
        self.valid = self.held["valid"]

    @classmethod
    def check(cls, run: Any) -> None:
        least = f"model.max_length must be at least {SHORTEST} to hide words in a row"
        refuse(run.max_length < SHORTEST, f"{least}, not {run.max_length}")

    def _parts(self) -> dict[str, Corpus]:
        data = self.run.data
        texts = {
            part: Documents.at(found_text(names, self.context), filled=True) for part, names in data.parts().items()
        }
        if "valid" in texts:
            return {**texts}
        held = hold_out(texts.pop("train"), data.hold_out, 0.0 if texts else data.hold_out_test)
        return {**held, **texts}

    def _learned(self, corpus: Corpus) -> ForeignTokenizer:
        """A vocabulary of the training text; of more than `LEARNED_FROM` characters every k-th chunk is taken."""

        def learned() -> list[ForeignTokenizer]:
            stride = max(1, math.ceil(sum(len(chunk.text) for chunk in corpus.chunks()) / LEARNED_FROM))
            chunks = (chunk.text for chunk in corpus.chunks(LEARNING_CHUNK))
            return [learn((text for number, text in enumerate(chunks) if number % stride == 0), self.run.data.text)]

        [tokenizer] = vocabularies(self.context, learned, load=ForeignTokenizer.load)
        found: ForeignTokenizer = tokenizer
        return found

    def _encoded(self, part: str, corpus: Corpus) -> SentenceStore:
        with self.log.bar(f"encoding {part}", None, " sentences") as show:
            store = encode(corpus, self.tokenizer, self.marks, self.run.data, self.length, self.head.pairs, show)
        documents, before = store.meta["documents"], " (encoded before)" if store.reused else ""
        said = f"{documents:,} document{'s' * (documents != 1)}"
        self.log.say(f"{part}: {said}, {len(store):,} sentences, {store.tokens:,} tokens{before}")
        self.log.event("data", part=part, documents=documents, sentences=len(store), tokens=store.tokens)
        return store

    def shown_losses(self, losses: dict[str, float]) -> dict[str, float]:
        return {shown: losses[name] for name, shown in NAMES.items() if name in losses}

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        return "loss", Figure(losses["loss"])

    def final_figures(self) -> dict[str, Any]:
        """Both losses and accuracies on the validation data and on the test data."""
        objective = self.run.objective.build(self.model).eval()
        figures: dict[str, Any] = {}
        for part, rows in self.held.items():
            self.valid = rows
            long = {"valid": "validation"}.get(part, part)
            found = self.shown_losses(self.valid_losses(objective))
            figures |= {f"{long} {name.replace('_', ' ')}": round(value, 4) for name, value in found.items()}
        self.valid = self.held["valid"]
        figures.pop("validation loss")  # the figure that the weights were chosen by
        return figures

    def example(self) -> str:
        """The first gap of the validation text."""
        batch = next(self.valid.epoch()).rows(0, 1).map(lambda tensor: tensor.to(self.context.device))
        place, label = int(batch.places_BP[0, 0]), int(batch.labels_BP[0, 0])
        if label == IGNORED:
            return ""
        encoded = self.model.encode(batch.inputs)
        guess = int(self.model.head.words(encoded.x_BTD[:, place]).argmax(-1))
        ids = batch.inputs.ids_BT[0].tolist()
        ids[place] = self.tokenizer.mask
        text = self.tokenizer.decode_batch([ids[max(1, place - SHOWN) : place + SHOWN]], specials=True)[0]
        said, wanted = self.tokenizer.tokens([guess, label])
        return f"{text} → {said} (wanted: {wanted})"

    def shown(self, example: int) -> str:
        start = int(self.stores["train"].starts[example])
        last = min(start + 32, self.stores["train"].tokens)
        return str(self.tokenizer.decode(self.stores["train"].sentences.ids[start:last].tolist()))

    def guess(self) -> float:
        return entropy(self.stores["train"].counts())

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> MaskedBatch:
        ids_BT = random_ids(run, size, device, length := min(run.data.length, run.max_length))
        places_BP = torch.arange(1, max(2, 1 + round(run.data.mask.chosen * length)), device=device)
        places_BP = places_BP.expand(len(ids_BT), -1)
        pairs_B = torch.zeros_like(ids_BT[:, 0]) if run.head.pairs else None
        inputs = TextInputs(ids_BT, None, torch.zeros_like(ids_BT) if run.head.pairs else None)
        return MaskedBatch(inputs, places_BP, ids_BT.gather(1, places_BP), pairs_B, ids_BT.numel())

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        """A text with a gap may stand in the place of a file."""
        gaps = [text for text in inputs if GAP in text and not Path(text).is_file()]
        if gaps and len(gaps) == len(inputs):
            inputs, texts = [], [*gaps, *texts]
        return super().read(inputs, texts, lines, columns)

    @classmethod
    def answer(cls, model: Encoder, values: Sequence[str], options: dict[str, Any]) -> Iterator[Prediction]:
        """The most probable word of each gap and its probability; with `all` the first five."""
        refuse_unknown(options, ("truncate", "all"), "a model that fills gaps")
        found = answered(values, lambda texts: model.fill(texts, truncate="truncate" in options))
        for text, gaps in zip(values, found, strict=True):
            rows = [[[guess.text, round(guess.probability, 6)] for guess in guesses] for guesses in gaps]
            shown = (guess for guesses in gaps for guess in (guesses if "all" in options else guesses[:1]))
            line = "\t".join(f"{guess.text}\t{guess.probability:.4f}" for guess in shown)
            yield Prediction(line, {"text": text, "gaps": rows})

    @classmethod
    def evaluate(cls, model: Encoder, files: Sequence[str], options: dict[str, Any]) -> Report:
        """Both losses and accuracies on other text, cut and hidden as in the model's training."""
        refuse_unknown(options, (), "a model that fills gaps")
        stored = model.card.run.get("data", {})
        trained: Any = from_plain(MaskedText, stored) if stored.get("name") == cls.data.name else MaskedText()
        data, pairs = trained, bool(model.head.pairs)
        length, marks = min(data.length, model.limit), marks_of(model.tokenizer)
        store = encode(Documents.at(list(files), filled=True), model.tokenizer, marks, data, length, pairs)
        masking = Masking.of(data.mask, model.tokenizer)
        found = scored(model, MaskedRows(store, masking, marks, 64, length, 0, pairs))
        lines = [f"{name.replace('_', ' '):<24}{value:.4f}" for name, value in found.items()]
        return Report({**found, "tokens": store.tokens}, [*lines, f"{store.tokens:,} tokens in rows of {length}"])


def encode(
    corpus: Corpus, tokenizer: Any, marks: Marks, data: MaskedText, length: int, pairs: bool, show: Any = None
) -> SentenceStore:
    """The sentences of documents, none longer than a row of `length` tokens has room for."""
    cut = Cut(data.sentences, data.documents, length - 2 - pairs)
    return prepare_sentences(corpus, tokenizer, marks.separator, cut, cache_folder() / "stores", show)


@torch.inference_mode()
def scored(model: Encoder, rows: MaskedRows) -> dict[str, float]:
    """The means over all rows, by the names of a log."""
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for batch in rows.epoch():
        on_device = batch.map(lambda tensor: tensor.to(model.device))
        terms: Terms = model.model.head.losses(model.model.encode(on_device.inputs), on_device)
        for name, (value, _) in terms.items():
            sums[name] = sums.get(name, 0.0) + float(value)
            counts[name] = counts.get(name, 0.0) + float(batch.counts[name])
    return {shown: sums[name] / counts[name] for name, shown in NAMES.items() if name in sums}
