"""A translator: text in, text out, with scores and with the attention behind each word."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import torch

from headway.batch import TextInputs, TextRow
from headway.card import Card, Loaded
from headway.errors import InputError, TooLong, refuse
from headway.generate.attention import Attention
from headway.generate.beam_tree import tree
from headway.generate.history import Branches
from headway.generate.offline import search_all
from headway.generate.one_or_many import is_text, one_or_many
from headway.generate.request import Request
from headway.generate.saliency import source_saliency, wants_saliency
from headway.generate.sampling import Bias, Sampling
from headway.generate.search import Hypothesis, Search
from headway.generate.stepper import stepper_for
from headway.generate.tracing import Answering, check_one, checked, labels, nexts, token_track, trace_of
from headway.generate.writing import Parts, Passage, Wishes, Writing, likeliest
from headway.nn import tap
from headway.nn.tap import Choice, chosen
from headway.plain import from_plain, to_plain
from headway.text.codec import Codec
from headway.traces import Trace


@dataclass(frozen=True)
class Translation:
    text: str
    score: float
    tokens: list[str]
    token_scores: list[float]
    attention: Attention | None = None


class TextTranslator(Answering):
    """Abstract. Text in, text out; how translations are searched for is left open."""

    def __init__(self, card: Card, source_tokenizer: Codec, target_tokenizer: Codec) -> None:
        """`limit`: the most tokens of a translation, its end not counted. `source_limit`: those of a text."""
        self.card, self.symbols, self.limit = card, card.symbols, int(card.config.max_length) - 1
        self.tokenizers = self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        around = len(source_tokenizer.opening) + len(source_tokenizer.closing)
        self.source_limit = self.limit + 1 - max(1, around)
        filled = source_tokenizer.filled
        refuse(filled > self.limit + 1, f"texts are padded to {filled} tokens, this model reads {self.limit + 1}")
        self.search = from_plain(Search, card.search, "search") if card.search else Search()

    def searched(
        self, sources: list[list[int]], settings: Search, batch: int | None, progress: Callable[[int], None] | None
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, with all that stands around it."""
        raise NotImplementedError

    def attention(self, source: list[int], target: list[int]) -> Attention:
        """What a hypothesis looked at."""
        raise NotImplementedError

    @one_or_many(is_text)
    def translate(self, texts: Sequence[str], **search: Any) -> list[str]:
        """The best translation of a text, or of each text of a list, in order; an empty text gives an empty one.

        Keywords change the search: `beam=1` is greedy, `length_penalty=0.6`, … (see `Search`).
        """
        return [found[0].text if found else "" for found in self.translate_n(texts, **search)]

    @one_or_many(is_text)
    def translate_n(
        self, texts: Sequence[str], *, attention: bool = False, batch: int | None = None,
        progress: Callable[[int], None] | None = None, **search: Any,
    ) -> list[list[Translation]]:  # fmt: skip
        """The `best` translations of each text with their scores and, if `attention`, their attention.

        `batch` bounds the texts that are searched at a time; `progress` is called with the number of texts done so far.
        """
        settings = self._settings(search)
        sources = self._sources(texts)
        found = self.searched([self.framed(source) for source in sources.values()], settings, batch, progress)
        found_of = dict(zip(sources, found, strict=True))
        return [[self._translation(sources[i], h, attention) for h in found_of.get(i, ())] for i in range(len(texts))]

    def _settings(self, search: dict[str, Any]) -> Search:
        return from_plain(Search, to_plain(self.search) | search, "search")

    def _sources(self, texts: Sequence[str]) -> dict[int, list[int]]:
        """The tokens of each text that is not empty, by its place."""
        ids = self.encode(texts)
        for number, source in enumerate(ids, 1):
            self._check_length(f"sentence {number}", source, "split it", self.source_limit)
        return {i: source for i, source in enumerate(ids) if source}

    def _check_length(self, name: str, ids: list[int], advice: str, limit: int) -> None:
        if len(ids) > limit:
            raise TooLong(f"{name} has {len(ids)} tokens, this model takes at most {limit}: {advice}")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The source tokens of each text, without its end; a run of white space counts as one space, where a
        tokenizer from elsewhere has no view of its own on that."""
        if not self.card.foreign_text:
            texts = [" ".join(text.split()) for text in texts]
        return self.source_tokenizer.encode_batch(texts)

    def framed(self, source: list[int]) -> list[int]:
        return self.source_tokenizer.framed(source)

    def _translation(self, source: list[int], found: Hypothesis, attention: bool) -> Translation:
        text, tokens = self.target_tokenizer.decode(found.ids), [*found.ids, self.symbols.end]
        looked_at = self.attention(source, found.ids) if attention else None
        return Translation(text, found.score, self.target_tokenizer.tokens(tokens), found.token_scores, looked_at)


@final
class Translator(TextTranslator, Writing):
    """`headway.load(folder)` gives one: `translator.translate("He drives the car")`, or a list of texts."""

    takes: ClassVar = "target"  # besides a text: its translation, which the model otherwise writes itself

    def __init__(self, loaded: Loaded, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loaded.card, loaded.source_tokenizer, loaded.target_tokenizer)
        self.model, self.device = loaded.model.to(device, dtype).eval(), device
        self.writes, self.context = self.target_tokenizer, self.limit + 1
        self.stepper = stepper_for(self.model, device)  # kept: what it captures serves later calls

    @one_or_many(is_text)
    def sample(self, texts: Sequence[str], *, best_of: int = 1, **settings: Any) -> list[str]:
        """A translation of each text that is drawn, not searched for; of `best_of` the one of greatest mean
        log-probability. Keywords are those of `Sampling` and `Wishes`: `temperature=0.8`, `seed=1`, …"""
        found = self.sample_n(texts, samples=best_of, **settings)
        return [likeliest(passages).text if passages else "" for passages in found]

    @one_or_many(is_text)
    def sample_n(
        self, texts: Sequence[str], *, batch: int | None = None, progress: Callable[[int], None] | None = None,
        **settings: Any,
    ) -> list[list[Passage]]:  # fmt: skip
        """All `samples` of each text, with log-probabilities; none of an empty text."""
        sources = self._sources(texts)
        wishes, asked = self._sampled(sources, settings)
        found = dict(zip(sources, self.passages(asked, wishes.stop, batch, progress), strict=True))
        return [found.get(i, []) for i in range(len(texts))]

    def stream(self, text: str, **settings: Any) -> Parts:
        """A sampled translation in parts as they come; they join to what `sample` gives."""
        check_one(text)
        sources = self._sources([text])
        refuse(not sources, "there is nothing to translate: give a text that is not empty")
        wishes, [asked] = self._sampled(sources, settings)
        refuse(asked.samples != 1, f"a stream is one text, not {asked.samples}: leave out samples, or use sample_n")
        return self.streamed(asked, wishes.stop)

    def _sampled(self, sources: dict[int, list[int]], settings: dict[str, Any]) -> tuple[Wishes, list[Request]]:
        never = tuple(Bias((i,), -math.inf) for i in self.symbols.never)
        wishes, choose = self.settings(settings, Sampling(bias=never))
        refuse(not isinstance(choose, Sampling), "a beam is for translate: leave it out")
        framed = [self.framed(source) for source in sources.values()]
        # The most tokens of a translation are by default those of the model's usual search.
        return wishes, [
            Request(
                [self.symbols.start], choose,
                wishes.max_new if "max_new" in settings else self.search.longest(len(source), self.limit),
                frozenset({self.symbols.end}), wishes.samples, wishes.seed, wishes.top, inputs=TextRow(source),
            )
            for source in framed
        ]  # fmt: skip

    def choice(self, text: str) -> list[int]:
        return [*self.target_tokenizer.encode(text), self.symbols.end]

    def searched(
        self, sources: list[list[int]], settings: Search, batch: int | None = None,
        progress: Callable[[int], None] | None = None, branches: dict[int, Branches] | None = None,
    ) -> list[list[Hypothesis]]:  # fmt: skip
        return search_all(
            self.model, sources, settings, limit=self.limit, device=self.device, symbols=self.symbols,
            stepper=self.stepper, batch=batch, progress=progress, branches=branches,
        )  # fmt: skip

    def attention(self, source: list[int], target: list[int]) -> Attention:
        return Attention.of(self._traced(source, target, chosen(tensors="decoder.*.cross.weights")))

    def trace(
        self, text: str, target: str | None = None, *, layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None, tensors: Sequence[str] | str | None = None, top: int = 5, **search: Any,
    ) -> Trace:  # fmt: skip
        """What happens inside the model while this text is translated: along the best hypothesis, with the tree of
        the search in `about["beam"]`, or along a `target` of your own.

        `layers`, `heads` and `tensors` keep it small (see `headway.trace`); `top`: how many of what may come next are
        reported at each place. Other keywords change the search.
        """
        check_one(text)
        check_one(target)
        source = self.encode([text])[0] if isinstance(text, str) else []
        if not source or (target is not None and not target.strip()):
            raise InputError("there is nothing to trace: give a text that is not empty")
        choice = checked(self.model, chosen(layers, heads, tensors))
        self._check_length("sentence 1", source, "split it", self.source_limit)
        if target is not None:
            if search:
                raise InputError(f"a target was given: there is no search, and '{min(search)}' has no meaning")
            [ids] = self.target_tokenizer.encode_batch([target])
            self._check_length("the target", ids, "shorten it", self.limit)
            return self._traced(source, ids, choice, top)
        settings = self._settings(search)
        branches: dict[int, Branches] = {}
        [found] = self.searched([self.framed(source)], settings, branches=branches)
        refuse(not found, "the search found no translation (its weights may not be numbers): give a `target`")
        spelled = partial(labels, self.target_tokenizer)
        nodes = tree(branches[0], self.symbols.end, settings.length_penalty, found[0].ids, spelled)
        reported = {"beam": {"size": settings.beam, "length_penalty": settings.length_penalty, "nodes": nodes}}
        return self._traced(source, found[0].ids, choice, top, reported)

    @torch.inference_mode()
    def _traced(
        self, source: list[int], target: list[int], choice: Choice, top: int = 0, reported: dict[str, Any] | None = None
    ) -> Trace:
        """One teacher-forced pass over a hypothesis with the taps open."""
        reads, writes = self.tokenizers
        framed, read = self.framed(source), [self.symbols.start, *target]
        with tap.record(self.model, choice) as recorder:
            inputs = TextInputs(torch.tensor([framed], device=self.device))
            state = self.model.start(inputs, 1, self.device)
            ids_RT = torch.tensor([read], device=self.device)
            # Attention alone needs no logits.
            logits_RTV = self.model.logits(ids_RT, state)[0] if top else self.model.read(ids_RT, state)[0]
        before = len(reads.opening)
        special = [not before <= at < before + len(source) for at in range(len(framed))]
        tracks = [
            token_track("source", reads, framed, special, reads.decode(source)),
            token_track("target", writes, read, [True] + [False] * len(target), writes.decode(target)),
        ]
        written = [*target, self.symbols.end]
        about, more = nexts(logits_RTV[0], writes, written, top) if top else ({}, {})
        if wants_saliency(self.model, choice):
            more = more | {"saliency": (source_saliency(self.model, framed, read, written), ("target", "source"))}
        return trace_of(self.model, recorder, tracks, name=self.name, about=about | (reported or {}), more=more)
