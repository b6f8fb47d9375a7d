"""Tools that a model may call: shown to it by its own chat template, and its calls read from what it writes.

A call is written as Hermes and Qwen write it, `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, as often as the
model likes and with text before it. Where a request says that a tool must be called, the text is held to the JSON of
one call, so that every model can.
"""

from __future__ import annotations

import json
import uuid
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool

from headway.errors import InputError, refuse

BEGIN, END = "<tool_call>", "</tool_call>"
MOST_TOOLS = 128
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class Function(BaseModel, extra="forbid"):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: StrictBool | None = None


class Tool(BaseModel, extra="forbid"):
    type: Literal["function"]
    function: Function

    def plain(self) -> dict[str, Any]:
        """As templates know it."""
        function = self.function
        empty: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
        told = {"name": function.name, "description": function.description or ""}
        return {"type": "function", "function": told | {"parameters": function.parameters or empty}}


class Named(BaseModel, extra="ignore"):
    name: Name


class OneTool(BaseModel, extra="forbid"):
    type: Literal["function"]
    function: Named


ToolChoice = Literal["none", "auto", "required"] | OneTool


class Called(BaseModel, extra="ignore"):
    name: str
    arguments: str = "{}"


class ToolCall(BaseModel, extra="ignore"):
    """A call that a model has made earlier in a conversation."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: Called

    def plain(self) -> dict[str, Any]:
        try:
            arguments = json.loads(self.function.arguments)
        except ValueError:
            arguments = self.function.arguments
        except RecursionError as error:
            raise InputError(f"messages: the arguments of {self.function.name} are nested too deeply") from error
        called = {"name": self.function.name, "arguments": arguments}
        return {"type": "function", "function": called} | ({"id": self.id} if self.id else {})


def shown(tools: list[Tool] | None, choice: ToolChoice | None, template: str) -> list[dict[str, Any]] | None:
    """What the template is given; None without tools."""
    if not tools:
        refuse(choice not in (None, "none", "auto"), "tool_choice: there are no tools to choose from")
        return None
    if choice == "none":
        return None
    refuse("tools" not in template, "tools: this model's chat template shows it no tools: leave them out")
    return [tool.plain() for tool in tools]


def forced(tools: list[Tool] | None, choice: ToolChoice | None) -> dict[str, Any] | None:
    """The JSON schema of a call that must be made; None where the model is free."""
    if not tools or choice in (None, "none", "auto"):
        return None
    allowed = tools
    if isinstance(choice, OneTool):
        allowed = [tool for tool in tools if tool.function.name == choice.function.name]
        if not allowed:
            raise InputError(f"tool_choice: there is no tool called {choice.function.name}")
    return {"anyOf": [_schema(tool.plain()["function"], at) for at, tool in enumerate(allowed)]}


def _schema(function: dict[str, Any], at: int) -> dict[str, Any]:
    arguments = _moved(function["parameters"], f"#/anyOf/{at}/properties/arguments")
    properties = {"name": {"const": function["name"]}, "arguments": arguments}
    return {
        "type": "object", "properties": properties, "required": ["name", "arguments"], "additionalProperties": False,
    }  # fmt: skip


def _moved(schema: Any, place: str) -> Any:
    """A schema whose references to itself are from another place of a larger one."""
    if isinstance(schema, list):
        return [_moved(one, place) for one in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value, place) for key, value in schema.items()}
    target = schema.get("$ref")
    return moved | ({"$ref": place + target[1:]} if isinstance(target, str) and target.startswith("#") else {})


class CallReader:
    """Separates the calls from the text of one row while it is written. `forced`: all of it is one call."""

    def __init__(self, forced: bool) -> None:
        self.forced, self.held = forced, ""

    def add(self, text: str) -> str:
        """What is certainly no part of a call."""
        self.held += text
        if self.forced:
            return ""
        at = self.held.find(BEGIN)
        if at < 0:
            at = next((at for at in range(max(0, len(self.held) - len(BEGIN) + 1), len(self.held))
                       if BEGIN.startswith(self.held[at:])), len(self.held))  # fmt: skip
        free, self.held = self.held[:at], self.held[at:]
        return free

    def end(self) -> tuple[str, list[dict[str, Any]]]:
        """The rest of the text, and the calls in it. What is no whole call stays text."""
        held, self.held = self.held, ""
        if self.forced:
            found = _call(held, 0, "")
            return ("", [found[0]]) if found else (held, [])
        calls, rest, at = list[dict[str, Any]](), list[str](), 0
        while (start := held.find(BEGIN, at)) >= 0:
            found = _call(held, start + len(BEGIN), END)
            rest.append(held[at : start if found else start + len(BEGIN)])
            at = found[1] if found else start + len(BEGIN)
            calls += found[:1] if found else ()
        text = "".join([*rest, held[at:]])
        return text if text.strip() or not calls else "", calls


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


READ = json.JSONDecoder(parse_constant=_refused)


def _call(text: str, start: int, end: str) -> tuple[dict[str, Any], int] | None:
    """The call that is written from here on in OpenAI's form, and where the text behind it begins; None where there is
    none."""
    try:
        found, behind = READ.raw_decode(text, _past_space(text, start))
        name, arguments = found["name"], found.get("arguments", {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    behind = _past_space(text, behind)
    if not (isinstance(name, str) and isinstance(arguments, dict) and text.startswith(end, behind)):
        return None
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}
    return call, behind + len(end)


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
