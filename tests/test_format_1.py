"""Model folders and runs of format 1, as headway wrote them then, open for ever: every family gives what it gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.batch import TextInputs
from headway.folder import read_card, read_model
from headway.models import FAMILIES
from headway.plain import to_plain
from headway.tasks import TASKS
from headway.train.run import run_from

FOLDERS = Path(__file__).parent / "folders" / "format-1-families"
WANTED = json.loads((FOLDERS / "expected.json").read_text(encoding="utf-8"))


def computed(folder: Path) -> torch.Tensor:
    found = read_model(folder)
    ids = torch.tensor([WANTED["ids"]])
    family: Any = FAMILIES[found.card.family]
    with torch.no_grad():
        if family.role == "encodes":
            answer = found.model(TextInputs(ids))
            return answer[0] if isinstance(answer, tuple) else answer
        if family.role == "vectors":
            return found.model.table.weight  # type: ignore[union-attr,return-value]
        if family.has_source:
            return found.model(ids, ids)
        scores: torch.Tensor = found.model.score(ids)  # type: ignore[operator]
        return scores


@pytest.mark.parametrize("name", WANTED["values"])
def test_a_folder_of_every_family_gives_what_it_gave(name: str) -> None:
    wanted = torch.tensor(WANTED["values"][name])
    torch.testing.assert_close(computed(FOLDERS / name).flatten()[: len(wanted)].float(), wanted, atol=2e-5, rtol=1e-4)
    assert read_card(FOLDERS / name).task in TASKS


def test_all_families_are_among_them() -> None:
    kept = {read_card(FOLDERS / name).family for name in WANTED["values"]} | {"transformer"}  # which has its own folder
    assert kept == {family for family in FAMILIES if family in kept} and len(kept) == 10


@pytest.mark.parametrize(
    ("model", "data", "wanted"),
    [
        ({"name": "ngram", "order": 3}, {"name": "plain-text"}, {"objective": "counting", "data": "plain-text"}),
        (
            {"name": "skip-gram"},
            {"name": "plain-text", "order": "epoch", "apart": False, "text": {"kind": "word"}},
            {"objective": "negative-sampling", "data": "words"},
        ),
        (
            {"name": "bert", "task": {"name": "text-labels", "labels": ["a", "b"]}},
            {"name": "labelled-text"},
            {"objective": "labels", "data": "labelled-text", "head": "classes"},
        ),
    ],
)
def test_a_run_of_an_earlier_version_opens(model: dict[str, Any], data: dict[str, Any], wanted: dict[str, str]) -> None:
    old = {"recipe": "old", "data": data, "model": model, "objective": {"name": "next-token"}}
    if model["name"] == "bert":
        old["objective"] = {"name": "labels"}
    run = to_plain(run_from(old))
    assert {key: run[key]["name"] for key in wanted} == wanted
    assert to_plain(run_from(run)) == run, "what is written today is read as it is"
