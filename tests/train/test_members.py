"""benchmarks/members.py: a model that is trained beside others learns what it learns alone, by `headway train`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from headway.data.stories import read_stories
from headway.models import build
from headway.models.heads import Answers
from headway.recipes import RECIPES
from milk import write_stories
from small_runs import carried_out

ROOT = Path(__file__).parents[2]
STEPS, EVERY = 15, 5


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("members"), importlib.import_module("babi")


def alone(data: Path, out: Path, seed: int) -> dict[str, torch.Tensor]:
    """The weights after the last step."""
    settings = [
        f"data.train={data}", "engine.device=cpu", f"engine.steps={STEPS}", f"engine.seed={seed}",
        "engine.snapshot=999", "engine.average=0", f"validation.every={EVERY}", "validation.score_every=999",
        "engine.batch=20",
        f"schedule.hold={2 * EVERY}", f"schedule.every={2 * EVERY}", "engine.checkpoint=999",
    ]  # fmt: skip
    carried_out("babi", out, *settings)
    return load_file(out / "model" / "model.safetensors")


def test_a_member_learns_what_it_learns_alone(scripts: tuple[Any, Any], tmp_path: Path) -> None:
    members, babi = scripts
    data = [write_stories(tmp_path / f"{name}.txt", 60, seed) for name, seed in (("one", 1), ("two", 2))]
    config = RECIPES["babi"].make().model
    groups = [babi.Questions.of([(read_stories([path]), read_stories([path]))], config.memory) for path in data]
    assert {group.vocabulary for group in groups} == {groups[0].vocabulary}
    who = [(0, 1), (1, 1), (1, 5)]  # whose questions, and the seed
    models = []
    for group, seed in who:
        torch.manual_seed(seed)
        head = Answers(labels=tuple(map(str, range(groups[group].answers))))
        models.append(build("memory", config, (groups[group].vocabulary,), head))
    together = members.Members(models, [group for group, _ in who], [group.answers for group in groups], "cpu")
    settings = members.Settings(epochs=STEPS // EVERY, halve=2, rows=20)
    valid = members.Group([group.valid for group in groups], together)
    training = members.Training(together, [group.train for group in groups], valid, settings, [seed for _, seed in who])
    assert training.per_epoch_M.tolist() == [EVERY] * 3
    training.run()
    for number, (group, seed) in enumerate(who):
        expected = alone(data[group], tmp_path / f"run-{number}", seed)
        for name, weight in together.weights.items():
            torch.testing.assert_close(weight[number].detach(), expected[name], rtol=1e-4, atol=1e-5)
        assert bool(together.linear_M[number]) == bool(expected["encoder.linear"])
    assert not torch.equal(together.weights["head.labels.weight"][1], together.weights["head.labels.weight"][2])


def test_padding_to_the_largest_group_changes_nothing(scripts: tuple[Any, Any], tmp_path: Path) -> None:
    """Longer stories, more words and more answers in another group."""
    members, babi = scripts
    small = write_stories(tmp_path / "small.txt", 40)
    large = tmp_path / "large.txt"
    rows = [
        "".join(f"{at} The thing {n} {at} is far away from here .\n" for at in range(1, 12))
        + f"12 Where?\tplace{n % 9}\n"
        for n in range(30)
    ]
    large.write_text("".join(rows), encoding="utf-8")
    config = RECIPES["babi"].make().model
    groups = [babi.Questions.of([(read_stories([p]), read_stories([p]))], config.memory) for p in (small, large)]
    answers, vocabulary = (max(getattr(group, name) for group in groups) for name in ("answers", "vocabulary"))
    torch.manual_seed(3)
    model = build("memory", config, (vocabulary,), Answers(labels=tuple(map(str, range(answers)))))
    found = []
    for some in (groups[:1], groups):
        one = members.Members([model], [0], [group.answers for group in some], "cpu")
        found.append(one.judged(members.Group([group.tests[0] for group in some], one)))
    torch.testing.assert_close(found[0], found[1])
    assert groups[0].answers < answers and 0 < float(found[0][0][0]) < 1
