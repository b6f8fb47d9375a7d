"""String to string: words and their sounds, or any other strings, letter by letter; judged by the share with faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from headway.card import Loaded
from headway.data.readers import read_pairs
from headway.errors import refuse
from headway.evaluate.strings import StringErrors
from headway.folder import with_tokenizers
from headway.generate.translator import Translator
from headway.tasks.task import Figure, Report, refuse_unknown
from headway.tasks.translation import SEARCH, ParallelText, Translation, search_options
from headway.text.tokenizer import TextOptions

SOUNDS = 64  # different tokens that a target is assumed to have


@dataclass(frozen=True)
class StringPairs(ParallelText):
    """Pairs of strings, such as words and their sounds. By default the source is read letter by letter, and the tokens
    of the target stand between spaces (`target_text`)."""

    name: ClassVar[str] = "string-pairs"
    wanted: ClassVar[str] = "a .tsv (source TAB target), or SOURCE TARGET (two aligned files)"
    hold_out: int = 400
    text: TextOptions = field(default_factory=lambda: TextOptions("char", joint=False, min_count=1))
    target_text: TextOptions = field(
        default_factory=lambda: TextOptions("word", nfc=False, joint=False, min_count=1)
    )  # as the references are spelled

    def sides(self) -> tuple[TextOptions, TextOptions]:
        return self.text, self.target_text

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(self.text.joint, "data.text.joint must be false: letters and sounds have a vocabulary each")


class Transduction(Translation):
    """Judged by word error rate with the run's own search."""

    name = "transduction"
    data = StringPairs
    headline = ("word error", False)

    def begin(self, tokenizers: Sequence[Any], earlier: Loaded | None, **more: Any) -> None:
        super().begin(tokenizers, earlier, **more)
        self.card.task = self.name
        if earlier is None:
            processors = self.card.processors
            processors["target"] = replace(processors["target"], options=self.run.data.target_text)
            self.processors = with_tokenizers(self.card, *tokenizers)

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        errors = StringErrors.of(*self.translated(*self.valid_texts)[1:])
        return "word error", Figure(errors.word_error, False, 2)

    def final_figures(self) -> dict[str, Any]:
        if not self.test_texts[0]:
            return {}
        errors = StringErrors.of(*self.translated(*self.test_texts)[1:])
        return {"test word error": round(errors.word_error, 2), "test token error": round(errors.token_error, 2)}

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        target_size = run.data.target_text.size
        return super().sizes(run, likely)[0], min(target_size, SOUNDS) if likely else target_size

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        return data if like is None else replace(data, text=like.text, target_text=like.target_text)

    @classmethod
    def evaluate(cls, model: Translator, files: Sequence[str], options: dict[str, Any]) -> Report:
        """Word and token error of what is written for these pairs. `keep` is called with it."""
        refuse_unknown(options, (*SEARCH, "keep"), "a model that turns strings into strings")
        pairs = list(read_pairs(list(files), model.card.reads.language, model.card.writes.language))
        texts = model.translate([source for source, _ in pairs], **search_options(options))
        if "keep" in options:
            options["keep"](texts)
        errors = StringErrors.of(texts, [target for _, target in pairs])
        return Report(errors.to_dict(), errors.lines())
