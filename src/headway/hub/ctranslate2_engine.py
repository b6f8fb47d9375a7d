"""Translating and writing with CTranslate2 instead of headway's own steps: several times as fast on a CPU.

It takes folders that `headway export --format ctranslate2` wrote, and any model that could be exported: that one is
then converted first. What it cannot do is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import torch

from headway.errors import InputError, refuse
from headway.extras import wanted
from headway.folder import FAST_WEIGHTS, Card, find_model, open_processors, read_card, read_model
from headway.generate.attention import Attention
from headway.generate.one_or_many import is_text, one_or_many
from headway.generate.sampling import Sampling
from headway.generate.search import Hypothesis, Search
from headway.generate.shown import Shown
from headway.generate.translator import TextTranslator, Translation
from headway.hub.ctranslate2_export import engine_of, write_ctranslate2
from headway.hub.families.ctranslate2_parts import entries
from headway.text.codec import Codec
from headway.text.tokenizer import END

ENGINE = "--engine ctranslate2"
PRECISIONS = ("auto", "float32", "float16", "bfloat16", "int8")
AT_ONCE = 64  # sources that are searched together
REPORTED = 1024  # and after how many it is told how far it is


@contextmanager
def _converted(folder: str | Path, precision: str) -> Any:
    """A folder that CTranslate2 reads, with headway's card and tokenizers in it."""
    place = find_model(folder)
    if (place / FAST_WEIGHTS).is_file():
        yield place
        return
    with TemporaryDirectory(prefix="headway-ctranslate2-") as made:
        write_ctranslate2(Path(made), read_model(place), "int8" if precision == "int8" else "float32")
        yield Path(made)


def opened_engine(kind: str, folder: str | Path, device: str, precision: str) -> tuple[Any, Card, dict[str, Any]]:
    """CTranslate2's class of this name over the model in a folder, its card and its processors."""
    if device not in ("auto", "cpu"):
        raise InputError(f"{ENGINE} is for the CPU: leave --device {device} out, or leave --engine out")
    refuse(precision not in PRECISIONS, f"{ENGINE} has --dtype {', '.join(PRECISIONS)}, not {precision}")
    library = wanted("ctranslate2", "ctranslate2")
    with _converted(folder, precision) as place:
        card = read_card(place)
        if (found := engine_of(card.family)).name != kind:
            raise InputError(f"{folder} holds another kind of model: headway {found.command} {folder} takes it")
        engine = attrgetter(kind)(library)(
            str(place), device="cpu", compute_type="default" if precision == "auto" else precision,
            inter_threads=1, intra_threads=torch.get_num_threads(),
        )  # fmt: skip
        return engine, card, open_processors(place, card)


def _opened(kind: str, folder: str | Path, device: str, precision: str) -> tuple[Any, Card, Codec, Codec]:
    """A translator or a language model, with its tokenizers."""
    engine, card, processors = opened_engine(kind, folder, device, precision)
    tokenizers = [processor.tokenizer for processor in processors.values()]
    return engine, card, tokenizers[0], tokenizers[-1]


def _missing(name: str) -> InputError:
    return InputError(f"{ENGINE} has no --{name.replace('_', '-')}: leave it out, or leave --engine out")


@final
class FastTranslator(TextTranslator):
    """A `Translator` on CTranslate2."""

    def __init__(self, engine: Any, card: Card, source_tokenizer: Codec, target_tokenizer: Codec) -> None:
        super().__init__(card, source_tokenizer, target_tokenizer)
        self.engine = engine
        sizes = card.sizes
        self.source_names, self.target_names = entries(source_tokenizer, sizes[0]), entries(target_tokenizer, sizes[1])
        self.id_of = {name: i for i, name in enumerate(self.target_names)}

    @one_or_many(is_text)
    def translate_n(self, texts: Sequence[str], *, attention: bool = False, **how: Any) -> list[list[Translation]]:
        refuse(attention, f"{ENGINE} does not show its attention: leave --attention, --picture or --engine out")
        for name in ("max_ratio", "max_extra", "finish"):
            if name in how:
                raise _missing(name)
        return super().translate_n(texts, **how)

    def attention(self, source: list[int], target: list[int]) -> Attention:
        raise InputError(f"{ENGINE} does not show its attention")

    def searched(
        self, sources: list[list[int]], settings: Search, batch: int | None, progress: Callable[[int], None] | None
    ) -> list[list[Hypothesis]]:
        if settings.finish == "bound" and settings.beam > 1:
            raise InputError(f"this model's search ends by a bound (search.finish), which {ENGINE} has not")
        found: list[list[Hypothesis]] = []
        for at in range(0, len(sources), REPORTED):
            found += self._some(sources[at : at + REPORTED], settings, batch or AT_ONCE)
            if progress:
                progress(len(found))
        return found

    def _some(self, sources: list[list[int]], settings: Search, batch: int) -> list[list[Hypothesis]]:
        """The longest output is that of the longest source: it has one limit for all."""
        results = self.engine.translate_batch(
            [[self.source_names[i] for i in ids] for ids in sources],
            max_batch_size=batch,
            beam_size=settings.beam,
            num_hypotheses=settings.best,
            length_penalty=settings.length_penalty,
            min_decoding_length=settings.min_length,
            max_decoding_length=max(settings.longest(len(ids), self.limit) for ids in sources),
            max_input_length=0,
            suppress_sequences=[[self.target_names[i]] for i in self.symbols.never] or None,
            return_scores=True,
        )
        return [
            [
                Hypothesis([self.id_of[name] for name in names], score, [])
                for names, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]


# What `headway generate` may be asked for, and CTranslate2's name for it.
SAMPLING = {
    "temperature": "sampling_temperature", "top_k": "sampling_topk", "top_p": "sampling_topp",
    "repetition": "repetition_penalty", "no_repeat": "no_repeat_ngram_size",
}  # fmt: skip


@final
class FastGenerator(Shown):
    """A `Generator` on CTranslate2, for whole texts."""

    def __init__(self, engine: Any, card: Card, tokenizer: Codec) -> None:
        self.engine, self.card, self.tokenizer = engine, card, tokenizer
        self.context = int(card.config.max_length)
        self.names = entries(tokenizer, card.sizes[0])
        self.id_of = {name: i for i, name in enumerate(self.names)}
        lines = (END,) if card.text.lines else ()
        self.opening = tokenizer.opening if card.foreign_text else lines

    @one_or_many(is_text)
    def generate(
        self, prompts: Sequence[str], *, max_new: int = 128, samples: int = 1, **wishes: Any
    ) -> list[list[str]]:
        """`samples` continuations of each prompt."""
        settings = _known(wishes)
        if settings.get("sampling_temperature", 1.0) == 0:
            settings |= {"sampling_topk": 1, "sampling_temperature": 1.0}
        sure = settings.get("sampling_topk") == 1  # nothing is drawn: all samples are equal
        start = [*self.opening] or [END if not self.card.foreign_text else self.tokenizer.end or 0]
        found = []
        for number, ids in enumerate(self.tokenizer.encode_batch(list(prompts)), 1):
            asked = [*self.opening, *ids] or start
            room = self.context - len(asked)
            refuse(room < 1, f"prompt {number} has {len(asked)} tokens, this model's context {self.context}")
            (result,) = self.engine.generate_batch(
                [[self.names[i] for i in asked]], max_length=min(max_new, room), num_hypotheses=1 if sure else samples,
                include_prompt_in_result=False, **settings,
            )  # fmt: skip
            texts = [self._behind(asked, [self.id_of[name] for name in names]) for names in result.sequences]
            found.append(texts * samples if sure else texts)
        return found

    def _behind(self, asked: list[int], written: list[int]) -> str:
        """The text behind the prompt: a first word has no space before it, the same word later has one."""
        return self.tokenizer.decode([*asked, *written])[len(self.tokenizer.decode(asked)) :]


def _known(wishes: dict[str, Any]) -> dict[str, Any]:
    """In CTranslate2's words; what it has none for must be as if it had not been asked for."""
    usual = {f.name: f.default for f in fields(Sampling)} | {"stop": (), "choices": (), "window": False}
    for name, value in wishes.items():
        if name not in SAMPLING and value != usual.get(name):
            raise _missing("choice" if name == "choices" else name)
    return {theirs: wishes.get(name, usual[name]) for name, theirs in SAMPLING.items()}


def load_translator(folder: str | Path, device: str = "auto", precision: str = "auto") -> FastTranslator:
    return FastTranslator(*_opened("Translator", folder, device, precision))


def load_generator(folder: str | Path, device: str = "auto", precision: str = "auto", seed: int = 0) -> FastGenerator:
    """A seed is that of all it will draw: CTranslate2 looks at it once, when its threads start."""
    wanted("ctranslate2", "ctranslate2").set_random_seed(seed)
    engine, card, tokenizer, _ = _opened("Generator", folder, device, precision)
    return FastGenerator(engine, card, tokenizer)
