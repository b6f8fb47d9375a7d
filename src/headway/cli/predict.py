"""headway predict"""

from __future__ import annotations

import json
from typing import Any

import typer

from headway.cli.options import DEVICE, DTYPE, THREADS, check_model, use_threads
from headway.cli.texts import texts_of
from headway.plain import finite


def predict(
    model: str = typer.Argument(metavar="MODEL", help="A model folder, or a run's folder."),
    inputs: list[str] = typer.Argument(None, metavar="INPUT...", help="A text a line (.gz, .zst too); else stdin."),
    text: list[str] = typer.Option([], "--text", metavar="TEXT...", help="Texts, instead of a file."),
    pairs: bool = typer.Option(False, "--pairs", help="Each line is a pair of texts with a tab between them."),
    every: bool = typer.Option(False, "--all", help="Every label with its probability, not the first alone."),
    truncate: bool = typer.Option(False, "--truncate", help="Cut a text that is longer than the model takes."),
    max_new_tokens: int = typer.Option(None, min=1, metavar="N", help="Of a model that writes: the most tokens."),
    beam_size: int = typer.Option(None, min=1, metavar="N", help="Of a translator: hypotheses that are kept."),
    seed: int = typer.Option(None, min=0, metavar="N", help="Of a model that samples: the random generator's seed."),
    as_json: bool = typer.Option(False, "--json", help="A JSON object a line."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """What the model's task answers: labels, tags, words for gaps, vectors, a translation, a continuation. One line for
    each input, in order; an empty line gives an empty one."""
    from headway.tasks.loading import load, task_of

    use_threads(threads)
    check_model(model, "headway predict MODEL FILE")
    task = task_of(model)
    options: dict[str, Any] = {
        "pairs": pairs, "all": every, "truncate": truncate, "max_new_tokens": max_new_tokens, "beam_size": beam_size,
        "seed": seed,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value not in (None, False)}
    values = task.read(inputs or [], text, texts_of)
    for found in task.answer(load(model, device, dtype), values, given):
        print(json.dumps(finite(found.values), ensure_ascii=False) if as_json else found.line)
