"""Summaries: a long text in, a short one out, by an encoder-decoder; judged by ROUGE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from headway.card import Loaded
from headway.data.split import hold_out_by_hash
from headway.data.store import PairStore
from headway.data.summaries import Summary, read_summaries
from headway.errors import refuse
from headway.evaluate.rouge import Rouge
from headway.generate.translator import Translator
from headway.tasks.files import PARTS, found
from headway.tasks.task import Figure, Report, refuse_unknown
from headway.tasks.translation import SEARCH, ParallelText, Translation, search_options
from headway.text.codec import Codec


@dataclass(frozen=True)
class Summaries(ParallelText):
    """JSON lines: under the key `source` a text, or its sentences, under `target` a summary, or several. A text that is
    longer than the model reads is cut, and counted. Without `valid`, about `hold_out` texts are held out for it and as
    many for `test`. judged: how many summaries of a text judge what is written (0: all)."""

    name: ClassVar[str] = "summaries"
    wanted: ClassVar[str] = "FILE (.jsonl with a text and its summary in each line)"
    source: str = "text"
    target: str = "summary"
    judged: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(self.judged < 0, f"data.judged must be 0 (all) or more, not {self.judged}")
        refuse(self.swapped, "data.swapped is for sentence pairs: name the keys with --source and --target")


class Summarising(Translation):
    """Learned like a translation, from the first summary of each text. Judged by ROUGE-L, with all of them."""

    name = "summarising"
    data = Summaries
    headline = ("ROUGE-L", True)
    verb = "predict"
    verbs = ("translate",)
    what = "a model that summarises"
    made = "summary"

    def _files(self) -> dict[str, list[Path]]:
        """Texts and first summaries as aligned files in the run's folder."""
        data, folder = self.run.data, self.context.out / "data"
        parts = {
            part: read_summaries(found(names, self.context), data.source, data.target)
            for part, names in data.parts().items()
        }
        if "valid" not in parts:
            share = min(0.1, data.hold_out / len(parts["train"]))
            for part in [part for part in PARTS[1:] if part not in parts]:
                parts["train"], parts[part] = _held(parts["train"], share)
        judged = data.judged or None
        self.references = {part: [one.summaries[:judged] for one in values] for part, values in parts.items()}
        files = {part: [folder / f"{part}.source", folder / f"{part}.target"] for part in parts}
        folder.mkdir(parents=True, exist_ok=True)
        if self.context.ranks.first:
            for part, (source, target) in files.items():
                _write(source, [one.text for one in parts[part]])
                _write(target, [one.summaries[0] for one in parts[part]])
        return files

    def begin(self, tokenizers: Sequence[Any], earlier: Loaded | None, **more: Any) -> None:
        super().begin(tokenizers, earlier, **more)
        self.card.task = self.name

    def _encoded(self, part: str) -> PairStore:
        self._cut(part)
        return super()._encoded(part)

    def _texts(self, part: str) -> tuple[list[str], list[str]]:
        if part not in self.stores:
            self._cut(part)
        return super()._texts(part)

    def _cut(self, part: str) -> None:
        """Cut texts that are longer than the model reads."""
        source, limit = self.files[part][0], source_limit(self.tokenizers[0], self.run.max_length)
        texts = source.read_text(encoding="utf-8").split("\n")[:-1]
        short = shortened(self.tokenizers[0], texts, limit)
        if cut := sum(one != other for one, other in zip(short, texts, strict=True)):
            self.log.say(f"{part}: {cut:,} of {len(texts):,} texts have more than {limit} tokens and are cut")
            if self.context.ranks.first:
                _write(source, short)

    def judge(self, losses: dict[str, float]) -> tuple[str, Figure]:
        sources = self.valid_texts[0]
        return "ROUGE-L", Figure(self._rouge(sources, self.references["valid"][: len(sources)]).longest, True, 2)

    def final_figures(self) -> dict[str, Any]:
        if not self.test_texts[0]:
            return {}
        figures = self._rouge(self.test_texts[0], self.references["test"]).figures()
        return {f"test {name}": round(value, 2) for name, value in figures.items()}

    def _rouge(self, sources: list[str], references: list[Any]) -> Rouge:
        return Rouge.of(*self.translated(sources, references)[1:])

    @classmethod
    def written(cls, model: Translator, texts: Sequence[str], search: dict[str, Any]) -> list[str]:
        return super().written(model, shortened(model.tokenizers[0], texts, model.source_limit), search)

    @classmethod
    def evaluate(cls, model: Translator, files: Sequence[str], options: dict[str, Any]) -> Report:
        """ROUGE of the summaries of these texts. `keep` is called with them."""
        refuse_unknown(options, (*SEARCH, "keep"), cls.what)
        data = model.card.run.get("data", {})
        values = read_summaries(list(files), data.get("source", "text"), data.get("target", "summary"))
        texts = cls.written(model, [one.text for one in values], search_options(options))
        if "keep" in options:
            options["keep"](texts)
        rouge = Rouge.of(texts, [one.summaries[: data.get("judged") or None] for one in values])
        return Report(rouge.to_dict(), rouge.lines())


def _held(values: list[Summary], share: float) -> tuple[list[Summary], list[Summary]]:
    return hold_out_by_hash(values, [one.text for one in values], share)


def _write(file: Path, lines: Sequence[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def source_limit(tokenizer: Codec, longest: int) -> int:
    """The most tokens of a text in a model of so many positions."""
    return longest - max(1, len(tokenizer.opening) + len(tokenizer.closing))


def shortened(tokenizer: Codec, texts: Sequence[str], limit: int) -> list[str]:
    """The texts, cut to at most so many tokens."""
    short = list(texts)
    for at, ids in enumerate(tokenizer.encode_batch(short)):
        kept = limit
        while len(ids) > limit:
            short[at] = tokenizer.decode(ids[:kept]).rstrip("\ufffd")
            ids, kept = tokenizer.encode(short[at]), kept - 1
    return short
