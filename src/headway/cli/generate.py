"""headway generate"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headway.cli import options
from headway.cli.options import flag, option
from headway.cli.talking import stream, talk
from headway.cli.texts import asked
from headway.errors import refuse
from headway.plain import json_line
from headway.text.chat import conversation

if TYPE_CHECKING:
    from headway.generate.generator import Generator, Passage

BETWEEN = "---"  # two texts
SAMPLED: dict[str, object] = {  # what a beam search does without, and its default
    "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical": 1.0, "repetition": 1.0, "presence": 0.0,
    "frequency": 0.0, "no_repeat": 0, "seed": 0,
}  # fmt: skip


def generate(
    model: str = options.LANGUAGE_MODEL,
    prompt: list[str] = option(
        [], "TEXT...", "The text to continue; without it, standard input has a prompt a line.", "--prompt"
    ),
    interactive: bool = flag("--interactive", "Read prompts from the terminal; print tokens as they come.", "-i"),
    chat: bool = flag("--chat", "Prompts are messages to the model, in its own chat template."),
    system: str = option(None, "TEXT", "With --chat: the system message."),
    max_new_tokens: int = option(128, "N", "The most tokens to generate.", min=1),
    temperature: float = option(1.0, "T", "Divides the logits; 0 takes the most probable token."),
    top_k: int = option(0, "K", "Sample from the K most probable tokens (0: all)."),
    top_p: float = option(1.0, "P", "Sample from the smallest set of tokens with total probability P."),
    min_p: float = option(0.0, "P", "Sample from tokens at least P times as probable as the first."),
    typical: float = option(1.0, "P", "Locally typical sampling: tokens with total probability P."),
    repetition: float = option(1.0, "X", "Repetition penalty on tokens of the text (1: none)."),
    presence: float = option(0.0, "X", "Subtracted once from the logits of tokens in the text."),
    frequency: float = option(0.0, "X", "Subtracted for each time that a token is in the text."),
    no_repeat: int = option(0, "N", "No n-gram of N tokens twice (0: no limit)."),
    stop: list[str] = option([], "TEXT...", "End before any of these."),
    choice: list[str] = option([], "TEXT...", "Write one of these, nothing else."),
    samples: int = option(1, "N", "Continuations of each prompt.", min=1),
    best_of: int = option(None, "N", "Generate N, print the most probable.", min=1),
    judge: str = option(None, "MODEL", "With --best-of: print the one that this model prefers (headway train reward)."),
    beam_size: int = option(
        None, "N", "Search for the most probable text with N hypotheses instead of sampling.", min=1
    ),
    best: int = option(None, "N", "With --beam-size: print the N best hypotheses.", min=1),
    length_penalty: float = option(None, "α", "With --beam-size: score = log-probability / lengthᵅ. Default: 1."),
    seed: int = option(0, "N", "The same seed gives the same text."),
    window: bool = flag("--window", "Continue beyond the model's context, with the latest tokens in view."),
    as_json: bool = flag("--json", "A JSON object a line: text, tokens, log-probabilities, why it ended."),
    top: int = option(0, "N", "With --json: N alternatives of each token.", min=0),
    engine: str = options.ENGINE,
    device: str = options.DEVICE,
    dtype: str = options.DTYPE,
    threads: int = options.THREADS,
) -> None:
    """Continue a prompt with a language model."""
    from headway.generate.generator import best as best_answer
    from headway.tasks.loading import load

    options.check_model(model, "headway generate MODEL --prompt TEXT")
    settings: dict[str, Any] = {
        "max_new": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
        "typical": typical, "repetition": repetition, "presence": presence, "frequency": frequency,
        "no_repeat": no_repeat, "stop": tuple(stop), "choices": tuple(choice), "seed": seed, "window": window,
    }  # fmt: skip
    search = options.given(beam=beam_size, best=best, length_penalty=length_penalty)
    if search:
        more = {"samples": samples > 1, "best-of": best_of, "interactive": interactive, "top": top}
        settings = _searching(settings, search, more | {"engine": engine != "headway"})
    if options.check_engine(engine):
        from headway.hub.ctranslate2_engine import load_generator

        refused = {"interactive": interactive, "chat": chat, "best-of": best_of, "json": as_json, "top": top}
        options.refuse_given(refused, "--engine ctranslate2 has no --{}: leave it out, or leave --engine out")
        prompts = asked(prompt, "prompt")
        fast = load_generator(model, device, dtype, settings.pop("seed"))
        _print(prompts, fast.generate(prompts, samples=samples, **settings))
        return
    refuse(system and not chat, "--system needs --chat: it is the first message of a conversation")
    if interactive:
        refused = {"prompt": bool(prompt), "json": as_json, "samples": samples > 1, "best-of": best_of, "top": top}
        options.refuse_given(refused, "--interactive reads prompts from the terminal: leave --{} out")
        talk(load(model, device, dtype, verb="generate"), settings, chat, system)
        return
    refuse(best_of and samples > 1, "--best-of shows one of N texts, --samples shows all: pass one of them")
    refuse(judge and not best_of, "--judge chooses among several texts: add --best-of N")
    refuse(top and not as_json, "--top needs --json: there is no place for alternatives in plain text")
    generator, prompts = load(model, device, dtype, verb="generate"), asked(prompt, "prompt")
    messages: list[Any] = [conversation(text, system) for text in prompts] if chat else prompts
    if as_json or samples > 1 or best_of or search:
        found = generator.generate_n(messages, samples=best_of or samples, top=top, **settings)
        if best_of:
            judging = load(judge, device, dtype) if judge else None
            unfit = judging is not None and "choose" not in judging.asked()
            refuse(unfit, f"{judge} does not choose among texts: headway train reward makes a model that does")
            pairs = zip(messages, found, strict=True)
            found = [[best_answer(passages, prompt, judging)] for prompt, passages in pairs]
        if as_json:
            _print_json(generator, prompts, found)
        else:
            _print([""] * len(prompts) if chat else prompts, [[passage.text for passage in some] for some in found])
        return
    for number, one in enumerate(messages):
        if number:
            print(BETWEEN)
        stream(generator, one, settings)


def _searching(settings: dict[str, Any], search: dict[str, Any], more: Mapping[str, object]) -> dict[str, Any]:
    """The settings of a beam search, once nothing is asked for that only sampling has; `more`: such options."""
    refuse("beam" not in search, "--best and --length-penalty are of a beam search: add --beam-size N")
    asked = {name.replace("_", "-"): settings[name] != usual for name, usual in SAMPLED.items()}
    asked |= {"choice": settings["choices"], "window": settings["window"]}
    why = "--beam-size searches for the most probable text and samples nothing: leave --{} out"
    options.refuse_given(asked | dict(more), why)
    return {name: settings[name] for name in ("max_new", "stop")} | search


def _print(before: list[str], found: list[list[str]]) -> None:
    """Each text after its prompt."""
    print(f"\n{BETWEEN}\n".join(prompt + text for prompt, some in zip(before, found, strict=True) for text in some))


def _print_json(generator: Generator, prompts: list[str], found: list[list[Passage]]) -> None:
    def named(i: int, logp: float) -> dict[str, Any]:
        return {"token": generator.tokenizer.tokens([i])[0], "id": i, "log_probability": logp}

    for prompt, passages in zip(prompts, found, strict=True):
        for passage in passages:
            written = passage.written
            record: dict[str, Any] = {
                "prompt": prompt, "text": passage.text, "ended": passage.ended, "tokens": passage.tokens,
                "log_probabilities": written.logps,
            }  # fmt: skip
            if passage.score is not None:
                record["score"] = passage.score
            if any(written.top):
                record["alternatives"] = [[named(*one) for one in alternatives] for alternatives in written.top]
            print(json_line(record))
