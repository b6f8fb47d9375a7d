"""Sequence to sequence: sentence pairs, batches by length, judged by BLEU."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar

import torch

from headway.batch import TextInputs, TokenBatch, sampled
from headway.card import Card, Loaded
from headway.data.batches import Frame, pair_batches
from headway.data.catalog import cache_folder
from headway.data.readers import read_pairs
from headway.data.split import held_out, split_corpus
from headway.data.store import SIDES, PairStore, prepare, train_tokenizers
from headway.errors import InputError, refuse
from headway.evaluate.bleu import bleu_by_length, check_tokenizer, corpus_bleu, score
from headway.generate.translator import Translator
from headway.nn.embedding import ForcedFirst
from headway.plain import to_plain
from headway.processors.text import TextProcessor
from headway.tasks.files import PARTS, DataFiles, found, listed, vocabularies
from headway.tasks.objective import CrossEntropy, HeadCrossEntropy, RDrop
from headway.tasks.start import RunContext, earlier_model
from headway.tasks.task import Figure, Prediction, Report, Task, entropy, random_ids, refuse_unknown, with_perplexity
from headway.text.codec import Codec
from headway.text.tokenizer import TextOptions

RESAMPLES = 1000  # for the confidence interval of an evaluation
AT_ONCE = 512  # sentences that are translated before the first is shown
SEARCH = {"beam_size": "beam", "length_penalty": "length_penalty", "batch_size": "batch"}  # option: setting


@dataclass(frozen=True)
class ParallelText(DataFiles):
    """Sentence pairs: files of one's own, or names of a data set that headway knows.

    Without `valid`, about `hold_out` training pairs are held out for it and as many for `test`, chosen by a hash
    of the source, so that no held-out sentence is ever trained on. swapped: of each pair what stands second is the
    source.
    """

    name: ClassVar[str] = "parallel-text"
    wanted: ClassVar[str] = "SOURCE TARGET (two aligned files), a .tsv or a .jsonl"
    source: str = "source"
    target: str = "target"
    hold_out: int = 1000
    swapped: bool = False
    text: TextOptions = field(default_factory=TextOptions)

    def sides(self) -> tuple[TextOptions, TextOptions]:
        """How source and target become ids."""
        return self.text, self.text

    def __post_init__(self) -> None:
        refuse(self.hold_out < 1, f"data.hold_out must be at least 1, not {self.hold_out}")
        wrong = self.swapped and (self.valid or self.test)
        refuse(wrong, "data.swapped turns round pairs of which some are held out: with --valid name SOURCE TARGET")


class Led:
    """A tokenizer whose texts begin with one more token."""

    def __init__(self, codec: Any, first: int) -> None:
        self.codec, self.first = codec, first

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["codec"], name)

    def __len__(self) -> int:
        return len(self.codec)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self.first, *ids] for ids in self.codec.encode_batch(texts)]

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]


def _opened(loaded: Loaded, device: torch.device, dtype: torch.dtype) -> Translator:
    """A translator; where every target begins with the same token, it writes that first, and reads it before a target
    that it is given."""
    first = loaded.card.symbols.first
    if first is not None:
        model: Any = loaded.model
        model.head = ForcedFirst(model.head, first)
        *others, (name, last) = loaded.processors.items()
        led: Any = TextProcessor(last.config, Led(last.tokenizer, first))
        loaded = Loaded(model, loaded.card, dict(others) | {name: led})
    return Translator(loaded, device, dtype)


class Translation(Task):
    """Judged by BLEU with the run's own search. what: a model of the task, in messages; made: what it writes."""

    name = "translation"
    data = ParallelText
    objectives = (CrossEntropy, RDrop, HeadCrossEntropy)
    roles = ("steps",)
    takes = SIDES
    headline = ("BLEU", True)
    verb = "translate"
    what: ClassVar[str] = "a translator"
    made: ClassVar[str] = "translation"
    opens = staticmethod(_opened)
    shown_losses = with_perplexity

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        with context.ranks.in_turn():
            self.files = self._files()
            self.tokenizers = self._tokenizers(earlier)
            self.stores = {part: self._encoded(part) for part in ("train", "valid")}
        self.data_names = {part: store.folder.name for part, store in self.stores.items()}
        symbols, search = earlier.card.symbols if earlier else None, to_plain(run.search)
        languages = (run.data.source, run.data.target)
        self.begin(self.tokenizers, earlier, languages=languages, symbols=symbols, search=search)
        loaded = Loaded(self.model, self.card, self.processors)
        self.translator = Translator(loaded, context.device, context.dtype)
        frame = framed(self.card, self.tokenizers[0])
        batch, seed, captured = run.engine.batch, run.engine.seed, context.device.type == "cuda"
        longest = run.max_length
        self.batches = pair_batches(self.stores["train"], batch, seed, frame=frame, full=captured, longest=longest)
        self.valid = pair_batches(self.stores["valid"], 4 * batch, 0, shuffle=False, frame=frame, longest=longest)
        self.valid_texts = tuple(side[: run.validation.sentences or None] for side in self._texts("valid"))
        # Read now: what is wrong with a test file should not be found out after hours of training.
        self.test_texts = self._texts("test") if self.files.get("test") else ([], [])

    def _files(self) -> dict[str, list[Path]]:
        """The files of each part; where there is no validation text, some training pairs are held out for it."""
        data, context = self.run.data, self.context
        files = {part: found(names, context) for part, names in data.parts().items()}
        for part in PARTS[1:]:  # a fault there is reported now, not after everything has been encoded
            if part in files:
                deque(read_pairs(files[part], data.source, data.target), maxlen=0)
        if "valid" in files:
            return files
        if context.ranks.first:
            names = data.source, data.target
            split_corpus(files["train"], context.out / "data", data.hold_out, *names, data.swapped)
        held = {part: list(paths) for part, paths in held_out(context.out / "data").items()}
        return held | ({"test": files["test"]} if "test" in files else {})

    def _tokenizers(self, earlier: Loaded | None) -> tuple[Any, Any]:
        if earlier is not None:
            return earlier.source_tokenizer, earlier.target_tokenizer
        data = self.run.data
        learn = partial(
            train_tokenizers, self.files["train"], data.text, source=data.source, target=data.target,
            target_options=data.sides()[1],
        )  # fmt: skip
        found = vocabularies(self.context, learn, ["joint"] if data.text.joint else SIDES)
        return found[0], found[-1]

    def _encoded(self, part: str) -> PairStore:
        data, log, source = self.run.data, self.log, self.tokenizers[0]
        longest = self.run.max_length - max(1, len(source.opening) + len(source.closing))
        with log.bar(f"encoding {part}", None, " pairs") as show:
            store = prepare(
                self.files[part], *self.tokenizers, cache_folder() / "stores", max_length=longest,
                source=data.source, target=data.target, progress=show,
            )  # fmt: skip
        tokens = int(store.source.lengths.sum()), int(store.target.lengths.sum())
        before = " (encoded before)" if store.reused else ""
        log.say(f"{part}: {len(store):,} pairs, {tokens[0]:,} + {tokens[1]:,} tokens{before}")
        log.event("data", part=part, pairs=len(store), skipped=store.skipped, too_long=store.too_long)
        if count := store.skipped["too_long"]:
            which = listed(store.too_long, count)
            log.say(f"{part}: {count:,} pairs longer than {longest} tokens left out (pairs {which})")
        if count := store.skipped["empty"]:
            log.say(f"{part}: {count:,} pairs with an empty side left out")
        return store

    def _texts(self, part: str) -> tuple[list[str], list[str]]:
        """The pairs of a part as text, without those whose source is longer than the model takes."""
        pairs = list(read_pairs(self.files[part], self.run.data.source, self.run.data.target))
        limit = self.translator.source_limit
        fits = [len(ids) <= limit for ids in self.translator.encode([source for source, _ in pairs])]
        too_long = [number for number, fit in enumerate(fits, 1) if not fit]
        if too_long:
            which = listed(too_long, len(too_long))
            self.log.say(f"{part}: {len(too_long):,} sources longer than {limit} tokens are not scored (pairs {which})")
            self.log.event("scored", part=part, pairs=sum(fits), too_long=too_long)
        kept = list(compress(pairs, fits))
        return [source for source, _ in kept], [target for _, target in kept]

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        return "BLEU", Figure(self._bleu(*self.valid_texts), True, 2)

    def final_figures(self) -> dict[str, Any]:
        if not self.test_texts[0]:
            return {}
        translated, tokenize = self.translated(*self.test_texts), self.run.validation.tokenize
        rows = bleu_by_length(*translated, tokenize)
        self.log.event("breakdown", figure="test BLEU", by="words of the source", rows=rows)
        return {"test BLEU": round(corpus_bleu(*translated[1:], tokenize), 2)}

    def _bleu(self, sources: list[str], references: list[str]) -> float:
        return corpus_bleu(*self.translated(sources, references)[1:], self.run.validation.tokenize)

    def translated(self, *texts: list[str]) -> tuple[list[str], list[str], list[str]]:
        """The sources that are scored (some of them, where a run has little time), what the present weights write, and
        the references."""
        sources, references = (list(sampled(side, self.share)) for side in texts)
        with self.log.bar("translating", len(sources), " sentences") as show:
            found = self.translator.translate_n(sources, progress=show)
        return sources, [hypotheses[0].text if hypotheses else "" for hypotheses in found], references

    def example(self) -> str:
        source = self.valid_texts[0][0]
        return f"{source} → {self.translator.translate([source])[0]}"

    def shown(self, example: int) -> str:
        return str(self.tokenizers[0].decode(self.stores["train"].source[example].tolist()))

    def guess(self) -> float:
        return entropy(self.stores["train"].target_counts(self.card.symbols.end))

    @classmethod
    def check(cls, run: Any) -> None:
        check_tokenizer(run.validation.tokenize)
        refuse(run.data.text.lines, "data.text.lines is for plain text: each line of a pair is a sentence anyway")

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> TokenBatch:
        ids = random_ids(run, size, device)
        return TokenBatch(ids, ids, inputs=TextInputs(ids))

    @classmethod
    def written(cls, model: Translator, texts: Sequence[str], search: dict[str, Any]) -> list[str]:
        """What an opened model makes of each text."""
        found: list[str] = model.translate(texts, **search)
        return found

    @classmethod
    def answer(cls, model: Translator, values: Sequence[str], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse_unknown(options, ("beam_size",), cls.what)
        search = search_options(options)
        for start in range(0, len(values), AT_ONCE):
            texts = values[start : start + AT_ONCE]
            for text, made in zip(texts, cls.written(model, texts, search), strict=True):
                yield Prediction(" ".join(made.split()), {"text": text, cls.made: made})

    @classmethod
    def evaluate(cls, model: Translator, files: Sequence[str], options: dict[str, Any]) -> Report:
        """BLEU and chrF of the translations of these pairs. `keep` is called with the translations."""
        refuse_unknown(options, ("tokenize", "lowercase", "bootstrap", *SEARCH, "keep"), cls.what)
        pairs = list(read_pairs(list(files), model.card.reads.language, model.card.writes.language))
        texts = model.translate([source for source, _ in pairs], **search_options(options))
        if "keep" in options:
            options["keep"](texts)
        how: dict[str, Any] = {"bootstrap": RESAMPLES}
        how |= {name: options[name] for name in ("tokenize", "lowercase", "bootstrap") if name in options}
        found = score(texts, [target for _, target in pairs], **how)
        return Report(found.to_dict(), found.lines())


def search_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a search, under the names that a translator has for them."""
    return {name: options[option] for option, name in SEARCH.items() if option in options}


def framed(card: Card, source: Codec) -> Frame:
    """The ids around the two sides of a pair for this model."""
    if source.filled:
        raise InputError(
            f"headway trains no model whose texts are padded to {source.filled} tokens: import it without pad_source_to"
        )
    symbols = card.symbols
    first = () if symbols.first is None else (symbols.first,)
    return Frame(source.opening, source.closing, symbols.start, symbols.end, first)
