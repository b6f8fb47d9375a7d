"""The page: one HTML file that shows traces, which are inside it or come from a server."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from headway.errors import InputError, refuse
from headway.explore.payload import payload
from headway.traces import Trace

PAGE = Path(__file__).parent / "page" / "index.html"
QUICK = 1  # zlib level: higher ones hardly save more
WORTH = 0.5  # of its size
PLACE = "<!--headway:data-->"


def page_html(traces: Sequence[bytes] = (), host: dict[str, Any] | None = None) -> str:
    """The page with these traces inside, or with a description of the models of its server."""
    refuse(not PAGE.is_file(), f"the page is not built ({PAGE.name} is missing): see web/README.md")
    tags = []
    if host is not None:
        plain = json.dumps(host, ensure_ascii=False).replace("<", "\\u003c")  # no text ends the tag that it is in
        tags.append(f'<script type="application/json" id="headway-host">{plain}</script>')
    tags += map(_tag, traces)
    before, _, behind = PAGE.read_text(encoding="utf-8").partition(PLACE)
    return "".join([before, *tags, behind])


def _tag(trace: bytes) -> str:
    """A trace as text; compressed where that saves more time in reading than decompressing takes."""
    packed = zlib.compress(trace, QUICK)
    kind, chosen = ("deflate", packed) if len(packed) < WORTH * len(trace) else ("", trace)
    text = base64.b64encode(chosen).decode("ascii")
    return f'<script type="application/octet-stream" data-packed="{kind}">{text}</script>'


class Shown:
    """What a notebook displays: the page in a frame of its own."""

    def __init__(self, html: str, height: int) -> None:
        self.html, self.height = html, height

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:0;border-radius:8px"
        return f'<iframe srcdoc="{escape(self.html)}" style="{style}" title="headway"></iframe>'


def show(trace: Trace, second: Trace | None = None, *, height: int = 820) -> Shown:
    """A trace as the page, in a notebook: the last line of a cell. With a second one, both side by side."""
    if not isinstance(trace, Trace):
        raise InputError(f"show displays a trace, not {type(trace).__name__}: show(model.trace('a text'))")
    both = [one for one in (trace, second) if one is not None]
    return Shown(page_html([payload(one) for one in both]), height)
