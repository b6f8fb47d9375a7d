"""headway classify"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import DEVICE, DTYPE, THREADS, check_model, use_threads
from headway.cli.texts import texts_of
from headway.errors import InputError

if TYPE_CHECKING:
    from headway.generate.encoder import Encoder, Guess, Tagged


def classify(
    model: str = typer.Argument(metavar="MODEL", help="A folder of a model that labels texts, or words."),
    file: str = typer.Argument(None, metavar="FILE", help="A text a line (.gz, .zst too); without it, stdin."),
    text: list[str] = typer.Option([], "--text", metavar="TEXT...", help="Texts, instead of a file."),
    pairs: bool = typer.Option(False, "--pairs", help="Each line is a pair of texts with a tab between them."),
    every: bool = typer.Option(False, "--all", help="Every label with its probability, not the first alone."),
    truncate: bool = typer.Option(False, "--truncate", help="Cut a text that is longer than the model takes."),
    as_json: bool = typer.Option(False, "--json", help="A JSON object a line: text, and labels with probabilities."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """The label of each text with its probability, order and empty lines kept; of a model that labels words,
    word/label for each word."""
    from headway.models.bert import TokenLabels
    from headway.tasks.loading import load

    use_threads(threads)
    check_model(model, "headway classify MODEL FILE")
    texts = texts_of(text, file)
    encoder = load(model, device, dtype)
    wordwise = isinstance(encoder.task, TokenLabels)
    if wordwise and (pairs or every):
        raise InputError("this model labels words: leave --pairs and --all out")
    for one, found in _found(encoder, texts, pairs, truncate, wordwise):
        if as_json:
            print(json.dumps({"text": one, "labels": [_plain(guess) for guess in found]}, ensure_ascii=False))
        elif wordwise:
            print(" ".join(f"{word.text}/{word.label}" for word in found))
        else:
            print("\t".join(f"{guess.text}\t{guess.probability:.4f}" for guess in (found if every else found[:1])))


def _found(
    encoder: Encoder, texts: list[str], pairs: bool, truncate: bool, wordwise: bool
) -> Iterable[tuple[str, list[Any]]]:
    """Every text with its answer; an empty one has none."""
    there = [number for number, text in enumerate(texts) if text.strip()]
    if wordwise:
        answers: list[Any] = encoder.tag([texts[i] for i in there], truncate=truncate)
    else:
        given: list[Any] = [_pair(texts[i], i + 1) if pairs else texts[i] for i in there]
        answers = encoder.classify(given, truncate=truncate)
    answer_of = dict(zip(there, answers, strict=True))
    return [(text, answer_of.get(number, [])) for number, text in enumerate(texts)]


def _pair(line: str, number: int) -> tuple[str, str]:
    first, tab, second = line.partition("\t")
    if not tab:
        raise InputError(f"line {number} has no tab: with --pairs each line is text TAB text")
    return first, second


def _plain(found: Guess | Tagged) -> Any:
    from headway.generate.encoder import Tagged

    if isinstance(found, Tagged):
        return {"text": found.text, "start": found.start, "end": found.end, "label": found.label,
                "probability": round(found.probability, 6)}  # fmt: skip
    return [found.text, round(found.probability, 6)]
