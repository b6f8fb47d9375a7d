"""headway explore"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.options import DEVICE, DTYPE, THREADS, argument, option, refuse_given
from headway.errors import InputError

if TYPE_CHECKING:
    from headway.explore.asking import Question
    from headway.generate.tracing import Answering

PORT = 8377


def explore(
    model: str = argument("MODEL", "A model's or a run's folder, or a trace (.safetensors)."),
    text: list[str] = option([], "TEXT", "The text to look at; on the live page the first of them.", "--text"),
    target: str = option(None, "TEXT", "Of a translator the translation to follow, of an encoder the second text."),
    html: str = option(None, "FILE", "Write one file that opens without a server."),
    second: str = option(None, "MODEL", "A second model (or trace), to compare."),
    layers: str = option(None, "N,N", "Only these layers, counted from 0."),
    heads: str = option(None, "N,N", "Only these heads, counted from 0."),
    beam: int = option(None, "N", "Beam width of a translator.", "--beam-size", min=1, max=32),
    port: int = option(PORT, "N", "Of the live page; 0 is any that is free.", min=0, max=65535),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """Look inside a model on a page in the browser: live on this machine, or as one file."""
    from headway.cli.place import opened
    from headway.explore.asking import Question, answer
    from headway.explore.pages import page_html
    from headway.explore.payload import MOST, payload
    from headway.traces import Trace

    joined = " ".join(text)
    question = Question(joined, target or None, _numbers("layers", layers), _numbers("heads", heads), beam)
    named = [name for name in (model, second) if name is not None]
    saved = [name for name in named if Path(name).is_file() or name.endswith(".safetensors")]
    if saved and len(saved) < len(named):
        raise InputError("a trace is compared with a trace and a model with a model: give two of a kind")
    if question.second is not None and beam is not None:
        raise InputError(
            "--beam-size is for a search, and with --target nothing is searched for: leave one of them out"
        )
    if saved:
        given = {"--text": joined, "--target": question.second, "--beam-size": beam}
        refuse_given(given, "a trace has its text inside, and needs no model: leave {} out")
        traces = [payload(Trace.load(name).only(question.layers, question.heads)) for name in named]
    elif html is not None:
        if text and not joined.strip():
            raise InputError("there is nothing to trace: the text of --text is empty")
        models = _loaded(named, question, device, dtype)
        traces = [answer(model, _complete(question, model), MOST // len(named)) for model in models]
    if html is not None:
        with opened(html, "--html") as out:
            out.write(page_html(traces))
        print(f"{html}: {Path(html).stat().st_size / 1e6:.1f} MB, opens in any browser", file=sys.stderr)
        return
    from headway.serve.app import application
    from headway.serve.running import bound, serve

    listening = bound(port)  # before the model is read, which takes longer
    if saved:
        shown = application(traces=traces)
    else:
        ready = [*_loaded(named, question, device, dtype)]
        shown = application(ready, question if text else replace(question, text=ready[0].first_question))
    host, port = listening.getsockname()
    print(f"headway: the page is at http://{host}:{port}/ (Ctrl-C ends it)", file=sys.stderr, flush=True)
    serve(shown, listening)


def _loaded(named: list[str], question: Question, device: str, dtype: str) -> Iterator[Answering]:
    """One model after the other; each can answer the question."""
    from headway.generate.tracing import checked
    from headway.nn.tap import chosen
    from headway.tasks.loading import load

    for name in named:
        model = load(name, device, dtype)
        if question.beam is not None and model.takes != "target":
            raise InputError(f"--beam-size is the width of a translator's search, and {name} is none: leave it out")
        if question.second is not None and model.takes == "one":
            raise InputError(f"--target is for a translator or an encoder, and {name} reads one text: leave it out")
        checked(model.model, chosen(question.layers, question.heads))
        yield model


def _complete(question: Question, model: Answering) -> Question:
    """With what this model is asked where no text is given."""
    text = question.text or model.first_question
    if not text:
        raise InputError("a file has its text inside: give it with --text")
    return replace(question, text=text)


def _numbers(option: str, given: str | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    try:
        return tuple(int(part) for part in given.split(","))
    except ValueError:
        raise InputError(f"--{option} takes numbers, as in --{option} 0,3, not {given}") from None
