"""The application: the page, and the traces that it requests.

    GET  /           the page
    GET  /api/model  what each model is
    POST /api/trace  {"text", "second", "model", "layers", "heads", "beam"} → a trace file's bytes
    POST /api/next   {"ids", "model"} → {"text"}: the text of these tokens

Every error is {"error": "one line"}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from headway.errors import InputError, refuse
from headway.explore.asking import Question, answer, card, spelled
from headway.explore.pages import page_html
from headway.explore.payload import MOST
from headway.generate.tracing import Answering
from headway.serve.limits import Limited
from headway.serve.worker import Busy, Worker

Result = TypeVar("Result")
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
NO_JSON = (
    'the request is no JSON object, or its content-type is not application/json: send {"text": "a text"} '
    'to /api/trace, {"ids": [1, 2]} to /api/next'
)


class TraceRequest(BaseModel, extra="forbid"):
    text: str
    second: str | None = None
    model: int = Field(0, ge=0)
    layers: set[int] | None = Field(None, max_length=1000)
    heads: set[int] | None = Field(None, max_length=1000)
    beam: int | None = Field(None, ge=1, le=32)


class Tokens(BaseModel, extra="forbid"):
    ids: list[int] = Field(max_length=100_000)
    model: int = Field(0, ge=0)


class Works(Protocol):
    """What does work with a model, one task after the other."""

    async def do(self, task: Callable[[], Result]) -> Result: ...


def application(
    models: Sequence[Answering] = (), question: Question | None = None, traces: Sequence[bytes] = (), *,
    waiting: int = 8,
) -> Limited:  # fmt: skip
    """With models a page on which they can be queried; without, a page of traces. `question`: what it shows first."""
    return Limited(page(models, question, traces, [Worker(waiting)] * len(models)))


def page(
    models: Sequence[Answering], question: Question | None = None, traces: Sequence[bytes] = (),
    workers: Sequence[Works] = (),
) -> FastAPI:  # fmt: skip
    """`workers`: of each model."""
    app = FastAPI(title="headway", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    cards = [card(model) for model in models]
    html = page_html(traces, {"live": bool(models), "cards": cards, "asked": asdict(question) if question else None})

    def check(number: int) -> int:
        refuse(number >= len(models), f"there is no model {number}: this server has {len(models)}, counted from 0")
        return number

    @app.api_route("/", methods=["GET", "HEAD"])
    async def start() -> Response:
        return HTMLResponse(html, headers=HEADERS)

    @app.api_route("/api/model", methods=["GET", "HEAD"])
    async def model() -> Response:
        return JSONResponse({"models": cards}, headers=HEADERS)

    @app.post("/api/trace")
    async def trace(request: TraceRequest) -> Response:
        def work() -> bytes:
            layers, heads = (None if one is None else tuple(sorted(one)) for one in (request.layers, request.heads))
            own = Question(request.text, request.second or None, layers, heads, request.beam)
            return answer(models[request.model], own, MOST // len(models))

        found = await workers[check(request.model)].do(work)
        return Response(found, media_type="application/octet-stream", headers=HEADERS)

    @app.post("/api/next")
    async def following(tokens: Tokens) -> Response:
        text = await workers[check(tokens.model)].do(lambda: spelled(models[tokens.model], tokens.ids))
        return JSONResponse({"text": text}, headers=HEADERS)

    _explain(app)
    return app


def _explain(app: FastAPI) -> None:
    """Every error becomes one line, and the server keeps running."""

    def answers(error: type[Exception], status: int, line: Callable[[Any], str]) -> None:
        async def respond(_request: Request, found: Exception) -> Response:
            code = getattr(found, "status_code", status)
            return JSONResponse({"error": line(found)}, code, headers=HEADERS)

        app.add_exception_handler(error, respond)

    answers(InputError, 422, lambda error: " ".join(str(error).split()))
    answers(Busy, 503, lambda _: "the model is busy with other requests: try again in a moment")
    answers(RequestValidationError, 422, _first)
    answers(HTTPException, 404, lambda error: NO_JSON if error.status_code == 400 else f"{error.detail}".lower())
    answers(MemoryError, 503, lambda _: "there is not enough memory for this text: shorten it")
    answers(Exception, 500, lambda _: "headway failed on this request: the terminal it runs in shows where")


def _first(error: RequestValidationError) -> str:
    first = error.errors()[0]
    if first["loc"] == ("body",) or first["type"] == "json_invalid":
        return NO_JSON
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    return f"{place}: {first['msg'].lower()}"
