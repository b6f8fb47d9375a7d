"""Options that several verbs share."""

from __future__ import annotations

import typer

DEVICE = typer.Option("auto", help="cpu, cuda or cuda:N; auto takes a GPU where there is one.")
DTYPE = typer.Option("auto", help="float32 or bfloat16; auto is bfloat16 on a GPU.")
THREADS = typer.Option(0, min=0, help="CPU threads; 0 leaves it to torch.")
BEAM = typer.Option(None, help="Beam width; 1 is greedy. Default: what the model was tuned with.")
LENGTH_PENALTY = typer.Option(None, help="α in score / lengthᵅ.")


def use_threads(threads: int) -> None:
    if threads > 0:
        import torch

        torch.set_num_threads(threads)


def search_settings(**given: object) -> dict[str, object]:
    """Only what was asked for: the rest stays as the model has it."""
    return {name: value for name, value in given.items() if value is not None}
