"""headway fill"""

from __future__ import annotations

import json

import typer

from headway.cli.options import DEVICE, DTYPE, THREADS, check_model, use_threads
from headway.cli.texts import texts_of


def fill(
    model: str = typer.Argument(metavar="MODEL", help="A folder of a model that was trained on masked words."),
    file: str = typer.Argument(None, metavar="FILE", help="A text a line (.gz, .zst too); without it, stdin."),
    text: list[str] = typer.Option([], "--text", metavar="TEXT...", help="Texts with [MASK] where a word is missing."),
    top: int = typer.Option(5, min=1, metavar="N", help="Words for each gap."),
    truncate: bool = typer.Option(False, "--truncate", help="Cut a text that is longer than the model takes."),
    as_json: bool = typer.Option(False, "--json", help="A JSON object a line: text, and words with probabilities."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """The words that may stand in the gaps of a text, with their probabilities."""
    from headway.tasks.loading import load

    use_threads(threads)
    check_model(model, "headway fill MODEL FILE")
    texts = texts_of(text, file)
    encoder = load(model, device, dtype, verb="fill")
    for one, gaps in zip(texts, encoder.fill(texts, top=top, truncate=truncate), strict=True):
        if as_json:
            rows = [[[guess.text, round(guess.probability, 6)] for guess in guesses] for guesses in gaps]
            print(json.dumps({"text": one, "gaps": rows}, ensure_ascii=False))
            continue
        print(one)
        for number, guesses in enumerate(gaps, 1):
            if len(gaps) > 1:
                print(f"  gap {number}")
            for guess in guesses:
                print(f"  {guess.probability:6.4f}  {guess.text}")
