"""The process that fills in chat templates: `python -m headway.text.template`, a line of JSON in, a line of JSON out.

A template is somebody else's program. Here it runs in Jinja's sandbox and in a process of its own, which may take so
much memory and no more; the caller (chat.py) ends it when it takes too long.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from functools import lru_cache
from typing import Any

OLDEST = (3, 1, 6)  # the first version of Jinja whose sandbox has no known hole
MEMORY = 1 << 30  # bytes that the process may take
LONGEST = 20_000_000  # characters of a text


@lru_cache(maxsize=8)
def compiled(template: str) -> Any:
    import jinja2
    from jinja2 import ext, nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

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

    place = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Answer, ext.loopcontrols])
    place.filters["tojson"] = as_json
    place.globals |= {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    return place.from_string(template)


def answered(asked: dict[str, Any]) -> dict[str, str]:
    try:
        import jinja2
    except ImportError:
        return {"error": "a chat template needs the package jinja2: pip install 'headway[hub]'"}
    if tuple(int(part) for part in jinja2.__version__.split(".")[:3] if part.isdigit()) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return {"error": f"a chat template needs jinja2 {oldest} or newer, this is {jinja2.__version__}: upgrade it"}
    try:
        template = compiled(asked["template"])
    except (jinja2.TemplateError, RecursionError) as error:
        return {"error": f"the model's chat template cannot be read: {_line(error)}"}
    try:
        text = template.render(
            messages=asked["messages"],
            add_generation_prompt=asked["answering"],
            tools=asked.get("tools"),
            **asked["specials"],
        )
    except MemoryError:
        return {"error": f"the model's chat template takes more than {MEMORY >> 20} MiB: it is ended"}
    except Exception as error:  # of somebody else's program: whatever it does is its own fault
        return {"error": f"the model's chat template refuses these messages: {_line(error)}"}
    if len(text) > LONGEST:
        return {"error": f"the model's chat template writes more than {LONGEST:,} characters"}
    return {"text": text}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, ValueError, OSError):  # a system that has no such limit
        pass
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
