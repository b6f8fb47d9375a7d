"""headway explore"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headway.cli.options import DEVICE, DTYPE, THREADS, use_threads
from headway.errors import InputError

if TYPE_CHECKING:
    from headway.explore.asking import Model, Question

PORT = 8377


def explore(
    model: str = typer.Argument(metavar="MODEL", help="A model's or a run's folder, or a trace (.safetensors)."),
    text: list[str] = typer.Option([], "--text", metavar="TEXT", help="The text to look at; on the live page the "
                                    "first of them."),
    target: str = typer.Option(None, metavar="TEXT", help="Of a translator the translation to follow, of an encoder "
                               "the second text."),
    html: str = typer.Option(None, metavar="FILE", help="Write one file that opens without a server."),
    second: str = typer.Option(None, metavar="MODEL", help="A second model (or trace), to compare."),
    layers: str = typer.Option(None, metavar="N,N", help="Only these layers, counted from 0."),
    heads: str = typer.Option(None, metavar="N,N", help="Only these heads, counted from 0."),
    beam: int = typer.Option(None, "--beam-size", min=1, max=32, metavar="N", help="Beam width of a translator."),
    port: int = typer.Option(PORT, min=0, max=65535, metavar="N", help="Of the live page; 0 is any that is free."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:  # fmt: skip
    """Look inside a model on a page in the browser: live on this machine, or as one file."""
    from headway.explore.asking import Question

    use_threads(threads)
    joined = " ".join(text)
    question = Question(joined, target or None, _numbers("layers", layers), _numbers("heads", heads), beam)
    named = [name for name in (model, second) if name is not None]
    saved = [name for name in named if _is_trace(name)]
    if saved and len(saved) < len(named):
        raise InputError("a trace is compared with a trace and a model with a model: give two of a kind")
    if question.second is not None and beam is not None:
        raise InputError(
            "--beam-size is for a search, and with --target nothing is searched for: leave one of them out"
        )
    if saved:
        for option, given in (("--text", joined), ("--target", question.second), ("--beam-size", beam)):
            if given:
                raise InputError(f"a trace has its text inside, and needs no model: leave {option} out")
        _show([_read(name, question) for name in named], html, port)
    elif html is not None:
        if not joined.strip():
            raise InputError(
                "there is nothing to trace: the text of --text is empty" if text
                else "a file has its text inside: give it with --text"
            )  # fmt: skip
        _write(_answers(named, question, device, dtype), html)
    else:
        _serve(named, question, port, device, dtype)


def _serve(named: list[str], question: Question, port: int, device: str, dtype: str) -> None:
    from headway.serve.app import application
    from headway.serve.running import bound, serve

    listening = bound(port)  # before the model is read, which takes longer
    serve(application(list(_loaded(named, question, device, dtype)), question), listening, _announce)


def _loaded(named: list[str], question: Question, device: str, dtype: str) -> Iterator[Model]:
    """One model after the other; each can answer the question."""
    from headway.explore.asking import card
    from headway.generate.tracing import checked
    from headway.nn.tap import chosen
    from headway.tasks.loading import load

    for name in named:
        model = load(name, device, dtype)
        takes = card(model)["takes"]
        if question.beam is not None and takes != "target":
            raise InputError(f"--beam-size is the width of a translator's search, and {name} is none: leave it out")
        if question.second is not None and takes == "one":
            raise InputError(f"--target is for a translator or an encoder, and {name} reads one text: leave it out")
        checked(model.model, chosen(question.layers, question.heads))
        yield model


def _is_trace(name: str) -> bool:
    return Path(name).is_file() or name.endswith(".safetensors")


def _numbers(option: str, given: str | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    try:
        return tuple(int(part) for part in given.split(","))
    except ValueError:
        raise InputError(f"--{option} takes numbers, as in --{option} 0,3, not {given}") from None


def _read(name: str, question: Question) -> bytes:
    from headway.explore.payload import payload
    from headway.traces import Trace

    trace = Trace.load(name)
    if question.layers is not None or question.heads is not None:
        trace = trace.only(layers=question.layers, heads=question.heads)
    return payload(trace)


def _answers(named: list[str], question: Question, device: str, dtype: str) -> list[bytes]:
    from headway.explore.asking import answer
    from headway.explore.payload import MOST

    return [answer(model, question, MOST // len(named)) for model in _loaded(named, question, device, dtype)]


def _write(traces: list[bytes], html: str) -> None:
    from headway.cli.place import opened
    from headway.explore.pages import page_html

    with opened(html, "--html") as out:
        out.write(page_html(traces))
    print(f"{html}: {Path(html).stat().st_size / 1e6:.1f} MB, opens in any browser", file=sys.stderr)


def _show(traces: list[bytes], html: str | None, port: int) -> None:
    if html is not None:
        _write(traces, html)
        return
    from headway.serve.app import application
    from headway.serve.running import bound, serve

    serve(application(traces=traces), bound(port), _announce)


def _announce(address: str) -> None:
    print(f"headway: the page is at {address} (Ctrl-C ends it)", file=sys.stderr, flush=True)
