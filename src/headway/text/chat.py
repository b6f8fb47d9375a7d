"""Conversations as the one text that a model was trained on: the folder's own chat template, filled in.

A template is a program of the model's authors in a small language (Jinja). It runs in a sandbox and a process of its
own (template.py), with the messages as its only input and text as its only output, for so long and no longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import InputError

Message = dict[str, Any]  # role: system, user, assistant, …; content; what a template knows beside them
SECONDS = 10.0  # that a template may take
RECENT = 1200  # characters of a conversation that a judge of answers reads

# Of a model that has no template of its own: "Human: …", "Assistant: …", with an empty line between them.
WHO = {"system": "System", "user": "Human", "assistant": "Assistant", "tool": "Tool"}
TURNS = (
    "{% for message in messages %}{{ '\\n\\n' if not loop.first }}"
    f"{{{{ {WHO}[message.role] }}}}: "
    "{{ message.content }}{% endfor %}{{ '\\n\\nAssistant:' if add_generation_prompt }}"
)


@dataclass(frozen=True)
class Chat:
    """A chat template, and the special tokens that it may use, by Hugging Face's names."""

    template: str
    specials: dict[str, str]


def conversation(text: str, system: str | None = None, before: Sequence[Message] = ()) -> list[Message]:
    """The messages so far and the user's next one."""
    start = [{"role": "system", "content": system}] if system and not before else []
    return [*start, *before, {"role": "user", "content": text}]


def asked_text(messages: Sequence[Message]) -> str:
    """The end of a conversation, as a model reads it that judges what is answered."""
    return "\n\n".join(f"{WHO.get(one['role'], one['role'])}: {one['content']}" for one in messages)[-RECENT:]


def rendered(
    chat: Chat | None, messages: Sequence[Message], answering: bool = True, tools: Sequence[Any] | None = None
) -> str:
    """The text of a conversation, up to where the model's answer begins; without `answering`, up to its last
    message's end. `tools`: what the model may call, for a template that shows it."""
    if chat is None:
        raise InputError("this model has no chat template: leave out --chat, and write the prompt as it was trained on")
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise InputError(f"message {number} must have a role and a content, both of them text")
    filled = {"messages": [dict(m) for m in messages], "specials": chat.specials, "answering": answering}
    asked = {"template": chat.template, **filled} | ({"tools": list(tools)} if tools else {})
    found = _process.asked(asked)
    if "error" in found:
        raise InputError(found["error"])
    return found["text"]


class _Process:
    """The process of template.py: started when it is needed, ended with this one or when it takes too long."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: subprocess.Popen[str] | None = None

    def asked(self, question: dict[str, Any]) -> dict[str, str]:
        with self.lock:
            if self.running is None or self.running.poll() is not None:
                self.running = subprocess.Popen(
                    [sys.executable, "-m", "headway.text.template"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, text=True, encoding="utf-8", errors="surrogatepass", env=_environment(),
                )  # fmt: skip
            running = self.running
            late = threading.Timer(SECONDS, running.kill)
            late.start()
            try:
                assert running.stdin is not None and running.stdout is not None
                running.stdin.write(json.dumps(question) + "\n")
                running.stdin.flush()
                line = running.stdout.readline()
            except OSError:
                line = ""
            finally:
                late.cancel()
            if not line:
                running.kill()
                running.wait()
                why = f"takes longer than {SECONDS:g} s, or more memory than it may have"
                return {"error": f"the model's chat template {why}: it was ended"}
            found: dict[str, str] = json.loads(line)
            return found


def _environment() -> dict[str, str]:
    """This process's, in which the other one finds the same headway."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


_process = _Process()
