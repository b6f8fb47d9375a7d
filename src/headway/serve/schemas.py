"""Bodies of requests, in the form that OpenAI's clients send. What is not known is refused, so that nobody waits for
what a misspelled setting should have done; what clients send for their own books is taken and not used."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, StrictBool
from pydantic_core import PydanticCustomError

from headway.serve.tools import MOST_TOOLS, Tool, ToolCall, ToolChoice

MOST_SAMPLES = 128
MOST_STOPS = 16
MOST_TOP = 20


def a_number(value: Any) -> Any:
    """Neither a switch nor a text, which Python would take for one."""
    if isinstance(value, bool | str):
        raise PydanticCustomError("number", "Input should be a number")
    return value


Whole = Annotated[int, BeforeValidator(a_number)]
Amount = Annotated[float, BeforeValidator(a_number)]
Ids = Annotated[list[Whole], Field(min_length=1)]
Prompt = str | Ids | Annotated[list[str], Field(min_length=1)] | Annotated[list[Ids], Field(min_length=1)]
Stop = str | Annotated[list[str], Field(max_length=MOST_STOPS)] | None


# A description in JSON gives bounds as floats: one that is exact there.
MOST_SEED = 1 << 62


class StreamOptions(BaseModel, extra="ignore"):
    include_usage: StrictBool = False


class NamedSchema(BaseModel, extra="ignore"):
    name: str | None = None
    schema_: dict[str, Any] | StrictBool | None = Field(None, alias="schema")


class Format(BaseModel, extra="forbid"):
    """What a text must be: any, a JSON object, or JSON that a schema allows."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None


class Drawn(BaseModel, extra="forbid"):
    """Abstract. How text is drawn, in completions and in answers of a conversation."""

    model: str
    temperature: Amount | None = Field(None, ge=0, le=100, description="0 takes the most probable token")
    top_p: Amount | None = Field(None, gt=0, le=1)
    top_k: Whole | None = Field(None, ge=-1, description="0 or -1: all")
    min_p: Amount | None = Field(None, ge=0, le=1)
    repetition_penalty: Amount | None = Field(None, gt=0)
    presence_penalty: Amount | None = Field(None, ge=-2, le=2)
    frequency_penalty: Amount | None = Field(None, ge=-2, le=2)
    logit_bias: dict[int, Annotated[Amount, Field(ge=-100, le=100)]] | None = None
    n: Whole | None = Field(None, ge=1, le=MOST_SAMPLES)
    seed: Whole | None = Field(None, ge=0, le=MOST_SEED)
    stop: Stop = None
    ignore_eos: StrictBool | None = Field(None, description="a text has max_tokens tokens, whatever ends texts")
    response_format: Format | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None


class CompletionRequest(Drawn):
    prompt: Prompt
    max_tokens: Whole | None = Field(None, ge=0)
    best_of: Whole | None = Field(None, ge=1, le=MOST_SAMPLES)
    echo: StrictBool | None = None
    logprobs: Whole | None = Field(None, ge=0, le=MOST_TOP)
    suffix: None = None


class TextPart(BaseModel, extra="ignore"):
    type: Literal["text"]
    text: str


class ChatMessage(BaseModel, extra="ignore"):
    role: str
    content: str | list[TextPart] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    def plain(self) -> dict[str, Any]:
        content = self.content
        if isinstance(content, list):
            content = "".join(part.text for part in content)
        found: dict[str, Any] = {"role": self.role, "content": content or ""}
        if self.tool_calls:
            found["tool_calls"] = [call.plain() for call in self.tool_calls]
        return found | ({"tool_call_id": self.tool_call_id} if self.tool_call_id else {})


class ChatRequest(Drawn):
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: Whole | None = Field(None, ge=1)
    max_completion_tokens: Whole | None = Field(None, ge=1)
    logprobs: StrictBool | None = None
    top_logprobs: Whole | None = Field(None, ge=0, le=MOST_TOP)
    tools: list[Tool] | None = Field(None, max_length=MOST_TOOLS)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: StrictBool | None = None
    metadata: dict[str, Any] | None = None
    store: StrictBool | None = None


class EmbeddingRequest(BaseModel, extra="forbid"):
    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: None = None
    user: str | None = None


class TranslationRequest(BaseModel, extra="forbid"):
    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=2048)]


class PredictionRequest(BaseModel, extra="forbid"):
    """input: texts; a list of texts for a model that reads several, such as a question and its context. options: those
    of `headway predict`."""

    model: str
    input: str | Annotated[list[str | Annotated[list[str], Field(min_length=1)]], Field(min_length=1, max_length=2048)]
    options: dict[str, bool | int | float | str] = {}


class ErrorFacts(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorForm(BaseModel):
    """Every error of the API."""

    error: ErrorFacts
