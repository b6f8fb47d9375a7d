"""Questions about stories: the answer to each from what was told before it, by a memory network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from headway.data.labelled import LabelBatch
from headway.data.stories import (
    Asked,
    StoryBatches,
    StoryInputs,
    StoryStore,
    answers_in,
    hold_out_stories,
    lines_in,
    numbered,
    parse,
    plain,
    read_stories,
)
from headway.errors import refuse
from headway.generate.stories import StoryAnswer, StoryModel
from headway.models.heads import Classes
from headway.tasks.files import DividedFiles, vocabularies
from headway.tasks.labelling import Labelling
from headway.tasks.objective import Labels, LinearStart
from headway.tasks.start import RunContext, earlier_model
from headway.tasks.task import Prediction, Report, entropy, refuse_unknown
from headway.text.tokenizer import TextOptions, Tokenizer

FAILED = 0.05  # a task with a greater error is not solved (Weston et al. 2016)
SHOWN = 3  # sentences of a hop that a line shows
SMALL = 0.05  # a weight below that is not shown behind the first
WORDS = 8  # of a sentence, in an estimate


@dataclass(frozen=True)
class Stories(DividedFiles):
    """Stories with questions in the format of bAbI: numbered lines, `question TAB answer TAB numbers of lines`.

    Without `valid`, the share `hold_out` of the training questions is, whole stories at a time. text: for a vocabulary
    of its own, where the run starts from nothing. noise: in training, empty memories are added to a story, up to this
    share of its sentences. A batch of a run counts questions.
    """

    name: ClassVar[str] = "stories"
    wanted: ClassVar[str] = "FILE... (numbered lines: statements, and question TAB answer)"
    text: TextOptions = field(default_factory=lambda: TextOptions("word", lowercase=True, min_count=1))
    noise: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(not 0 <= self.noise <= 1, f"data.noise must lie between 0 and 1, not {self.noise}")
        refuse(self.text.kind != "word", "stories are read word by word: set data.text.kind=word")


class StoryAnswering(Labelling):
    """Judged by the answers to held-out questions. An answer of several words is one label."""

    name = "story-answering"
    data = Stories
    takes = ("story",)
    objectives = (Labels, LinearStart)
    heads = (Classes,)
    verbs = ()
    opens = StoryModel
    what = unit = "questions"
    options = ("all",)

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        with context.ranks.in_turn():
            self.parts: dict[str, list[Asked]] = self.divided(read_stories, hold_out_stories)
            self.tokenizer = earlier.source_tokenizer if earlier else vocabularies(context, self._learned)[0]
        self.labels = answers_in(self.parts["train"])
        refuse(len(self.labels) < 2, f"every question has the answer '{self.labels[0]}': at least two are needed")
        self.stores = {part: self._stored(part, asked) for part, asked in self.parts.items()}
        head = run.head.of_labels(self.labels, self.tokenizer.encode_batch(list(self.labels)))
        self.begin([self.tokenizer], earlier, head=head)
        self.card.task = self.name  # of any head
        rows = run.engine.batch
        self.batches = StoryBatches(self.stores["train"], rows, run.engine.seed, noise=run.data.noise)
        self.held = {
            part: StoryBatches(store, 8 * rows, 0, shuffle=False)
            for part, store in self.stores.items()
            if part != "train"
        }
        self.valid = self.held["valid"]

    def _learned(self) -> list[Tokenizer]:
        """Of sentences, questions and answers."""
        asked = self.parts["train"]
        sentences = dict.fromkeys(sentence for one in asked for sentence in (*one.story, one.question))
        return [Tokenizer.train([*map(plain, sentences), *answers_in(asked)], self.run.data.text)]

    def _stored(self, part: str, asked: Sequence[Asked]) -> StoryStore:
        store = StoryStore(asked, numbered(asked, self.labels), self.tokenizer.encode_batch, self.run.model.memory)
        new = int((store.labels_N < 0).sum())
        unknown = f", {new:,} of them with an answer that no training question has" if new else ""
        self.log.say(f"{part}: {len(asked):,} questions{unknown}")
        self.log.event("data", part=part, questions=len(asked), answers=len(self.labels))
        self.data_names[part] = store.fingerprint
        return store

    def example(self) -> str:
        batch, one = next(self.valid.epoch()).rows(0, 1), self.parts["valid"][0]
        given = int(self.model(batch.inputs.map(lambda t: t.to(self.context.device))).argmax(-1))
        return f"{one.question} {self.labels[given]} (wanted: {one.answer})"

    def shown(self, example: int) -> str:
        return self.parts["train"][example].place

    def guess(self) -> float:
        return entropy(np.bincount(self.stores["train"].labels_N.numpy()))

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> LabelBatch:
        rows, memory = run.engine.batch, run.model.memory
        words_BSW = torch.randint(4, max(size, 5), (rows, memory, WORDS), device=device)
        inputs = StoryInputs(words_BSW, torch.ones_like(words_BSW[..., 0]), words_BSW[:, 0])
        return LabelBatch(inputs, torch.ones(rows, dtype=torch.long, device=device))

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        """The questions of a file, with or without answers; of a single --text its sentences are the lines."""
        refuse(columns, f"--text-column has no meaning for the task '{cls.name}'")
        refuse(len(inputs) > 1, f"give one file of stories, not {len(inputs)}: join them, or use --text")
        file = inputs[0] if inputs else None
        rows = lines(texts, file)
        rows = lines_in(rows[0]) if len(texts) == 1 else rows
        name = "--text" if texts else "standard input" if file in (None, "-") else str(file)
        asked = list(parse(rows, name, answered=False))
        refuse(not asked, f"{name}: there is no question in it; end one with a question mark")
        return asked

    @classmethod
    def answer(cls, model: StoryModel, values: Sequence[Asked], options: dict[str, Any]) -> Iterator[Prediction]:
        refuse_unknown(options, cls.options, f"a model that answers {cls.what}")
        for value, found in zip(values, model.ask(values), strict=True):
            yield Prediction(_lines(found, "all" in options), _values(value, found))

    @classmethod
    def evaluate(cls, model: StoryModel, files: Sequence[str], options: dict[str, Any]) -> Report:
        """The share of wrong answers, for each file, and its mean over the files."""
        refuse_unknown(options, (), f"a model that answers {cls.what}")
        asked = read_stories(files)
        by_task: dict[str, list[bool]] = {}
        for one, found in zip(asked, model.ask(asked), strict=True):
            by_task.setdefault(one.task, []).append(found.text != one.answer)
        errors = {task: float(np.mean(wrong)) for task, wrong in by_task.items()}
        mean, failed = float(np.mean(list(errors.values()))), sum(error > FAILED for error in errors.values())
        width = max(map(len, [*errors, "mean error"]))
        rows = [f"{task:<{width}}  {error:.4f}" for task, error in errors.items()] if len(errors) > 1 else []
        lines = [
            *rows, f"{'mean error':<{width}}  {mean:.4f}",
            f"{len(asked):,} questions, {failed} of {len(errors)} tasks with an error above {FAILED:g}",
        ]  # fmt: skip
        return Report({"questions": len(asked), "error": mean, "failed": failed, "tasks": errors}, lines)


def _lines(found: StoryAnswer, every: bool) -> str:
    """The answer, and below it the sentences that each hop looked at most."""
    shown = found.guesses if every else found.guesses[:1]
    answers = "\t".join(f"{guess.text}\t{guess.probability:.4f}" for guess in shown)
    return "\n".join([f"{answers}\t{found.question}", *(_hop(at, hop, found) for at, hop in enumerate(found.hops, 1))])


def _hop(number: int, weights: list[float], found: StoryAnswer) -> str:
    order = sorted(range(len(weights)), key=lambda at: -weights[at])
    strong = [at for rank, at in enumerate(order[:SHOWN]) if rank == 0 or weights[at] >= SMALL]
    return f"  hop {number}: " + "; ".join(f"{weights[at]:.2f} {found.sentences[at]}" for at in strong)


def _values(asked: Asked, found: StoryAnswer) -> dict[str, Any]:
    wanted = {"wanted": asked.answer} if asked.answer else {}
    return {
        "question": found.question, "answer": found.text, "probability": round(found.probability, 6), **wanted,
        "labels": [[guess.text, round(guess.probability, 6)] for guess in found.guesses],
        "sentences": list(found.sentences), "hops": [[round(weight, 6) for weight in hop] for hop in found.hops],
    }  # fmt: skip
