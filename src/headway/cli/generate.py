"""headway generate"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import DEVICE, DTYPE, ENGINE, THREADS, check_engine, check_model, use_threads
from headway.cli.texts import lines_of
from headway.errors import InputError
from headway.plain import json_line

if TYPE_CHECKING:
    from headway.generate.generator import Generator, Passage

BETWEEN = "---"  # two texts


def generate(
    model: str = typer.Argument(metavar="MODEL", help="A language model's folder, or a run's folder."),
    prompt: list[str] = typer.Option(
        [], "--prompt", metavar="TEXT...", help="What to go on from; without it a prompt a line from standard input."
    ),
    interactive: bool = typer.Option(False, "--interactive", "-i", help="Ask for prompts, write as it thinks."),
    chat: bool = typer.Option(False, "--chat", help="Prompts are said to the model, in its own chat template."),
    system: str = typer.Option(None, metavar="TEXT", help="With --chat: what the model is told first."),
    max_new_tokens: int = typer.Option(128, min=1, metavar="N", help="Most new tokens."),
    temperature: float = typer.Option(1.0, metavar="T", help="Below 1 safer, above 1 bolder; 0 takes the best."),
    top_k: int = typer.Option(0, metavar="K", help="Only the K likeliest tokens (0: all)."),
    top_p: float = typer.Option(1.0, metavar="P", help="Only the likeliest tokens that make up the share P."),
    min_p: float = typer.Option(0.0, metavar="P", help="Only tokens at least P times as likely as the likeliest."),
    typical: float = typer.Option(1.0, metavar="P", help="Only the most typical tokens that make up the share P."),
    repetition: float = typer.Option(1.0, metavar="X", help="Makes what is there already less likely (1: not)."),
    presence: float = typer.Option(0.0, metavar="X", help="Taken off tokens that were written before."),
    frequency: float = typer.Option(0.0, metavar="X", help="Taken off for each time that they were."),
    no_repeat: int = typer.Option(0, metavar="N", help="No N tokens in a row a second time (0: they may)."),
    stop: list[str] = typer.Option([], metavar="TEXT...", help="End before any of these."),
    choice: list[str] = typer.Option([], metavar="TEXT...", help="Write one of these, nothing else."),
    samples: int = typer.Option(1, min=1, metavar="N", help="Continuations of each prompt."),
    best_of: int = typer.Option(None, min=1, metavar="N", help="Write N, show the likeliest."),
    seed: int = typer.Option(0, metavar="N", help="The same seed gives the same text."),
    window: bool = typer.Option(False, "--window", help="Go on beyond the model's context, with its end in view."),
    as_json: bool = typer.Option(
        False, "--json", help="A JSON object a line: text, pieces, log-probabilities, why it ended."
    ),
    top: int = typer.Option(0, min=0, metavar="N", help="With --json: N alternatives of each token."),
    engine: str = ENGINE,
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """Write on from a prompt with a language model."""
    from headway.generate.generator import likeliest
    from headway.tasks.loading import load
    from headway.text.chat import conversation

    use_threads(threads)
    check_model(model, "headway generate MODEL --prompt TEXT")
    wishes: dict[str, Any] = {
        "max_new": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
        "typical": typical, "repetition": repetition, "presence": presence, "frequency": frequency,
        "no_repeat": no_repeat, "stop": tuple(stop), "choices": tuple(choice), "seed": seed, "window": window,
    }  # fmt: skip
    if check_engine(engine):
        refused: dict[str, Any] = {
            "interactive": interactive,
            "chat": chat,
            "best-of": best_of,
            "json": as_json,
            "top": top,
        }
        _write_fast(model, prompt, samples, device, dtype, refused, wishes)
        return
    if system and not chat:
        raise InputError("--system needs --chat: without a conversation there is nobody to tell")
    if interactive:
        refused = {"prompt": prompt, "json": as_json, "samples": samples > 1, "best-of": best_of, "top": top}
        _refuse(refused, "--interactive asks for one prompt after the other: leave --{} out")
        _talk(load(model, device, dtype, verb="generate"), wishes, chat, system)
        return
    if best_of and samples > 1:
        raise InputError("--best-of shows one of N texts, --samples shows all: pass one of them")
    if top and not as_json:
        raise InputError("--top needs --json: there is no place for alternatives in plain text")
    generator, prompts = load(model, device, dtype, verb="generate"), _prompts(prompt)
    asked: list[Any] = [conversation(text, system) for text in prompts] if chat else prompts
    if as_json or samples > 1 or best_of:
        found = generator.generate_n(asked, samples=best_of or samples, top=top, **wishes)
        if best_of:
            found = [[likeliest(passages)] for passages in found]
        if as_json:
            _print_json(generator, prompts, found)
        else:
            _print([""] * len(prompts) if chat else prompts, [[passage.text for passage in some] for some in found])
    else:
        for number, one in enumerate(asked):
            if number:
                print(BETWEEN)
            _stream(generator, one, wishes)


def _refuse(options: dict[str, Any], why: str) -> None:
    """What was asked for and cannot be is named in the line."""
    for option, value in options.items():
        if value:
            raise InputError(why.format(option))


def _prompts(given: list[str]) -> list[str]:
    prompts = given or list(lines_of("-"))
    if not prompts:
        raise InputError("no prompt: pass --prompt TEXT, or a prompt a line on standard input")
    return prompts


def _write_fast(
    model: str,
    prompt: list[str],
    samples: int,
    device: str,
    dtype: str,
    refused: dict[str, Any],
    wishes: dict[str, Any],
) -> None:
    from headway.hub.ctranslate2_engine import load_generator

    _refuse(refused, "--engine ctranslate2 has no --{}: leave it out, or leave --engine out")
    prompts = _prompts(prompt)
    generator = load_generator(model, device, dtype, wishes.pop("seed"))
    _print(prompts, generator.generate(prompts, samples=samples, **wishes))


def _print(before: list[str], found: list[list[str]]) -> None:
    """Each text behind what stands before it."""
    print(f"\n{BETWEEN}\n".join(prompt + text for prompt, some in zip(before, found, strict=True) for text in some))


def _stream(generator: Generator, prompt: Any, wishes: dict[str, Any]) -> str:
    """The continuation; a text stands before its own, the question before an answer does not."""
    pieces = generator.stream(prompt, **wishes)  # what is wrong is told before anything is written
    print(prompt if isinstance(prompt, str) else "", end="", flush=True)
    written, ended = "", ""
    while not ended:
        try:
            piece = next(pieces)
        except StopIteration as end:
            piece, ended = "\n", end.value or "stop"
        print(piece, end="", flush=True)
        written += "" if ended else piece
    if ended == "context":
        print(f"headway: the model's context of {generator.context} tokens is full; --window goes on", file=sys.stderr)
    return written


def _print_json(generator: Generator, prompts: list[str], found: list[list[Passage]]) -> None:
    for prompt, passages in zip(prompts, found, strict=True):
        for passage in passages:
            written = passage.written
            record: dict[str, Any] = {
                "prompt": prompt, "text": passage.text, "ended": passage.ended, "pieces": passage.pieces,
                "log_probabilities": written.logps,
            }  # fmt: skip
            if any(written.top):
                record["alternatives"] = [_named(generator, alternatives) for alternatives in written.top]
            print(json_line(record))


def _named(generator: Generator, alternatives: Sequence[tuple[int, float]]) -> list[dict[str, Any]]:
    pieces = generator.tokenizer.tokens([i for i, _ in alternatives])
    return [
        {"piece": piece, "id": i, "log_probability": logp}
        for piece, (i, logp) in zip(pieces, alternatives, strict=True)
    ]


def _talk(generator: Generator, wishes: dict[str, Any], chat: bool, system: str | None) -> None:
    """A prompt, its continuation, the next prompt; an empty line or the end of input leaves. In a chat, what was said
    before is part of what the model reads."""
    from headway.text.chat import conversation

    print("Say something" if chat else "Write how it begins", "an empty line leaves.", sep="; ", file=sys.stderr)
    said: list[Any] = []
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline().rstrip("\n")
        if not line:
            return
        if chat:
            said = conversation(line, system, said)
            said.append({"role": "assistant", "content": _stream(generator, said, wishes)})
        else:
            _stream(generator, line, wishes)
