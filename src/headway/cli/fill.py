"""headway fill"""

from __future__ import annotations

import json

from headway.cli.options import DEVICE, DTYPE, LINES, THREADS, TRUNCATE, argument, check_model, flag, option
from headway.cli.texts import texts_of


def fill(
    model: str = argument("MODEL", "A folder of a model that was trained on masked words."),
    file: str = LINES,
    text: list[str] = option([], "TEXT...", "Texts with [MASK] where a word is missing.", "--text"),
    top: int = option(5, "N", "Words for each gap.", min=1),
    truncate: bool = TRUNCATE,
    as_json: bool = flag("--json", "A JSON object a line: text, and words with probabilities."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """The words that may stand in the gaps of a text, with their probabilities."""
    from headway.tasks.loading import load

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
