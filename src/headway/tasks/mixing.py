"""Mixing: captions of pictures, questions about them and what a robot does, learned by one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch

from headway.batch import IGNORED, sampled
from headway.card import Card, Loaded
from headway.data.image_files import Bytes, picture
from headway.data.mixed import MixedBatch, MixedBatches
from headway.data.trajectories import Trajectories
from headway.errors import refuse
from headway.generate.drawing import canvas, with_caption
from headway.generate.mixture import MixtureModel
from headway.models.protocols import Terms
from headway.nn.loss import linear_cross_entropy
from headway.plain import to_plain
from headway.processors.image import ImageConfig
from headway.processors.steps import ActionConfig, ObservationConfig, fits
from headway.processors.text import TextConfig, TextProcessor
from headway.tasks.files import DividedFiles, found, vocabularies
from headway.tasks.mixed_kinds import KINDS, WANTED, measured, read_kinds
from headway.tasks.objective import CrossEntropy, Objective, TokenObjective
from headway.tasks.start import RunContext, earlier_model, first_model
from headway.tasks.task import Prediction, Report, Task, refuse_unknown
from headway.tasks.translation import SEARCH, search_options
from headway.text.tokenizer import TextOptions, Tokenizer

STATES = 4  # numbers of a state and of an action, in an estimate
MEASURED = 2048  # pictures of each kind that mean and standard deviation are taken of


@dataclass(frozen=True)
class MixedFiles(DividedFiles):
    """Files of several kinds, each known by what is in it: captions (.npz with `captions`), questions about pictures
    (.jsonl, or .npz with `questions`), demonstrations (.npz that `headway collect --pictures` wrote). Without `valid`,
    the share `hold_out` of each kind is.

    captions, questions, demonstrations: how many rows of a batch each has, in relation to the others; 0: it is not
    learned. text: for the vocabulary of all of them. channels: 1 for grey, 3 for colour. flip: training pictures with
    captions are mirrored half of the times. shift: those of demonstrations are moved by at most so many pixels. reads:
    the first so many numbers of a robot's state are read (0: all). A batch counts pictures.
    """

    name: ClassVar[str] = "mixed"
    wanted: ClassVar[str] = WANTED
    captions: float = 1.0
    questions: float = 1.0
    demonstrations: float = 1.0
    text: TextOptions = field(default_factory=lambda: TextOptions("word", lowercase=True, min_count=1, joint=True))
    channels: int = 3
    flip: bool = False
    shift: int = 0
    reads: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(self.channels not in (1, 3), f"data.channels must be 1 (grey) or 3 (colour), not {self.channels}")
        for name in (*KINDS, "shift", "reads"):
            refuse(not getattr(self, name) >= 0, f"data.{name} must be 0 or more, not {getattr(self, name)}")
        refuse(not any(getattr(self, kind) for kind in KINDS), f"one of data.{', data.'.join(KINDS)} must be above 0")


class PictureSize(NamedTuple):
    channels: int
    size: tuple[int, int]


@final
class MixedObjective(TokenObjective):
    """The tokens of all answers, those of each kind over their mean number; beside it, each kind's cross-entropy."""

    def forward(self, batch: MixedBatch) -> Terms:  # type: ignore[override]
        model, rows = self.model, len(batch.ids_BT)
        state = model.start(batch.inputs, rows, batch.ids_BT.device, room=0)
        hidden_BTD, _ = model.read(model.framed(batch.ids_BT), state)
        hidden_ND = hidden_BTD[:, model.config.given :].flatten(0, 1)
        found: Terms = {}
        total = every = hidden_ND.new_zeros((), dtype=torch.float32)
        for kind, (name, length) in enumerate(zip(batch.kinds, batch.lengths, strict=True)):
            labels_N, smoothing = batch.labels_of(kind).flatten(), self.config.smoothing
            loss, nll = linear_cross_entropy(hidden_ND, self.weight(), labels_N, smoothing, IGNORED)
            total, every, found[name] = total + loss / length, every + nll, (nll.detach(), 0.0)
        return {"loss": (total, 1.0), "nll": (every, 0.0), **found}


@dataclass(frozen=True)
class MixedTokens(CrossEntropy):
    """Cross-entropy per token of the answers, whatever they are about."""

    name: ClassVar[str] = "mixed-tokens"
    objective: ClassVar[type[Objective]] = MixedObjective
    smoothing: float = 0.0


class Mixing(Task):
    """Judged by the tokens of all answers."""

    name = "mixing"
    data = MixedFiles
    objectives = (MixedTokens,)
    roles = ("steps",)
    takes = ("observations", "actions", "image", "text")
    unit = "pictures"
    verb = "predict"
    verbs = ("play",)
    opens = MixtureModel

    def __init__(self, run: Any, context: RunContext) -> None:
        super().__init__(run, context)
        earlier = earlier_model(run)
        with context.ranks.in_turn():
            self.parts = self._read(earlier)
            self.tokenizer = earlier.target_tokenizer if earlier else vocabularies(context, self.learned)[0]
        configs: dict[str, Any] = self._as_before(earlier) if earlier else self._configs()
        self.card = Card(run.model.name, run.model, self.name, configs, search=to_plain(run.search), run=to_plain(run))
        self.processors = {name: configs[name].open(context.out) for name in ("observations", "actions", "image")}
        self.processors["text"] = TextProcessor(configs["text"], self.tokenizer)
        self.model = first_model(run, context, self.card.sizes, (), None, earlier)
        shown = self.parts["train"].get("demonstrations")
        if earlier is None and shown is not None:
            actions_KA = np.asarray(self.processors["actions"].encode(shown.actions_K), np.float32)
            self.model.bins.fit(torch.from_numpy(actions_KA).to(context.device))
        self._open_batches()

    def read_picture(self, value: Any) -> Bytes:
        return picture(value, self.run.data.channels, self.run.model.size)

    def _read(self, earlier: Any) -> dict[str, dict[str, Any]]:
        """Of every part, what its files of each kind have."""
        run, data = self.run, self.run.data
        before = earlier and earlier.card.processors["image"]
        other = f"{run.init} reads pictures of other channels: set data.channels={before and before.size}"
        refuse(before and before.size != data.channels, other)
        image = PictureSize(data.channels, run.model.size)
        wanted = [kind for kind in KINDS if getattr(data, kind)]
        parts = {
            part: read_kinds(found(names, self.context), image, self.read_picture, wanted)
            for part, names in data.parts().items()
        }
        train, valid = parts["train"], parts.setdefault("valid", {})
        refuse(
            not train, f"all training files are of kinds whose share is 0: raise one of data.{', data.'.join(KINDS)}"
        )
        for part, some in parts.items():
            for kind in some:
                refuse(kind not in train, f"there are {kind} for {part} and none to learn from")
        for kind in train:
            if kind not in valid:
                train[kind], valid[kind] = KINDS[kind].hold_out(train[kind], data.hold_out)
        parts["valid"] = {kind: valid[kind] for kind in train}  # in the same order
        for part, some in parts.items():
            if not some:
                continue
            counts = {kind: KINDS[kind].count(one) for kind, one in some.items()}
            self.log.say(f"{part}: " + ", ".join(f"{count:,} {KINDS[kind].said}" for kind, count in counts.items()))
            self.log.event("data", part=part, **counts)
        return parts

    def learned(self) -> list[Tokenizer]:
        texts = (text for kind, one in self.parts["train"].items() for text in KINDS[kind].texts(one))
        return [Tokenizer.train(texts, self.run.data.text)]

    def _configs(self) -> dict[str, Any]:
        """How states, actions, pictures and texts are read, measured on what is learned from."""
        run, train = self.run, self.parts["train"]
        observations, actions = ObservationConfig(1), ActionConfig(1, "numbers")
        if (shown := train.get("demonstrations")) is not None:
            observations, actions = _steps(shown, run.data.reads)
        mean_C, std_C = measured(train, self.read_picture, MEASURED)
        mean, std = (tuple(part_C.round(6).tolist()) for part_C in (mean_C, std_C))
        height, width = run.model.size
        image = ImageConfig(run.data.channels, height, width, mean, std)
        text = TextConfig(len(self.tokenizer), run.data.text)
        return {"observations": observations, "actions": actions, "image": image, "text": text}

    def _as_before(self, earlier: Any) -> dict[str, Any]:
        """How the earlier model reads everything; demonstrations must be such as it has learned from."""
        configs, init = dict(earlier.card.processors), self.run.init
        shown = self.parts["train"].get("demonstrations")
        if shown is None:
            return configs
        observations, actions = configs["observations"], configs["actions"]
        refuse(not observations.worlds, f"{init} has learned from no demonstrations: start from nothing to learn them")
        other = f"{init} has other states or actions than '{shown.world}'"
        refuse(not fits(observations, actions, shown), other)
        tasks = dict.fromkeys((*zip(observations.worlds, observations.commands, strict=True), *shown.tasks))
        worlds, commands = zip(*tasks, strict=True)
        return configs | {"observations": replace(observations, worlds=worlds, commands=commands)}

    def _open_batches(self) -> None:
        run, scale, start = self.run, self.processors["image"].scale, self.card.symbols.start
        how = (scale, self.card.processors["observations"].size, start, run.model.max_length)
        model = self.answering()
        self.sources = {
            part: [KINDS[kind].source(one, model, self.read_picture, run.data) for kind, one in some.items()]
            for part, some in self.parts.items()
        }
        self.data_names = {
            f"{part}, {source.kind}": source.fingerprint for part, some in self.sources.items() for source in some
        }
        self.data_names["vocabulary"] = self.tokenizer.fingerprint
        train, valid = self.sources["train"], self.sources["valid"]
        refuse(run.engine.batch < len(train), f"engine.batch counts rows: at least {len(train)}, one of each kind")
        shares = [getattr(run.data, source.kind) for source in train]
        self.batches = MixedBatches(train, shares, run.engine.batch, *how, seed=run.engine.seed)
        rows = run.engine.batch * len(valid)
        self.valid = MixedBatches(valid, [1.0] * len(valid), rows, *how, whole=True, lengths=self.batches.lengths)

    def valid_losses(self, objective: Any) -> dict[str, float]:
        """Each kind's mean loss counts by its share, however many rows it has. A batch has rows of one kind."""
        kinds = self.batches.kinds
        sums = {name: np.zeros(2) for name in ("nll", *kinds)}
        rows = np.zeros((len(kinds), 2))
        for batch in sampled(self.valid.epoch(), self.share):
            terms = objective(batch.map(lambda tensor: tensor.to(self.context.device)))
            rows[int(batch.kind_B[0])] += float(terms["loss"][0]), float(batch.counts["loss"])
            for name, total in sums.items():
                total += float(terms[name][0]), float(batch.counts[name])
        seen = rows[:, 1] > 0  # of a small sample some kinds may be missing
        shares = np.array([getattr(self.run.data, kind) for kind in kinds])[seen]
        loss = float((rows[seen, 0] / rows[seen, 1] * shares).sum() / shares.sum())
        return {"loss": loss} | {name: float(total / max(count, 1)) for name, (total, count) in sums.items()}

    def shown_losses(self, losses: dict[str, float]) -> dict[str, float]:
        """Of all, and of each kind where there are several."""
        kinds = self.batches.kinds if len(self.batches.kinds) > 1 else ()
        return {name: losses[name] for name in ("loss", *kinds)}

    @cached_property
    def _answering(self) -> MixtureModel:
        loaded = Loaded(self.model, self.card, self.processors)
        return MixtureModel(loaded, self.context.device, self.context.dtype)

    def answering(self) -> MixtureModel:
        """The present weights, ready to answer: what its steps have captured is kept."""
        self._answering.model = self.model.eval()
        return self._answering

    def final_figures(self) -> dict[str, Any]:
        figures: dict[str, float] = {}
        for kind, one in self.parts.get("test", {}).items():
            figures |= KINDS[kind].figures(one, self.answering())
        return {f"test {name}": round(value, 4) for name, value in figures.items()}

    def example(self) -> str:
        model = self.answering()
        return "; ".join(KINDS[kind].example(one, model) for kind, one in self.parts["valid"].items())

    def shown(self, example: int) -> str:
        number = int(np.searchsorted(self.batches.begins, example, "right")) - 1
        return f"{self.batches.kinds[number]}, row {example - int(self.batches.begins[number])}"

    def guess(self) -> float:
        return float("inf")

    @classmethod
    def sizes(cls, run: Any, likely: bool = False) -> tuple[int, ...]:
        return STATES, STATES, run.data.channels, run.data.text.size

    @classmethod
    def sample(cls, run: Any, size: int, device: torch.device) -> MixedBatch:
        rows, length = run.engine.batch, min(run.model.max_length, 16)
        plain_C11 = torch.ones(run.data.channels, 1, 1, device=device)
        pixels = torch.zeros(rows, run.data.channels, *run.model.size, dtype=torch.uint8, device=device)
        there_B = torch.ones(rows, dtype=torch.uint8, device=device)
        ids_BT = torch.ones(rows, length, dtype=torch.long, device=device)
        states = torch.zeros(rows, STATES, device=device), torch.ones(rows, device=device)
        kind_B = torch.zeros(rows, dtype=torch.long, device=device)
        return MixedBatch(
            plain_C11, plain_C11, pixels, there_B, *states, kind_B, ids_BT, ids_BT, lengths=(1.0 * length,)
        )

    @classmethod
    def level(cls, data: Any, like: Any) -> Any:
        return data if like is None else replace(data, text=like.text, channels=like.channels)

    @classmethod
    def read(
        cls, inputs: list[str], texts: list[str], lines: Callable[..., list[str]], columns: Sequence[str] = ()
    ) -> list[Any]:
        refuse(columns, f"--text-column has no meaning for the task '{cls.name}'")
        refuse(texts or not inputs, "this model reads pictures: headway predict MODEL PICTURE … [--question TEXT]")
        return inputs

    @classmethod
    def answer(cls, model: MixtureModel, values: Sequence[Any], options: dict[str, Any]) -> Iterator[Prediction]:
        """A caption of each picture, or the answer to a question about it."""
        refuse_unknown(options, ("beam_size", "draw", "question"), "a model that describes pictures")
        question, search = str(options.get("question", "")), search_options(options)
        for value in values:
            text = model.ask(value, question, **search)
            drawn = with_caption(canvas(value), text) if "draw" in options else None
            asked = {"question": question} if question else {}
            yield Prediction(text, {"picture": value, **asked, "answer": text}, drawn)

    @classmethod
    def evaluate(cls, model: MixtureModel, files: Sequence[str], options: dict[str, Any]) -> Report:
        """CIDEr of captions, the share of right answers, the distance of actions: by what the files have."""
        refuse_unknown(options, tuple(SEARCH), "a model that describes pictures")
        config = model.image.config
        image = PictureSize(config.size, (config.height, config.width))
        kinds = read_kinds([Path(file) for file in files], image, model.image.read)
        counts = {kind: KINDS[kind].count(one) for kind, one in kinds.items()}
        figures: dict[str, float] = {}
        for kind, one in kinds.items():
            figures |= KINDS[kind].figures(one, model, **search_options(options))
        rows = [f"{name:<22}  {value:.4f}" for name, value in figures.items()]
        said = ", ".join(f"{count:,} {KINDS[kind].said}" for kind, count in counts.items())
        return Report({**counts, **figures}, [*rows, said])


def _steps(shown: Trajectories, reads: int) -> tuple[ObservationConfig, ActionConfig]:
    """How the states and actions of demonstrations are read."""
    width = shown.states_KS.shape[1]
    refuse(reads > width, f"data.reads is {reads}, a state has {width} numbers")
    states_KS = shown.states_KS[:, : reads or width].astype(np.float64)
    mean, std = (tuple(np.round(part, 6).tolist()) for part in (states_KS.mean(0), states_KS.std(0).clip(min=1e-5)))
    returns, tasks = shown.returns_E, shown.tasks
    reached = (float(returns.min()), round(float(returns.mean()), 4), float(returns.max()))
    assert shown.pictures_KPP3 is not None
    observations = ObservationConfig(
        len(mean), tasks[0].world, mean, std, 1.0, reached, tuple(task.world for task in tasks),
        tuple(task.command for task in tasks), width if reads else 0, shown.pictures_KPP3.shape[1],
    )  # fmt: skip
    actions = ActionConfig.of(shown.actions)
    refuse(actions.space != "numbers", "a mixture writes actions that are numbers: these are choices")
    return observations, actions
