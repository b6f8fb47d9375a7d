"""Errors in the form of OpenAI's API: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from headway.errors import InputError
from headway.serve.worker import Busy


class Refused(Exception):
    """An error of the API's own form."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def form(message: str, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None) -> Any:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def explain(app: FastAPI) -> None:
    async def respond(_request: Request, error: Exception) -> Response:
        status, body = told(error)
        return JSONResponse(body, status)

    kinds: tuple[type[Exception], ...] = (
        Refused, InputError, Busy, RequestValidationError, HTTPException, MemoryError, TimeoutError, Exception,
    )  # fmt: skip
    for kind in kinds:
        app.add_exception_handler(kind, respond)


def told(error: BaseException) -> tuple[int, Any]:
    """The status and the body of an error."""
    for kind, tell in TOLD.items():
        if isinstance(error, kind):
            found: tuple[int, Any] = tell(error)
            return found
    return 500, form("headway failed on this request: the terminal it runs in shows where", "server_error")


def _refused(error: Refused) -> tuple[int, Any]:
    return error.status, form(str(error), code=error.code)


def _invalid(error: RequestValidationError) -> tuple[int, Any]:
    found = error.errors()
    first, where = found[0], found[0]["loc"]
    if first["type"] == "json_invalid" or where == ("body",):
        return 400, form("the body is no JSON object, or its content-type is not application/json")
    if first["type"] == "string_type" and where[-1] == "str":
        first, where = _nearest(found, where[:-1])
    place = ".".join(str(part) for part in where if part != "body")
    return 400, form(f"{place}: {first['msg'].lower()}", param=place)


def _nearest(found: Sequence[Any], field: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Of a field that may be a text or other things: what is wrong with the one that fits furthest, and where."""

    def rank(one: Any) -> tuple[tuple[int, ...], bool]:
        inside = one["loc"][len(field) + 1 :]
        return tuple(part if isinstance(part, int) else 0 for part in inside), not one["type"].endswith("_type")

    kinds: dict[Any, Any] = {}  # the first fault of each
    for one in found:
        if one["loc"][: len(field)] == field:
            kinds.setdefault(one["loc"][len(field)], one)
    best = max(kinds.values(), key=rank)
    return best, (*field, *best["loc"][len(field) + 1 :])


def _of_http(error: HTTPException) -> tuple[int, Any]:
    return error.status_code, form(f"{error.detail}".lower(), code="not_found" if error.status_code == 404 else None)


def _input(error: InputError) -> tuple[int, Any]:
    line = " ".join(str(error).split())
    long = "reads at most" in line
    return 400, form(line, code="context_length_exceeded" if long else None)


TOLD: dict[type[BaseException], Callable[[Any], tuple[int, Any]]] = {
    Refused: _refused,
    InputError: _input,
    RequestValidationError: _invalid,
    HTTPException: _of_http,
    Busy: lambda _: (503, form("the server is full: try again in a moment", "server_error", code="overloaded")),
    MemoryError: lambda error: (503, form(str(error) or "there is not enough memory: shorten it", "server_error")),
    TimeoutError: lambda _: (504, form("the request took longer than this server allows (--timeout)", "server_error")),
}
