"""headway score"""

from __future__ import annotations

from typing import Any

from headway.cli.options import DEVICE, DTYPE, LANGUAGE_MODEL, THREADS, check_model, flag, option
from headway.cli.texts import asked
from headway.errors import InputError, refuse
from headway.plain import json_line


def score(
    model: str = LANGUAGE_MODEL,
    text: list[str] = option(
        [], "TEXT...", "What to score, or to ask; without it a text a line from standard input.", "--text"
    ),
    choice: list[str] = option([], "TEXT...", "Answers: which of them is likeliest behind the text?"),
    template: str = option(
        None, "TEXT", "With --choice: how text and answer stand, as in 'Review: {text}\\nMood: {answer}'."
    ),
    examples: str = option(
        None, "FILE", "With --choice: answered ones to read first, text and answer with a tab between."
    ),
    by: str = option("sum", "NAME", "With --choice: judge by sum, token or character."),
    as_json: bool = flag("--json", "A JSON object a line, with the log-probability of each token."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """Log-probability of texts under a language model, or the likeliest of several answers to each.

    A line a text, with tabs between: its log-probability, its number of tokens, the text; with --choice the likeliest
    answer, its share of all answers, the text.
    """
    from headway.evaluate.scoring import choose, score_texts
    from headway.tasks.loading import load

    check_model(model, "headway score MODEL --text TEXT")
    if not choice and (template or examples):
        raise InputError("--template and --examples are for --choice: pass the answers to choose from")
    task = _task(template, examples)
    texts = asked(text, "text")
    generator = load(model, device, dtype, verb="score")
    if not choice:
        for scored in score_texts(generator, texts):
            record = {
                "text": scored.text, "log_probability": scored.total, "tokens": len(scored.logps),
                "perplexity": scored.perplexity, "token_texts": scored.tokens, "log_probabilities": scored.logps,
            }  # fmt: skip
            line = f"{scored.total:.4f}\t{len(scored.logps)}\t{one_line(scored.text)}"
            print(json_line(record) if as_json else line)
        return
    named = dict(zip(task.choices(choice), choice, strict=True))
    answers: Any = choose(generator, [task.prompt(one) for one in texts], list(named), by)  # type: ignore[arg-type]
    for question, ranked in zip(texts, answers, strict=True):
        choices = [
            {"answer": named[one.text], "log_probability": one.logp, "tokens": one.tokens, "share": one.share}
            for one in ranked
        ]
        best = named[ranked[0].text]
        line = f"{best}\t{ranked[0].share:.4f}\t{one_line(question)}"
        print(json_line({"text": question, "answer": best, "choices": choices}) if as_json else line)


def _task(template: str | None, examples: str | None) -> Any:
    from headway.data.readers import lines
    from headway.evaluate.scoring import Task

    told = []
    for number, line in enumerate(lines(examples) if examples else [], 1):
        question, tab, answer = line.partition("\t")
        refuse(not tab or not answer, f"{examples}, line {number}: expected a text, a tab and its answer")
        told.append((question, answer))
    return Task(**({} if template is None else {"template": template.replace("\\n", "\n")}), examples=tuple(told))


def one_line(text: str) -> str:
    return " ".join(text.splitlines())
