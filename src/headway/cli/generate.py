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
        [], "--prompt", metavar="TEXT...", help="The text to continue; without it, standard input has a prompt a line."
    ),
    interactive: bool = typer.Option(
        False, "--interactive", "-i", help="Read prompts from the terminal; print tokens as they come."
    ),
    chat: bool = typer.Option(False, "--chat", help="Prompts are messages to the model, in its own chat template."),
    system: str = typer.Option(None, metavar="TEXT", help="With --chat: the system message."),
    max_new_tokens: int = typer.Option(128, min=1, metavar="N", help="The most tokens to generate."),
    temperature: float = typer.Option(1.0, metavar="T", help="Divides the logits; 0 takes the most probable token."),
    top_k: int = typer.Option(0, metavar="K", help="Sample from the K most probable tokens (0: all)."),
    top_p: float = typer.Option(
        1.0, metavar="P", help="Sample from the smallest set of tokens with total probability P."
    ),
    min_p: float = typer.Option(0.0, metavar="P", help="Sample from tokens at least P times as probable as the first."),
    typical: float = typer.Option(1.0, metavar="P", help="Locally typical sampling: tokens with total probability P."),
    repetition: float = typer.Option(1.0, metavar="X", help="Repetition penalty on tokens of the text (1: none)."),
    presence: float = typer.Option(0.0, metavar="X", help="Subtracted once from the logits of tokens in the text."),
    frequency: float = typer.Option(0.0, metavar="X", help="Subtracted for each time that a token is in the text."),
    no_repeat: int = typer.Option(0, metavar="N", help="No n-gram of N tokens twice (0: no limit)."),
    stop: list[str] = typer.Option([], metavar="TEXT...", help="End before any of these."),
    choice: list[str] = typer.Option([], metavar="TEXT...", help="Write one of these, nothing else."),
    samples: int = typer.Option(1, min=1, metavar="N", help="Continuations of each prompt."),
    best_of: int = typer.Option(None, min=1, metavar="N", help="Generate N, print the most probable."),
    seed: int = typer.Option(0, metavar="N", help="The same seed gives the same text."),
    window: bool = typer.Option(
        False, "--window", help="Continue beyond the model's context, with the latest tokens in view."
    ),
    as_json: bool = typer.Option(
        False, "--json", help="A JSON object a line: text, tokens, log-probabilities, why it ended."
    ),
    top: int = typer.Option(0, min=0, metavar="N", help="With --json: N alternatives of each token."),
    engine: str = ENGINE,
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """Continue a prompt with a language model."""
    from headway.generate.generator import likeliest
    from headway.tasks.loading import load
    from headway.text.chat import conversation

    use_threads(threads)
    check_model(model, "headway generate MODEL --prompt TEXT")
    settings: dict[str, Any] = {
        "max_new": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
        "typical": typical, "repetition": repetition, "presence": presence, "frequency": frequency,
        "no_repeat": no_repeat, "stop": tuple(stop), "choices": tuple(choice), "seed": seed, "window": window,
    }  # fmt: skip
    if check_engine(engine):
        refused: dict[str, Any] = {"interactive": interactive, "chat": chat, "best-of": best_of, "json": as_json}
        refused["top"] = top
        from headway.hub.ctranslate2_engine import load_generator

        _refuse(refused, "--engine ctranslate2 has no --{}: leave it out, or leave --engine out")
        prompts = _prompts(prompt)
        fast = load_generator(model, device, dtype, settings.pop("seed"))
        _print(prompts, fast.generate(prompts, samples=samples, **settings))
        return
    if system and not chat:
        raise InputError("--system needs --chat: it is the first message of a conversation")
    if interactive:
        refused = {"prompt": prompt, "json": as_json, "samples": samples > 1, "best-of": best_of, "top": top}
        _refuse(refused, "--interactive reads prompts from the terminal: leave --{} out")
        _talk(load(model, device, dtype, verb="generate"), settings, chat, system)
        return
    if best_of and samples > 1:
        raise InputError("--best-of shows one of N texts, --samples shows all: pass one of them")
    if top and not as_json:
        raise InputError("--top needs --json: there is no place for alternatives in plain text")
    generator, prompts = load(model, device, dtype, verb="generate"), _prompts(prompt)
    asked: list[Any] = [conversation(text, system) for text in prompts] if chat else prompts
    if as_json or samples > 1 or best_of:
        found = generator.generate_n(asked, samples=best_of or samples, top=top, **settings)
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
            _stream(generator, one, settings)


def _refuse(options: dict[str, Any], why: str) -> None:
    """Refuse the first option that was given; `why` names it."""
    for option, value in options.items():
        if value:
            raise InputError(why.format(option))


def _prompts(given: list[str]) -> list[str]:
    prompts = given or list(lines_of("-"))
    if not prompts:
        raise InputError("no prompt: pass --prompt TEXT, or a prompt a line on standard input")
    return prompts


def _print(before: list[str], found: list[list[str]]) -> None:
    """Each text after its prompt."""
    print(f"\n{BETWEEN}\n".join(prompt + text for prompt, some in zip(before, found, strict=True) for text in some))


def _stream(generator: Generator, prompt: Any, settings: dict[str, Any]) -> str:
    """Print a continuation as it comes, after its prompt where that is plain text; returns it."""
    parts = generator.stream(prompt, **settings)  # raises before anything is printed
    print(prompt if isinstance(prompt, str) else "", end="", flush=True)
    written, ended = "", ""
    while not ended:
        try:
            part = next(parts)
        except StopIteration as end:
            part, ended = "\n", end.value or "stop"
        print(part, end="", flush=True)
        written += "" if ended else part
    if ended == "context":
        print(
            f"headway: the model's context of {generator.context} tokens is full; --window continues", file=sys.stderr
        )
    return written


def _print_json(generator: Generator, prompts: list[str], found: list[list[Passage]]) -> None:
    for prompt, passages in zip(prompts, found, strict=True):
        for passage in passages:
            written = passage.written
            record: dict[str, Any] = {
                "prompt": prompt, "text": passage.text, "ended": passage.ended, "tokens": passage.tokens,
                "log_probabilities": written.logps,
            }  # fmt: skip
            if any(written.top):
                record["alternatives"] = [_named(generator, alternatives) for alternatives in written.top]
            print(json_line(record))


def _named(generator: Generator, alternatives: Sequence[tuple[int, float]]) -> list[dict[str, Any]]:
    tokens = generator.tokenizer.tokens([i for i, _ in alternatives])
    return [
        {"token": token, "id": i, "log_probability": logp}
        for token, (i, logp) in zip(tokens, alternatives, strict=True)
    ]


def _talk(generator: Generator, settings: dict[str, Any], chat: bool, system: str | None) -> None:
    """Read prompts and print continuations until an empty line or the end of input. In a chat the model reads all
    earlier messages too."""
    from headway.text.chat import conversation

    print("Say something" if chat else "Write how it begins", "an empty line leaves.", sep="; ", file=sys.stderr)
    messages: list[Any] = []
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline().rstrip("\n")
        if not line:
            return
        if chat:
            messages = conversation(line, system, messages)
            messages.append({"role": "assistant", "content": _stream(generator, messages, settings)})
        else:
            _stream(generator, line, settings)
