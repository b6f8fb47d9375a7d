"""A model by its folder, ready to answer what its task answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.device import choose
from headway.errors import InputError, nearest, refuse
from headway.folder import find_model, read_card, read_model
from headway.generate.tracing import called
from headway.nn.weights import lay_out
from headway.tasks import TASKS
from headway.tasks.task import Task


def task_of(folder: str | Path) -> type[Task]:
    """The task of the model in a folder (or in a run's folder)."""
    name = read_card(find_model(folder)).task
    refuse(name not in TASKS, f"{folder}: there is no task '{name}'{nearest(name, TASKS)}")
    return TASKS[name]


def load(folder: str | Path, device: str = "auto", dtype: str = "auto", *, verb: str | None = None) -> Any:
    """What the model's task gives: a `Translator`, a `Generator`, an `Encoder`. `verb`: the command that it must
    answer, one of its `verbs`."""
    place, precision = choose(device, dtype)
    task = task_of(folder)
    loaded = read_model(folder, place, precision)
    if verb is not None and verb not in (task.verb, *task.verbs):
        raise InputError(f"{folder} ({loaded.card.family}) does not {verb}; it answers headway {task.verb} {folder}")
    answering = task.opens(loaded, place, precision)
    answering.name, answering.task = called(folder), task
    # Here, and not where a model in training is asked: its weights stay as they lie.
    lay_out(loaded.model, getattr(answering, "rows", "many"))
    return answering
