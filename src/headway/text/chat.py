"""Conversations as the one text that a model was trained on: the folder's own chat template, filled in.

A template is a program of the model's authors in a small language (Jinja). It runs in a sandbox, with the messages as
its only input and text as its only output.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from headway.errors import InputError

Message = dict[str, str]  # role: system, user, assistant, …; content
OLDEST = (3, 1, 6)  # the first version whose sandbox has no known hole


@dataclass(frozen=True)
class Chat:
    """A chat template, and the special tokens that it may use, by Hugging Face's names."""

    template: str
    specials: dict[str, str]


def conversation(text: str, system: str | None = None, before: Sequence[Message] = ()) -> list[Message]:
    """The messages so far and the user's next one."""
    start = [{"role": "system", "content": system}] if system and not before else []
    return [*start, *before, {"role": "user", "content": text}]


def rendered(chat: Chat | None, messages: Sequence[Message]) -> str:
    """The text of a conversation, up to where the model's answer begins."""
    if chat is None:
        raise InputError("this model has no chat template: leave out --chat, and write the prompt as it was trained on")
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise InputError(f"message {number} must have a role and a content, both of them text")
    compiled, errors = _compiled(chat.template)
    try:
        text = compiled.render(messages=[dict(m) for m in messages], add_generation_prompt=True, **chat.specials)
    except errors as error:
        raise InputError(f"the model's chat template refuses these messages: {error}") from error
    return str(text)


@lru_cache(maxsize=8)
def _compiled(template: str) -> tuple[Any, Any]:
    try:
        import jinja2
        from jinja2 import ext, nodes, sandbox
    except ImportError:
        raise InputError("a chat template needs the package jinja2: pip install 'headway[hub]'") from None
    if tuple(int(part) for part in jinja2.__version__.split(".")[:3] if part.isdigit()) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise InputError(f"a chat template needs jinja2 {oldest} or newer, this is {jinja2.__version__}: upgrade it")

    class Answer(ext.Extension):
        """{% generation %} marks a model's answers for training; the text stays the same."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def as_json(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **how)

    place = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Answer, ext.loopcontrols]
    )
    place.filters["tojson"] = as_json
    place.globals |= {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    try:
        return place.from_string(template), (jinja2.TemplateError, TypeError, ValueError, KeyError)
    except jinja2.TemplateError as error:
        raise InputError(f"the model's chat template cannot be read: {error}") from error
