"""Text in the terminal as it comes, and conversations: what `generate` and `chat` share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from headway.text.chat import conversation

if TYPE_CHECKING:
    from headway.generate.generator import Generator


def stream(generator: Generator, prompt: Any, settings: dict[str, Any]) -> str:
    """Print a continuation as it comes, after its prompt where that is plain text; returns it."""
    parts = generator.stream(prompt, **settings)  # raises before anything is printed
    print(prompt if isinstance(prompt, str) else "", end="", flush=True)
    written = ""
    try:
        while True:
            part = next(parts)
            print(part, end="", flush=True)
            written += part
    except StopIteration as end:
        print(flush=True)
        if end.value == "context":
            advice = "; --window continues" if isinstance(prompt, str) else ""
            print(f"headway: the model's context of {generator.context} tokens is full{advice}", file=sys.stderr)
    return written


def remembered(generator: Generator, messages: list[Any]) -> list[Any]:
    """The messages that the model can still read, with room for an answer: the oldest are left out, except the system's
    and the last."""
    kept = list(messages)
    first = int(kept[0]["role"] == "system")
    while len(kept) > first + 1 and len(generator.ids(kept)) >= generator.context:
        del kept[first : first + 2]
    if len(kept) < len(messages):
        print("headway: the oldest messages are left out: the model's context is full", file=sys.stderr)
    return kept


def talk(generator: Generator, settings: dict[str, Any], chat: bool, system: str | None) -> None:
    """Read prompts and print continuations until an empty line or the end of input. In a chat the model reads all
    earlier messages too."""
    print("Say something" if chat else "Write how it begins", "an empty line leaves.", sep="; ", file=sys.stderr)
    messages: list[Any] = []
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline().rstrip("\n")
        if not line:
            return
        if chat:
            messages = remembered(generator, conversation(line, system, messages))
            messages.append({"role": "assistant", "content": stream(generator, messages, settings)})
        else:
            stream(generator, line, settings)
