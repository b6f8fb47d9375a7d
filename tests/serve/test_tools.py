"""Tools: shown to the model by its template, their calls read from what it writes, whole and streamed."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import openai
import pytest

from browsing import served
from headway.errors import InputError
from headway.serve import tools
from headway.serve.answers import Answers, RowText
from headway.serve.api import Api
from headway.serve.engine_thread import Part
from headway.serve.tools import CallReader, OneTool, Tool
from small_writer import small_writer

LINE = "{{ '\\n' }}"
TEMPLATE = (
    f"{{% if tools %}}{{% for t in tools %}}{{{{ t.function.name }}}} {{% endfor %}}{LINE}{{% endif %}}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}"
    f"{{{{ c.function.name }}}}={{{{ c.function.arguments.city }}}}{{% endfor %}}{LINE}{{% endfor %}}assistant:"
)
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"],
        "additionalProperties": False}  # fmt: skip
WEATHER = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": CITY}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
MUST: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required"}
ASKED: list[Any] = [{"role": "user", "content": "the cat"}]
DEEP = {"type": "function", "function": {"name": "weather", "arguments": "[" * 100_000}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


@pytest.fixture(scope="module")
def writer():
    return small_writer(256, TEMPLATE)


@pytest.fixture(scope="module")
def client(writer):
    api = Api({"small": writer, "plain": small_writer()})
    with served(api.asgi) as address:
        yield openai.OpenAI(base_url=f"{address}v1", api_key="none", max_retries=0)
    api.close()


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_tool_that_must_be_called_is_called(client, choice, seed):
    asked = {"model": "small", "messages": ASKED, "tools": [WEATHER], "tool_choice": choice, "seed": seed}
    found = client.chat.completions.create(**asked, max_tokens=200).choices[0]
    [call] = found.message.tool_calls
    assert (found.finish_reason, found.message.content, call.type) == ("tool_calls", None, "function")
    assert call.function.name == "weather" and json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
    assert call.id.startswith("call_")
    parts = list(client.chat.completions.create(**asked, max_tokens=200, stream=True))
    [streamed] = [call for part in parts for call in part.choices[0].delta.tool_calls or []]
    assert (streamed.index, streamed.function) == (0, type(streamed.function)(**call.function.model_dump()))
    assert parts[-1].choices[0].finish_reason == "tool_calls"
    assert not "".join(part.choices[0].delta.content or "" for part in parts)


def test_the_template_shows_tools_and_earlier_calls(client, writer):
    called = {"type": "function", "id": "call_1", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = [
        *ASKED, {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
    ]  # fmt: skip
    text = "weather clock \nuser: the cat\nassistant: weather=Oslo\ntool: sun\nassistant:"
    found = client.chat.completions.create(
        model="small", messages=messages, tools=[WEATHER, CLOCK], max_tokens=6, temperature=0
    )
    assert found.usage.prompt_tokens == len(writer.ids(text))
    assert found.choices[0].message.content == writer.generate(text, max_new=6, temperature=0)
    assert found.choices[0].message.tool_calls is None
    without = client.chat.completions.create(
        model="small", messages=messages, tools=[WEATHER], tool_choice="none", max_tokens=6
    )
    assert without.usage.prompt_tokens == len(writer.ids(text.split("\n", 1)[1]))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": "plain", "tools": [WEATHER]}, "chat template shows it no tools"),
        ({"tool_choice": "required"}, "there are no tools to choose from"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "sun"}}}, "no tool called sun"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"messages": [*ASKED, {"role": "assistant", "tool_calls": [DEEP]}], "tools": [WEATHER]}, "nested too deeply"),
        (MUST | {"response_format": {"type": "json_object"}}, "form of its own"),
        (MUST | {"tools": [WEATHER | {"function": {"name": "x", "parameters": {"type": "nonsense"}}}]}, "schema"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(client, more, said):
    with pytest.raises(openai.BadRequestError, match=said):
        client.chat.completions.create(**{"model": "small", "messages": ASKED} | more)


def read(text, size):
    reader, free = CallReader(forced=False), ""
    for at in range(0, len(text), size):
        free += reader.add(text[at : at + size])
    rest, calls = reader.end()
    return free, rest, calls


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_calls_are_read_however_the_text_comes(size):
    free, rest, calls = read(f"Let me see. {CALL}{CALL.replace('Oslo', 'Rome')}", size)
    assert (free, rest) == ("Let me see. ", "")
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert len({call["id"] for call in calls}) == 2


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    "text",
    ["a < b <tool", "<tool_call>{", '<tool_call>{"arguments": {}}</tool_call>', "<tool_call>no</tool_call>",
     "<tool_call>" + '{"a":' * 5000, "<tool_call>{" * 5000,
     '<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>',
     '<tool_call>{"name": 1}</tool_call> x', '<tool_call>{"name": "a", "arguments": 3}</tool_call>', ""],
)  # fmt: skip
def test_what_is_no_whole_call_stays_text(text, size):
    free, rest, calls = read(text, size)
    assert free + rest == text and calls == []


def test_any_text_may_stand_in_an_argument():
    _, rest, [call] = read('<tool_call> {"name": "a", "arguments": {"x": "} </tool_call> \\ud800"}}\n</tool_call>!', 5)
    assert json.loads(call["function"]["arguments"]) == {"x": "} </tool_call> \ud800"} and rest == "!"
    json.dumps(call, ensure_ascii=False).encode()


def test_references_within_a_schema_still_hold(client):
    schema = {"$defs": {"City": {"enum": ["Oslo"]}}, "type": "object", "properties": {"city": {"$ref": "#/$defs/City"}},
              "required": ["city"], "additionalProperties": False}  # fmt: skip
    named = [CLOCK, {"type": "function", "function": {"name": "weather", "parameters": schema}}]
    asked = {"model": "small", "messages": ASKED, "tools": named, "max_tokens": 200}
    choice = {"type": "function", "function": {"name": "weather"}}
    found = client.chat.completions.create(**asked, tool_choice=choice).choices[0]
    assert json.loads(found.message.tool_calls[0].function.arguments) == {"city": "Oslo"}
    both = client.chat.completions.create(**asked, tool_choice="required", n=2, seed=4).choices
    assert {one.message.tool_calls[0].function.name for one in both} <= {"clock", "weather"}


def test_text_before_a_call_comes_with_the_parts_as_they_come(writer):
    told = Answers(writer, "small", True, False, partial(CallReader, False))
    pieces = ["See", ": <tool", "_call>", CALL.removeprefix("<tool_call>")]
    parts = [Part(0, 5, 0.0, (), piece, None) for piece in pieces] + [Part(0, 6, 0.0, (), "", "stop")]
    found = [told.part(0, part, 0) for part in parts]
    assert [one["delta"].get("content", "") for one in found] == ["See", ": ", "", "", ""]
    assert found[-1]["finish_reason"] == "tool_calls" and found[-1]["delta"]["tool_calls"][0]["index"] == 0
    row = RowText("".join(pieces), ended="stop")
    whole = told.choice(0, row)
    assert whole["message"]["content"] == "See:" and whole["finish_reason"] == "tool_calls"
    cut = told.choice(0, RowText(f"{CALL} and", ended="length"))
    assert cut["finish_reason"] == "length" and len(cut["message"]["tool_calls"]) == 1


def test_a_schema_is_made_of_the_tools_that_may_be_called():
    known = [Tool(**WEATHER), Tool(**CLOCK)]
    assert tools.forced(known, "auto") is tools.forced(known, None) is tools.forced(None, None) is None
    both = tools.forced(known, "required")
    assert both is not None
    assert [one["properties"]["name"]["const"] for one in both["anyOf"]] == ["weather", "clock"]
    one = tools.forced(known, OneTool(type="function", function={"name": "clock"}))
    assert one is not None and len(one["anyOf"]) == 1
    with pytest.raises(InputError, match="no tool called"):
        tools.forced(known, OneTool(type="function", function={"name": "x"}))
