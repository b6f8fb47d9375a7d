"""headway score"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import DEVICE, DTYPE, THREADS, check_model, use_threads
from headway.cli.texts import lines_of
from headway.errors import InputError
from headway.plain import json_line

if TYPE_CHECKING:
    from headway.evaluate.scoring import Choice, ScoredText


def score(
    model: str = typer.Argument(metavar="MODEL", help="A language model's folder, or a run's folder."),
    text: list[str] = typer.Option(
        [], "--text", metavar="TEXT...", help="What to score, or to ask; without it a text a line from standard input."
    ),
    choice: list[str] = typer.Option(
        [], metavar="TEXT...", help="Answers: which of them is likeliest behind the text?"
    ),
    template: str = typer.Option(
        None, metavar="TEXT", help="With --choice: how text and answer stand, as in 'Review: {text}\\nMood: {answer}'."
    ),
    examples: str = typer.Option(
        None, metavar="FILE", help="With --choice: answered ones to read first, text and answer with a tab between."
    ),
    by: str = typer.Option("sum", metavar="NAME", help="With --choice: judge by sum, token or character."),
    as_json: bool = typer.Option(False, "--json", help="A JSON object a line, with the log-probability of each token."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """Log-probability of texts under a language model, or the likeliest of several answers to each."""
    from headway.evaluate.scoring import choose, score_texts
    from headway.tasks.loading import load

    use_threads(threads)
    check_model(model, "headway score MODEL --text TEXT")
    if not choice and (template or examples):
        raise InputError("--template and --examples are for --choice: pass the answers to choose from")
    task = _task(template, examples)
    texts = text or list(lines_of("-"))
    if not texts:
        raise InputError("no text: pass --text TEXT, or a text a line on standard input")
    generator = load(model, device, dtype, verb="score")
    if not choice:
        for scored in score_texts(generator, texts):
            print(_as_json(scored) if as_json else f"{scored.total:.4f}\t{len(scored.logps)}\t{one_line(scored.text)}")
        return
    named = dict(zip(task.choices(choice), choice, strict=True))
    answers: Any = choose(generator, [task.prompt(one) for one in texts], list(named), by)  # type: ignore[arg-type]
    for asked, ranked in zip(texts, answers, strict=True):
        print(_answer_json(asked, ranked, named) if as_json else _answer_line(asked, ranked, named))


def _task(template: str | None, examples: str | None) -> Any:
    from headway.data.readers import lines
    from headway.evaluate.scoring import Task

    told = []
    for number, line in enumerate(lines(examples) if examples else [], 1):
        question, tab, answer = line.partition("\t")
        if not tab or not answer:
            raise InputError(f"{examples}, line {number}: expected a text, a tab and its answer")
        told.append((question, answer))
    return Task(**({} if template is None else {"template": template.replace("\\n", "\n")}), examples=tuple(told))


def one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _as_json(scored: ScoredText) -> str:
    record = {
        "text": scored.text, "log_probability": scored.total, "tokens": len(scored.logps),
        "perplexity": scored.perplexity, "token_texts": scored.tokens, "log_probabilities": scored.logps,
    }  # fmt: skip
    return json_line(record)


def _answer_json(asked: str, ranked: list[Choice], named: dict[str, str]) -> str:
    choices = [
        {"answer": named[one.text], "log_probability": one.logp, "tokens": one.tokens, "share": one.share}
        for one in ranked
    ]
    return json_line({"text": asked, "answer": named[ranked[0].text], "choices": choices})


def _answer_line(asked: str, ranked: list[Choice], named: dict[str, str]) -> str:
    return f"{named[ranked[0].text]}\t{ranked[0].share:.4f}\t{one_line(asked)}"
