"""The server of `headway serve`: models behind the API that OpenAI's clients speak.

    GET  /v1/models            what is served
    POST /v1/completions       text behind a prompt
    POST /v1/chat/completions  the next message of a conversation
    POST /v1/embeddings        a vector of each text
    POST /v1/translate         {"model", "input"} → {"translations"}
    POST /v1/predict           {"model", "input"} → {"predictions"}: labels, tags, answers, summaries
    GET  /health, /metrics     whether it runs; what it counts, for Prometheus
    GET  /                     the page of `headway explore`

Every error is {"error": {"message", "type", "param", "code"}}.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic_core import to_json

from headway.generate.request import Ended
from headway.serve import answers
from headway.serve.answers import Answers, Asked, RowText, prompt_logps, usage
from headway.serve.api_errors import Refused, explain, form
from headway.serve.api_errors import told as told_of
from headway.serve.app import page
from headway.serve.engine_thread import SHARED, EngineThread, Numbered, Part
from headway.serve.limits import LOOPBACK, Limited
from headway.serve.metrics import Metrics
from headway.serve.schemas import (
    ChatRequest,
    CompletionRequest,
    Drawn,
    EmbeddingRequest,
    ErrorForm,
    PredictionRequest,
    TranslationRequest,
)

Result = TypeVar("Result")
STATUSES = (400, 401, 404, 405, 408, 413, 429, 500, 503, 504)  # of errors
EVENTS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


@dataclass(frozen=True)
class Limits:
    """keys: one of them must be given; none: nobody is asked for one. rate: requests a minute of each key, or without
    keys of each address; 0: any. seconds: for a request. tokens: that one may ask for. rows: written together, of each
    model; 0: as many as suit the device. waiting: requests. hosts: names that the server answers to; none: any.
    interval: steps whose tokens a stream is sent together; 0: the more streams, the more."""

    keys: frozenset[str] = frozenset()
    rate: int = 0
    seconds: float = 600.0
    tokens: int = 1 << 20
    rows: int = 0
    waiting: int = 1024
    shared: int = SHARED
    hosts: frozenset[str] = LOOPBACK
    interval: int = 0


class Api:
    """`models`: by the names that requests call them."""

    def __init__(self, models: Mapping[str, Any], limits: Limits | None = None) -> None:
        self.limits, self.metrics = (limits := limits or Limits()), Metrics()
        self.threads = {
            name: EngineThread(model, limits.rows, limits.waiting, limits.shared, limits.interval)
            for name, model in models.items()
        }
        self.created = int(time.time())
        self.since: dict[str, tuple[float, float]] = {}  # of each key: what it may still ask, and when that was
        for name, thread in self.threads.items():
            self.metrics.watch(name, lambda own=thread: len(own.jobs), lambda own=thread: len(own.queue))  # type: ignore[misc]
            self.metrics.prefixes[name] = thread.prefixes
        told: Any = {status: {"model": ErrorForm} for status in STATUSES}
        self.app = FastAPI(title="headway", docs_url=None, redoc_url=None, redirect_slashes=False, responses=told)
        self._routes()
        self.app.openapi = lambda: described(self.app, list(models))  # type: ignore[method-assign]
        explain(self.app)
        self.app.mount("/", page(list(models.values()), workers=list(self.threads.values())))
        self.asgi = Limited(self.app, self.limits.hosts, form)

    def close(self) -> None:
        for thread in self.threads.values():
            thread.close()

    def _routes(self) -> None:
        app = self.app
        behind: dict[str, Any] = {"dependencies": [Depends(self._allowed)]}
        app.get("/health")(self.health)
        app.get("/metrics", response_class=PlainTextResponse)(self.counted)
        app.get("/v1/models", **behind)(self.listed)
        app.get("/v1/models/{name}", **behind)(self.shown)
        streams: dict[str, Any] = {"responses": {200: {"content": {"text/event-stream": {}}}}}
        app.post("/v1/completions", **behind, **streams, response_model=None)(self.completions)
        app.post("/v1/chat/completions", **behind, **streams, response_model=None)(self.chat)
        app.post("/v1/embeddings", **behind, response_model=None)(self.embeddings)
        app.post("/v1/translate", **behind, response_model=None)(self.translate)
        app.post("/v1/predict", **behind, response_model=None)(self.predict)
        every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        app.api_route("/v1/{rest:path}", methods=every, include_in_schema=False)(self.elsewhere)

    async def _allowed(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        key = given.removeprefix("Bearer ").strip()
        if self.limits.keys and not any(hmac.compare_digest(key.encode(), own.encode()) for own in self.limits.keys):
            raise Refused(401, "no valid key: send the header 'Authorization: Bearer KEY'", "invalid_api_key")
        if self.limits.rate:
            now, most = time.monotonic(), float(self.limits.rate)
            who = key if self.limits.keys or request.client is None else request.client.host
            left, then = self.since.get(who, (most, now))
            left = min(most, left + (now - then) * most / 60)
            self.since[who] = max(0.0, left - 1), now
            if left < 1:
                raise Refused(429, f"more than {self.limits.rate} requests a minute: wait", "rate_limit_exceeded")

    def _thread(self, name: str) -> EngineThread:
        if name not in self.threads:
            known = ", ".join(self.threads)
            raise Refused(404, f"there is no model '{name}' here: this server has {known}", "model_not_found")
        return self.threads[name]

    async def elsewhere(self, rest: str, request: Request) -> None:
        raise Refused(404, f"there is no {request.method} /v1/{rest[:100]} here", "not_found")

    async def health(self) -> dict[str, str]:
        return {"status": "ok"}

    async def counted(self) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def listed(self) -> dict[str, Any]:
        return {"object": "list", "data": [await self.shown(name) for name in self.threads]}

    async def shown(self, name: str) -> dict[str, Any]:
        limit = self._thread(name).model.limit
        found = {"id": name, "object": "model", "created": self.created, "owned_by": "headway"}
        return found | ({} if limit is None else {"max_model_len": limit})

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        thread = self._thread(body.model)
        model = thread.model
        answers.check_verb(model, "generate")
        asked = await asyncio.to_thread(answers.completions, model, body)
        self._count(asked)
        told = Answers(model, body.model, False, body.logprobs is not None)
        before: list[Any] = [None] * len(asked)
        if body.echo and body.logprobs is not None:
            reading = thread.do(lambda: [_echoed(model, one, body.logprobs or 0) for one in asked])
            before = await self._waited(request, reading)
        only_read = body.max_tokens == 0
        if body.stream:
            return self._streamed(thread, body, told, asked, before, only_read)
        rows = await self._written(thread, body, asked, request, only_read)
        choices, wanted = list[dict[str, Any]](), body.n or 1
        for one, echoed, own in zip(asked, before, rows, strict=True):
            best = sorted(own, key=lambda row: -row.mean)[:wanted] if len(own) > wanted else own
            start = 0 if echoed else len(self._before(thread, one))
            choices += [told.choice(len(choices) + at, row, one.echo, echoed, start) for at, row in enumerate(best)]
        return JSONResponse(told.whole(choices, _usage(asked, rows)))

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        thread = self._thread(body.model)
        model = thread.model
        answers.check_verb(model, "generate")
        asked = [await asyncio.to_thread(answers.conversation, model, body, self.limits.tokens)]
        self._count(asked)
        told = Answers(model, body.model, True, bool(body.logprobs), answers.calls(body))
        if body.stream:
            return self._streamed(thread, body, told, asked, [None], False)
        [rows] = found = await self._written(thread, body, asked, request)
        return JSONResponse(told.whole([told.choice(at, row) for at, row in enumerate(rows)], _usage(asked, found)))

    def _count(self, asked: list[Asked]) -> None:
        rows = sum(one.request.samples for one in asked)
        if rows > self.limits.waiting:
            raise Refused(400, f"{rows} texts in one request, this server writes at most {self.limits.waiting}")
        most = max(one.request.max_new for one in asked)
        if most > self.limits.tokens:
            raise Refused(400, f"max_tokens: {most} is more than this server writes, {self.limits.tokens}")

    async def _parts(
        self, thread: EngineThread, name: str, asked: list[Asked], seconds: float = 0.0
    ) -> AsyncGenerator[list[Numbered], None]:
        """What is written behind these prompts, counted."""
        began = time.monotonic()
        before: dict[tuple[int, int], float] = {}
        self.metrics.read.labels(name).inc(sum(len(one.request.given) for one in asked))
        first, between = self.metrics.first.labels(name), self.metrics.between.labels(name)
        written = self.metrics.written.labels(name)
        requests, stop = [one.request for one in asked], asked[0].stop
        async with aclosing(thread.write(requests, stop, seconds)) as batches:
            async for parts in batches:
                now = time.monotonic()
                for number, part in parts:
                    row = number, part.sample
                    timed = between if row in before else first
                    timed.observe(now - before.get(row, began))
                    before[row] = now
                    written.inc(part.id is not None)
                    if part.ended:
                        self.metrics.all.labels(name).observe(now - began)
                        self.metrics.done.labels(name, answers.REASONS[part.ended]).inc()
                yield parts

    async def _written(
        self, thread: EngineThread, body: Drawn, asked: list[Asked], request: Request, only_read: bool = False
    ) -> list[list[RowText]]:
        """Every row to its end. A client that hangs up ends them."""
        ended: Ended | None = "length" if only_read else None
        found = [[RowText(ended=ended) for _ in range(one.request.samples)] for one in asked]

        async def rows() -> None:
            async with aclosing(self._parts(thread, body.model, asked)) as batches:
                async for parts in batches:
                    for number, part in parts:
                        found[number][part.sample].add(part)

        if not only_read:
            await self._waited(request, rows())
        return found

    async def _waited(self, request: Request, work: Awaitable[Result]) -> Result:
        async with asyncio.timeout(self.limits.seconds):
            return await _unless_gone(request, work)

    def _streamed(
        self, thread: EngineThread, body: Drawn, told: Answers, asked: list[Asked], before: list[Any], only_read: bool
    ) -> Response:
        first = _openings(body.n or 1, told, asked, before, only_read)
        events = self._events(thread, body, told, asked, first, only_read)
        return StreamingResponse(events, media_type="text/event-stream", headers=EVENTS)

    async def _events(
        self, thread: EngineThread, body: Drawn, told: Answers, asked: list[Asked], first: list[dict[str, Any]],
        only_read: bool,
    ) -> AsyncIterator[bytes]:  # fmt: skip
        """What comes before anything is written, an event for each token of all rows (where tools may be called, for
        each text), those together that wait together, then `[DONE]`; an error in between is an event too."""
        samples, written = body.n or 1, 0
        offsets = [len(self._before(thread, one)) for one in asked for _ in range(samples)] if told.scored else None

        def event(number: int, part: Part) -> bytes:
            nonlocal written
            index, empty = number * samples + part.sample, not part.text and not part.ended
            written += part.id is not None
            if empty and (part.id is None or told.calls is not None):
                return b""
            found = _event(told.chunk([told.part(index, part, offsets[index] if offsets else 0)]))
            if offsets:
                offsets[index] += len(part.text)
            return found

        for choice in first:
            yield _event(told.chunk([choice]))
        try:
            if not only_read:
                async with aclosing(self._parts(thread, body.model, asked, self.limits.seconds)) as batches:
                    async for parts in batches:
                        if events := b"".join(event(number, part) for number, part in parts):
                            yield events
        except Exception as error:
            yield _event(told_of(error)[1])
        if body.stream_options and body.stream_options.include_usage:
            yield _event(told.chunk([], usage(sum(len(one.request.given) for one in asked), written)))
        yield b"data: [DONE]\n\n"

    def _before(self, thread: EngineThread, one: Asked) -> str:
        """The text of a prompt: places of tokens are counted from its start."""
        text: str = thread.model.writes.decode(one.request.given)
        return text

    async def embeddings(self, body: EmbeddingRequest, request: Request) -> Response:
        thread = self._thread(body.model)
        model, texts = thread.model, [body.input] if isinstance(body.input, str) else body.input
        answers.check_verb(model, "embed")
        vectors = await self._waited(request, thread.do(lambda: np.asarray(model.embed(texts), np.float32)))
        data = [{"object": "embedding", "index": at, "embedding": _numbers(vector, body.encoding_format)}
                for at, vector in enumerate(vectors)]  # fmt: skip
        read = sum(map(len, model.tokenizers[0].encode_batch(texts)))
        counts = {"prompt_tokens": read, "total_tokens": read}
        return JSONResponse({"object": "list", "data": data, "model": body.model, "usage": counts})

    async def translate(self, body: TranslationRequest, request: Request) -> Response:
        thread = self._thread(body.model)
        model, texts = thread.model, [body.input] if isinstance(body.input, str) else body.input
        answers.check_verb(model, "translate")
        found = await self._waited(request, thread.do(lambda: model.translate(texts)))
        return JSONResponse({"model": body.model, "translations": found})

    async def predict(self, body: PredictionRequest, request: Request) -> Response:
        """What the model's own task answers, as `headway predict` does."""
        thread = self._thread(body.model)
        model, given = thread.model, [body.input] if isinstance(body.input, str) else body.input
        values = [one if isinstance(one, str) else tuple(one) for one in given]
        if "generate" in model.asked():  # nothing else could be written beside
            raise Refused(400, "this model writes texts: ask POST /v1/completions or /v1/chat/completions")
        task = answers.task_of(model)
        found = await self._waited(request, thread.do(lambda: list(task.answer(model, values, dict(body.options)))))
        return JSONResponse({"model": body.model, "predictions": [one.values for one in found]})


def described(app: FastAPI, models: list[str]) -> dict[str, Any]:
    """The description of the API, with the names of the models that are served."""
    if app.openapi_schema is None:
        app.openapi_schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for schema in app.openapi_schema["components"]["schemas"].values():
            if "model" in schema.get("properties", {}):
                schema["properties"]["model"]["enum"] = models
    return app.openapi_schema


def _openings(
    samples: int, told: Answers, asked: list[Asked], before: list[Any], only_read: bool
) -> list[dict[str, Any]]:
    """What a stream begins with: who speaks, in a conversation; an echoed prompt, with its log-probabilities."""
    numbered = [(one, own) for one, own in zip(asked, before, strict=True) for _ in range(samples)]
    if told.chat:
        return [told.opening(at) for at in range(len(numbered))]
    row = RowText(ended="length" if only_read else None)
    return [told.choice(at, row, one.echo, own) for at, (one, own) in enumerate(numbered) if one.echo or only_read]


def _numbers(vector: Any, how: str) -> Any:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode() if how == "base64" else vector.tolist()


def _echoed(model: Any, one: Asked, count: int) -> tuple[list[int], list[Any], list[Any]]:
    logps, top = prompt_logps(model, one.request.given, count)
    return list(one.request.given), logps, top


def _usage(asked: list[Asked], rows: list[list[RowText]]) -> dict[str, int]:
    return usage(sum(len(one.request.given) for one in asked), sum(row.written for own in rows for row in own))


def _event(body: Any) -> bytes:
    return b"data: " + to_json(body) + b"\n\n"


async def _unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """The result of some work, which is ended when the client hangs up."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, left = asyncio.ensure_future(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Refused(499, "the client has hung up")
        return task.result()
    finally:
        for one in (task, left):
            one.cancel()
        await asyncio.gather(task, left, return_exceptions=True)
