"""The probability of a text under a language model, and the likeliest of several answers.

log p(x) = Σ_t log p(x_t | x_<t); an answer a to a prompt c is judged by log p(a | c), so that a model which only
predicts words can classify, decide and answer without being trained to (Radford et al. 2019; Brown et al. 2020, 2.4).

B rows, T length, C choices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.labelled import padded
from headway.errors import InputError, refuse
from headway.generate.generator import Generator
from headway.generate.spelling import continuation

TOKENS_AT_ONCE = 4096
By = Literal["sum", "token", "character"]
BETWEEN = "\n\n"  # two examples


@dataclass(frozen=True)
class ScoredText:
    """A text, its tokens, and log p of each from those before it (the first from what begins a text)."""

    text: str
    tokens: list[str]
    logps: list[float]

    @property
    def total(self) -> float:
        return math.fsum(self.logps)

    @property
    def perplexity(self) -> float:
        """By token; of no token it is 1."""
        return math.exp(-self.total / max(1, len(self.logps)))


@dataclass(frozen=True)
class Choice:
    """One of the answers to a prompt: log p(answer | prompt), how long it is, and its share among the answers, which is
    softmax of what they are judged by."""

    text: str
    logp: float
    tokens: int
    judged: float
    share: float


def score_texts(generator: Generator, texts: Sequence[str]) -> list[ScoredText]:
    """Each text, in order; long ones with long ones, so that little is padded."""
    start = generator.ids("")
    rows = [[*start, *generator.tokenizer.encode(text)] for text in texts]
    for number, row in enumerate(rows, 1):
        _check_length(f"text {number}", len(row), generator.context)
    found: dict[int, ScoredText] = {}
    for at in _batches(rows):
        # Padding is on the right, where no token of the row looks.
        with torch.inference_mode():
            logp_BT = generator.model.score(_padded([rows[i] for i in at], generator.device)).double().cpu()
        for i, logps in zip(at, logp_BT.tolist(), strict=True):
            own = slice(len(start), len(rows[i]))
            found[i] = ScoredText(texts[i], generator.tokenizer.tokens(rows[i][own]), logps[own])
    return [found[i] for i in range(len(texts))]


def _check_length(name: str, length: int, context: int) -> None:
    refuse(length > context, f"{name} has {length} tokens, this model reads at most {context}: shorten it")


def _batches(rows: list[list[int]]) -> Iterator[list[int]]:
    """Numbers of rows that are scored together: of similar length, and not too many tokens."""
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    while order:
        most = max(1, TOKENS_AT_ONCE // max(1, len(rows[order[0]])))
        yield order[:most]
        order = order[most:]


def _padded(rows: list[list[int]], device: torch.device) -> Tensor:
    return padded(rows, max(map(len, rows)), 0).to(device)


def choose(generator: Generator, prompts: Sequence[str], choices: Sequence[str], by: By = "sum") -> list[list[Choice]]:
    """The choices behind each prompt, the best first. A choice is written as it follows the prompt, with its space.

    by: judged by the log-probability of the whole answer, per token or per character: otherwise long answers are
    unlikely.
    """
    refuse(by not in get_args(By), f"choices are judged by {', '.join(get_args(By))}, not by {by!r}")
    if len(choices) < 2 or "" in choices or len(set(choices)) < len(choices):
        raise InputError("give at least two choices, all different and none of them empty")
    answers = [continuation(generator.tokenizer, choice) for choice in choices]
    longest = max(map(len, answers))
    found = []
    for number, prompt in enumerate(prompts, 1):
        ids = generator.ids(prompt)
        _check_length(f"prompt {number} with its longest choice", len(ids) + longest, generator.context)
        logps = _answer_logps(generator.model, ids, answers, generator.device)
        found.append(_ranked(choices, logps, [len(answer) for answer in answers], by))
    return found


@torch.inference_mode()
def _answer_logps(model: Any, prompt: list[int], answers: list[list[int]], device: torch.device) -> list[float]:
    """log p(answer | prompt): the prompt is read once, and each answer continues from there."""
    state = model.start(None, 1, device, room=len(prompt) + max(map(len, answers)))
    hidden_1TD, state = model.read(torch.tensor([prompt], device=device), state)
    state.keep(torch.zeros(len(answers), dtype=torch.long, device=device))
    hidden_CTD = hidden_1TD[:, -1:].expand(len(answers), -1, -1)
    ids_CT = _padded(answers, device)
    if ids_CT.shape[1] > 1:
        hidden_CTD = torch.cat([hidden_CTD, model.read(ids_CT[:, :-1], state)[0]], 1)
    logits_CTV = model.head(hidden_CTD, state).double()
    logp_CT = F.log_softmax(logits_CTV, -1).gather(-1, ids_CT[..., None]).squeeze(-1).cpu()
    return [float(row[: len(answer)].sum()) for row, answer in zip(logp_CT, answers, strict=True)]


def _ranked(choices: Sequence[str], logps: list[float], tokens: list[int], by: By) -> list[Choice]:
    sizes = {"sum": [1] * len(choices), "token": tokens, "character": [len(choice) for choice in choices]}[by]
    judged = [logp / size for logp, size in zip(logps, sizes, strict=True)]
    shares = torch.tensor(judged, dtype=torch.float64).softmax(0).tolist()
    found = [Choice(*one) for one in zip(choices, logps, tokens, judged, shares, strict=True)]
    return sorted(found, key=lambda choice: -choice.judged)


@dataclass(frozen=True)
class Task:
    """A question as text: examples with their answers first (few shots, or none), then the question.

    template: has {text} and ends in {answer}, as in "Review: {text}\\nSentiment: {answer}".
    """

    template: str = "{text} {answer}"
    examples: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.template.count("{text}") != 1 or not self.template.endswith("{answer}"):
            raise InputError(f"the template must have {{text}} once and end in {{answer}}, not {self.template!r}")

    @property
    def lead(self) -> str:
        """All but the answer. White space at its end belongs to the answer."""
        return self.template.removesuffix("{answer}")

    def prompt(self, text: str) -> str:
        shots = [self.lead.replace("{text}", question) + answer for question, answer in self.examples]
        return BETWEEN.join([*shots, self.lead.replace("{text}", text)]).rstrip()

    def choices(self, answers: Sequence[str]) -> list[str]:
        """As they follow the prompt."""
        space = self.lead[len(self.lead.rstrip()) :] or ""
        return [space + answer for answer in answers]
