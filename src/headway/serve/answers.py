"""From requests in OpenAI's form to the engine's, and from what it writes to answers in that form."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from headway.errors import InputError, refuse
from headway.generate.request import Ended, Request
from headway.generate.sampling import Bias, Sampling
from headway.generate.schema import JsonText
from headway.serve import tools
from headway.serve.engine_thread import Part
from headway.serve.schemas import ChatRequest, CompletionRequest, Drawn
from headway.serve.tools import CallReader
from headway.text.chat import rendered

CALLED = "tool_calls"
DEFAULT_TOKENS = 16  # of a completion, as OpenAI has it
REASONS: dict[Ended, str] = {"stop": "stop", "nothing": "stop", "length": "length", "context": "length"}
Top = tuple[tuple[int, float], ...]


@dataclass
class RowText:
    """One row so far. written: how many tokens; ids: those and the one that ended it, as vLLM tells their
    log-probabilities."""

    text: str = ""
    written: int = 0
    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    top: list[Top] = field(default_factory=list)
    ended: Ended | None = None

    def add(self, part: Part) -> None:
        self.text += part.text
        self.ended = part.ended
        self.written += part.id is not None
        if part.scored is not None:
            self.ids.append(part.scored)
            self.logps.append(part.logp)
            self.top.append(part.top)

    @property
    def mean(self) -> float:
        return sum(self.logps) / len(self.logps) if self.logps else -float("inf")


@dataclass(frozen=True)
class Asked:
    """What is written behind one prompt. echo: the prompt stands before it, as text."""

    request: Request
    stop: tuple[str, ...]
    echo: str = ""


def sampling(body: Drawn) -> Sampling:
    bias = tuple(Bias((token,), amount) for token, amount in (body.logit_bias or {}).items())
    given = {
        "temperature": body.temperature, "top_p": body.top_p, "top_k": body.top_k and max(0, body.top_k),
        "min_p": body.min_p, "repetition": body.repetition_penalty, "presence": body.presence_penalty,
        "frequency": body.frequency_penalty, "bias": bias,
    }  # fmt: skip
    return Sampling(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


def stops(body: Drawn) -> tuple[str, ...]:
    found = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    refuse("" in found, "stop: a stop string must not be empty")
    return found


def prompts(model: Any, body: CompletionRequest) -> list[list[int]]:
    given: Any = body.prompt
    several = isinstance(given, list) and not isinstance(given[0], int)
    return [model.ids(one) if isinstance(one, str) else one for one in (given if several else [given])]


def completions(model: Any, body: CompletionRequest) -> list[Asked]:
    """A request for each prompt; one that is only echoed asks for a token that is then left out."""
    count = DEFAULT_TOKENS if body.max_tokens is None else body.max_tokens
    refuse(not count and not body.echo, "max_tokens: 0 tokens are only for echo, which gives back the prompt")
    samples, wanted = body.best_of or body.n or 1, body.n or 1
    refuse(samples < wanted, f"best_of: {samples} is less than n, {wanted}")
    refuse(samples > wanted and body.stream, "best_of: a stream cannot choose the best of several")
    found = []
    for ids in prompts(model, body):
        echo = model.writes.decode(ids) if body.echo else ""
        found.append(Asked(request(model, body, ids, max(1, count), samples, body.logprobs or 0), stops(body), echo))
    return found


def conversation(model: Any, body: ChatRequest, most: int) -> Asked:
    """`most`: tokens of an answer of which the request does not say how long it may be."""
    if model.tokenizer.chat is None:
        raise InputError("this model has no template of conversations: send a prompt to /v1/completions")
    chat, messages = model.tokenizer.chat, [message.plain() for message in body.messages]
    ids = model.tokenizer.encode(
        rendered(chat, messages, tools=tools.shown(body.tools, body.tool_choice, chat.template))
    )
    room = max(1, min(most, model.context - len(ids)))
    count = body.max_completion_tokens or body.max_tokens or room
    refuse(
        body.top_logprobs and not body.logprobs, "top_logprobs: the likeliest tokens come with logprobs, set it to true"
    )
    schema = tools.forced(body.tools, body.tool_choice)
    refuse(schema and body.response_format, "response_format: a tool that must be called has a form of its own")
    held = schema and JsonText(model.tokenizer, model.model.vocabulary, schema)
    return Asked(request(model, body, ids, count, body.n or 1, body.top_logprobs or 0, held or None), stops(body))


def calls(body: ChatRequest) -> Callable[[], CallReader] | None:
    """What reads the calls of a row; None where no tool may be called."""
    if not body.tools or body.tool_choice == "none":
        return None
    return partial(CallReader, tools.forced(body.tools, body.tool_choice) is not None)


def request(
    model: Any, body: Drawn, ids: Sequence[int], count: int, samples: int, top: int, held: JsonText | None = None
) -> Request:
    """Checked: what the engine is given it can do. `held`: what the text is held to, beside what the body says."""
    known = () if body.ignore_eos else model.tokenizer.stops
    ends = frozenset(i for i in known if i < model.model.vocabulary)
    seed = secrets.randbits(31) if body.seed is None else body.seed
    asked = Request(ids, sampling(body), count, ends, samples, seed, top, constrain=held or constraint(model, body))
    asked.check("the prompt", model.model.vocabulary, model.context)
    return asked


def constraint(model: Any, body: Drawn) -> JsonText | None:
    wanted = body.response_format
    if wanted is None or wanted.type == "text":
        return None
    given = wanted.json_schema and wanted.json_schema.schema_
    refuse(
        wanted.type == "json_schema" and given is None, "response_format.json_schema: give the schema under 'schema'"
    )
    return JsonText(model.tokenizer, model.model.vocabulary, given)


def prompt_logps(model: Any, ids: Sequence[int], count: int) -> tuple[list[float | None], list[Top]]:
    """Of each token of a prompt how likely it was, and the likeliest there; of the first nothing is known."""
    with torch.inference_mode():
        ids_1T = torch.tensor([list(ids)], device=model.device)
        hidden_1TD, state = model.model.read(ids_1T)
        logp_TV = model.model.head(hidden_1TD[:, :-1], state)[0].float().log_softmax(-1)
        own_T = logp_TV.gather(1, ids_1T[0, 1:, None])[:, 0]
        values_TA, ids_TA = logp_TV.topk(min(max(1, count), logp_TV.shape[1]), -1)
    top: list[Top] = [()]
    for some, values in zip(ids_TA.tolist(), values_TA.tolist(), strict=True):
        top.append(tuple(zip(some, values, strict=True))[:count])
    return [None, *own_T.tolist()], top


def spelled(raw: bytes) -> str:
    """A token as text; bytes that are no whole character by their numbers, so that different tokens stay different."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


class Answers:
    """The bodies of one answer, whole or in parts."""

    def __init__(
        self, model: Any, name: str, chat: bool, scored: bool, calls: Callable[[], CallReader] | None = None
    ) -> None:
        """`calls`: reads what a row that may call tools has written."""
        self.model, self.name, self.chat, self.scored, self.calls = model, name, chat, scored, calls
        self.readers: dict[int, CallReader] = {}  # of a stream's rows
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def whole(self, choices: list[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        kind = "chat.completion" if self.chat else "text_completion"
        return self._head(kind) | {"choices": choices, "usage": usage}

    def chunk(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return self._head(kind) | {"choices": choices} | ({} if usage is None else {"usage": usage})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.name}

    def choice(self, index: int, row: RowText, echo: str = "", before: Any = None, offset: int = 0) -> dict[str, Any]:
        """`before`: ids, log-probabilities and likeliest tokens of an echoed prompt."""
        ids, logps, top = row.ids, row.logps, row.top
        if before is not None:
            ids, logps, top = before[0] + ids, before[1] + logps, before[2] + top
        found = {"index": index, "finish_reason": REASONS[row.ended] if row.ended else None}
        scores = self._scores(ids, logps, top, offset) if self.scored else None
        if self.chat:
            message: dict[str, Any] = {"role": "assistant", "content": row.text}
            if self.calls:
                reader = self.calls()
                before_calls = reader.add(row.text)
                rest, calls = reader.end()
                message["content"] = before_calls + rest
                if calls:
                    message |= {"content": message["content"].strip() or None, "tool_calls": calls}
                    found["finish_reason"] = CALLED if found["finish_reason"] == "stop" else found["finish_reason"]
            return found | {"message": message, "logprobs": scores}
        return found | {"text": echo + row.text, "logprobs": scores}

    def opening(self, index: int) -> dict[str, Any]:
        """The first part of a streamed answer in a conversation says who speaks."""
        return {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def part(self, index: int, part: Part, offset: int) -> dict[str, Any]:
        token, scores = part.scored, None
        if self.scored and token is not None:
            scores = self._scores([token], [part.logp], [part.top], offset)
        found = {"index": index, "finish_reason": REASONS[part.ended] if part.ended else None, "logprobs": scores}
        if self.chat and self.calls:
            return self._called(found, self.readers.setdefault(index, self.calls()), part)
        if self.chat:
            return found | {"delta": {"content": part.text} if part.text or not part.ended else {}}
        return found | {"text": part.text}

    def _called(self, found: dict[str, Any], reader: CallReader, part: Part) -> dict[str, Any]:
        """A part of a row that may call tools: its calls come with its last part."""
        text, calls = reader.add(part.text), list[dict[str, Any]]()
        if part.ended:
            rest, calls = reader.end()
            text += rest
        delta: dict[str, Any] = {"content": text} if text else {}
        if calls:
            delta["tool_calls"] = [{"index": at} | call for at, call in enumerate(calls)]
            found["finish_reason"] = CALLED if found["finish_reason"] == "stop" else found["finish_reason"]
        return found | {"delta": delta}

    def _scores(self, ids: list[int], logps: Sequence[float | None], top: list[Top], offset: int) -> dict[str, Any]:
        raw = self.model.writes.raw(ids)
        texts = [spelled(one) for one in raw]
        if not self.chat:
            offsets = []
            for text in texts:
                offsets.append(offset)
                offset += len(text)
            shown = [None if logps[at] is None else self._likeliest(top[at]) for at in range(len(ids))]
            return {"tokens": texts, "token_logprobs": list(logps), "top_logprobs": shown, "text_offset": offsets}
        found = []
        for text, own, logp, others in zip(texts, raw, logps, top, strict=True):
            entry = {"token": text, "logprob": logp, "bytes": list(own)}
            likeliest = [
                {"token": spelled(other), "logprob": value, "bytes": list(other)}
                for other, (_, value) in zip(self.model.writes.raw(i for i, _ in others), others, strict=True)
            ]
            found.append(entry | {"top_logprobs": likeliest})
        return {"content": found}

    def _likeliest(self, top: Top) -> dict[str, float]:
        raw = self.model.writes.raw(i for i, _ in top)
        return {spelled(text): value for text, (_, value) in zip(raw, top, strict=True)}


def usage(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def task_of(model: Any) -> Any:
    """The task that a model was trained for, where it answers texts."""
    if model.task is None or model.task.takes not in (("text",), ("source", "target")):
        raise InputError("this model is not asked for predictions of texts")
    return model.task


def check_verb(model: Any, verb: str) -> None:
    """Refuse what a model cannot do."""
    if verb not in model.asked():
        raise InputError(f"this model does not {verb}: it can {', '.join(model.asked())}")
