"""A model of pictures, texts and actions: it describes a picture, answers a question about it, and acts on a command.

R rows, B pictures, C channels, H height, W width, S width of a state, A width of an action, K steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from headway.card import Loaded
from headway.data.image_files import Bytes
from headway.data.mixed import MixedInputs, MixedRow, prompted
from headway.data.trajectories import Asked, Trajectories
from headway.device import sent
from headway.errors import refuse
from headway.generate.actor import CPU
from headway.generate.follower import Follower, FollowerPolicy
from headway.generate.offline import generate_all
from headway.generate.one_or_many import one_or_many
from headway.generate.pictures import is_picture
from headway.generate.request import Found, Request
from headway.generate.search import Search
from headway.generate.stepper import stepper_for
from headway.generate.tracing import check_one, checked, nexts, token_track, trace_of
from headway.nn import tap
from headway.nn.tap import chosen
from headway.plain import from_plain, to_plain
from headway.traces import Trace, Track
from headway.worlds.world import Floats

ASKED_AT_ONCE, BINNED = 1024, 1 << 14  # questions, and actions, that are held as large arrays together
AT_ONCE = 256  # steps of demonstrations that are answered together
ASKED = "|"  # between a picture and a question about it


class MixtureModel(Follower):
    """`headway.load(folder)` gives one: `model.ask("street.png")`, `model.ask("street.png", "how many people?")`,
    `model.play(10, command="push the puck to a goal")`."""

    told = False
    takes: ClassVar = "target"

    def __init__(self, loaded: Loaded, device: torch.device = CPU, dtype: torch.dtype = torch.float32) -> None:
        self.card, self.device, self.dtype = loaded.card, device, dtype
        model: Any = loaded.model.to(device, dtype).eval()
        self.model: Any = model
        self.observations, self.actions = loaded.processors["observations"], loaded.processors["actions"]
        self.image, self.text = loaded.processors["image"], loaded.processors["text"]
        self.tokenizer, self.symbols = self.text.tokenizer, loaded.card.symbols
        self.limit = model.config.max_length
        self.search = from_plain(Search, self.card.search, "search") if self.card.search else Search()
        self.stepper = stepper_for(model, device)  # kept: what it captures serves later calls
        self.never = (*self.symbols.never, *range(model.words, model.vocabulary))  # no text has actions

    @property
    def tokenizers(self) -> Any:  # type: ignore[override]
        return self.tokenizer, self.tokenizer

    @property
    def step_tokens(self) -> tuple[str, ...]:
        return ("state",)

    def places(self, text: str) -> int:
        return int(self.model.context)

    @property
    def first_question(self) -> str:
        """None: a picture must be named."""
        return ""

    # Texts and actions as ids.

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = self.tokenizer.encode_batch(list(texts))
        return found

    def ended(self, texts: Sequence[str]) -> list[list[int]]:
        """Answers, each with its end."""
        return [[*ids, self.symbols.end] for ids in self.ids(texts)]

    def binned(self, actions_K: Any) -> NDArray[np.int64]:
        """(K, A): actions as ids."""
        given_KA = torch.from_numpy(np.asarray(self.actions.encode(actions_K), np.float32))
        parts = [self.model.bins.bins(some.to(self.device)).cpu() for some in given_KA.split(BINNED)]
        bins_KA: NDArray[np.int64] = torch.cat(parts).numpy()
        return bins_KA + self.model.words

    # Answers in words.

    @one_or_many(is_picture)
    def ask(self, pictures: Sequence[Any], question: str = "", **search: Any) -> list[str]:
        """The answer to a question about each picture; without one, what is in it. Keywords change the search."""
        read = [self.image.read(picture) for picture in pictures]
        return self.ask_read(np.stack(read), [question] * len(read), **search) if read else []

    def ask_read(self, pixels_BCHW: Bytes, questions: Sequence[str], **search: Any) -> list[str]:
        """Of pictures that `image.read` gave, each with a question ("": none)."""
        starts = range(0, len(questions), ASKED_AT_ONCE)
        parts = ((pixels_BCHW[at : at + ASKED_AT_ONCE], questions[at : at + ASKED_AT_ONCE]) for at in starts)
        return [text for part in parts for text in self._answered(*part, **search)]

    def _answered(self, pixels_BCHW: Bytes, questions: Sequence[str], **search: Any) -> list[str]:
        settings, config = from_plain(Search, to_plain(self.search) | search, "search"), self.model.config
        stops, states = frozenset({self.symbols.end}), self.observations.config.size
        requests = []
        for pixels, ids in zip(pixels_BCHW, self.ids(questions), strict=True):
            most = self.limit - 2  # the start, and at least one token of an answer
            refuse(len(ids) > most, f"the question has {len(ids)} tokens, this model reads at most {most}")
            left = self.limit - len(ids) - 1
            given = [0] * config.given + [*ids, self.symbols.start]
            inputs = MixedRow(self.image.normalise(pixels), states, self.dtype)
            longest = settings.longest(left, left)
            requests.append(Request(given, settings, longest, stops, inputs=inputs, never=self.never))
        found: list[Found] = generate_all(
            self.model, requests, context=self.model.context, device=self.device, stepper=self.stepper
        )
        return [self.tokenizer.decode(one.hypotheses[0].ids) if one.hypotheses else "" for one in found]

    # Actions.

    def tasks(self, world: str = "", command: str = "") -> list[Asked]:
        refuse(not self.known, "this model has learned from no demonstrations: it answers headway predict")
        return super().tasks(world, command)

    def policy(
        self, wanted: float | Sequence[float] | None = None, sample: bool = False, command: str = ""
    ) -> MixturePolicy:
        known = {one.command for one in self.tasks()}
        refuse(not command and len(known) != 1, f"it follows {len(known)} commands: say which, with command=…")
        return MixturePolicy(self, command or next(iter(known)), sample)

    def seen(self, pictures: Any, states_RS: Floats) -> MixedInputs:
        """Pictures, and states that `observations.encode` gave."""
        pixels_RCHW = torch.from_numpy(np.stack(self.image.encode(pictures))).to(self.dtype)
        inputs = MixedInputs(pixels_RCHW, torch.from_numpy(states_RS), torch.ones(len(states_RS)))
        return inputs.map(lambda tensor: sent(tensor, self.device))

    def commanded(self, command: str, rows: int) -> torch.Tensor:
        """(R, T): a command, and the start of what is done."""
        ids = prompted(self.ids([command])[0], self.symbols.start, self.limit, self.actions.config.size)
        return torch.tensor([ids] * rows, device=self.device)

    def actions_of(self, found: Trajectories, most: int | None = None) -> Floats:
        """(K, A): what it would do at the steps of demonstrations, or at the first of them."""
        side, pictures = self.observations.config.pixels, found.pictures_KPP3
        refuse(
            pictures is None, f"the episodes have no pictures, which the model sees: headway collect --pictures {side}"
        )
        assert pictures is not None
        task_K = np.repeat(found.task_E, found.lengths_E)[:most]
        found_KA = np.zeros((len(task_K), self.actions.config.size), np.float32)
        states_KS = self.observations.encode(found.states_KS)
        for number, task in enumerate(found.tasks):
            [at] = np.nonzero(task_K == number)
            for some in np.split(at, range(AT_ONCE, len(at), AT_ONCE)):
                if len(some):
                    inputs = self.seen(pictures[some], states_KS[some])
                    acted_RA = self.model.acted(inputs, self.commanded(task.command, len(some)))
                    found_KA[some] = acted_RA.float().cpu().numpy()
        return found_KA

    # Traces.

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.model.config.sides)

    @torch.inference_mode()
    def trace(
        self, value: Any, target: str | None = None, *, layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None, tensors: Sequence[str] | str | None = None, top: int = 5, **search: Any,
    ) -> Trace:  # fmt: skip
        """What the model computes while it describes this picture, or answers the question behind a | (`street.png|how
        many people?`), along the places of the picture, the question and the answer, or a `target` of your own."""
        check_one(value)
        choice, config = checked(self.model, chosen(layers, heads, tensors)), self.model.config
        file, _, question = value.partition(ASKED) if isinstance(value, str) else (value, "", "")
        file = file.strip() if isinstance(file, str) else file
        text = self.ask(file, question.strip(), **search) if target is None else target
        prompt, answer = self.ids([question.strip(), text])
        read = [*prompt, self.symbols.start, *answer]
        refuse(len(read) > self.limit, f"question and answer have {len(read)} tokens, this model reads {self.limit}")
        pixels = self.image.read(file)
        states = np.zeros((1, self.observations.config.size), np.float32)
        inputs = replace(self.seen([file], states), acts_B=torch.zeros(1, device=self.device))
        ids = torch.tensor([read], device=self.device)
        with tap.record(self.model, choice) as recorder:
            logits_RTV, _ = self.model.logits(self.model.framed(ids), self.model.start(inputs, 1, self.device, 0))
        special = [False] * len(prompt) + [True] + [False] * len(answer)
        track = token_track("tokens", self.tokenizer, read, special)
        seen = self.image.track(config.sides, 0)
        labels = (*seen, "[state]", *track.labels)
        specials = (config.given - 1, *(config.given + at for at in track.specials))
        ids_of = (*[0] * config.given, *track.ids)
        tokens = Track("tokens", "tokens", labels, ids_of, specials=specials, text=f"{question.strip()} {text}".strip())
        taken = [None] * (config.given + len(prompt)) + [*answer, self.symbols.end]
        about, more = nexts(logits_RTV[0], self.tokenizer, taken, top)
        about |= {"grid": [*config.sides, 0], "caption": text} | ({"question": question.strip()} if question else {})
        tracks = [Track("picture", "patches", seen, text=str(value).partition(ASKED)[0]), tokens]
        trace = trace_of(self.model, recorder, tracks, name=self.name, about=about, more=more)
        return replace(
            trace, tensors=trace.tensors | {"pixels": pixels.transpose(1, 2, 0).copy()},
            axes=trace.axes | {"pixels": ("height", "width", "channel")},
        )  # fmt: skip

    @torch.inference_mode()
    def looked(self, inputs: Any, command: str = "") -> Floats:
        """(R, rows, columns): where in the picture the token looks behind which the action is written, in the last
        layer, the mean of its heads."""
        last = self.model.config.layers - 1
        name, rows = f"decoder.{last}.attention.weights", len(inputs)
        with tap.record(self.model, chosen([last], None, [name])) as recorder:
            self.model(inputs, self.commanded(command, rows))
        count = self.grid[0] * self.grid[1]
        looked_RN = recorder.tensors[name][:, :, -1, :count].mean(1)
        found: Floats = looked_RN.float().cpu().numpy().reshape(rows, *self.grid)
        return found


class MixturePolicy(FollowerPolicy):
    """Each step is read by itself: a picture, the state of the hand, a command."""

    actor: MixtureModel

    def __init__(self, actor: MixtureModel, command: str, sample: bool) -> None:
        super(FollowerPolicy, self).__init__(actor, 0.0, sample)
        self.command = command

    @torch.inference_mode()
    def given(self, at_R: Any) -> Floats:
        """(R, 1, A)"""
        acted_RA = self.actor.model.acted(self.window(at_R), self.actor.commanded(self.command, len(at_R)))
        found: Floats = acted_RA[:, None].float().cpu().numpy()
        return found

    def window(self, at_R: Any) -> Any:
        """The present step of these rows."""
        return self.actor.seen(self.pictures[-1][at_R], self.states[-1][at_R])

    def looking(self, at_R: Any) -> Floats:
        return self.actor.looked(self.window(at_R), self.command)
