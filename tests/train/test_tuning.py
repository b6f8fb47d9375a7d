"""Tuning on conversations and preferences: losses against their formulas, packed rows as rows alone, runs resumed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headway import load
from headway.batch import IGNORED, TextInputs
from headway.cli.train import resolve
from headway.data.exchanges import Exchange, PackedRows, padded
from headway.data.preference_pairs import PreferenceStore
from headway.errors import InputError
from headway.models.gpt import GPT, GPTConfig
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.objective import NextToken
from headway.tasks.preferring import Dpo, DpoObjective
from headway.tasks.ranking import ChoiceBatch
from headway.text.chat import asked_text
from small_runs import call, carried_out, check_resumed, train_quietly

SETTINGS = (
    "engine.device=cpu", "engine.batch=192", "engine.snapshot=4", "engine.log=5", "engine.checkpoint=3",
    "validation.every=4", "validation.score_every=4", "schedule.warmup=2", "engine.steps=8",
)  # fmt: skip
SMALL = (
    "model.layers=2", "model.width=16", "model.heads=2", "model.max_length=96", "model.dropout=0.1",
    "data.text.size=300", "data.text.min_count=1", "schedule.peak=0.01",
)  # fmt: skip


def exchange(*ids: int, said: int) -> Exchange:
    """The last `said` of these ids are an answer."""
    labels = [*ids[1:], IGNORED]
    return Exchange(list(ids), [IGNORED] * (len(ids) - said - 1) + labels[len(ids) - said - 1 :])


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(2, 24, 48, 2, dropout=0.0, max_length=32), 50).double()


def log_prob(model: GPT, one: Exchange) -> Tensor:
    """By the definition."""
    log_p_TV = model(torch.tensor([one.ids]))[0][0].log_softmax(-1)
    return torch.stack([log_p_TV[at, label] for at, label in enumerate(one.labels) if label != IGNORED]).sum()


PAIRS = [
    (exchange(5, 6, 7, 8, 9, said=2), exchange(5, 6, 7, 11, said=1)),
    (exchange(12, 13, 14, said=1), exchange(12, 13, 20, 21, 22, said=3)),
    (exchange(30, 31, 32, 33, said=2), exchange(30, 31, 34, 35, said=2)),
]


@pytest.mark.parametrize(("smoothing", "likelihood"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.5)])
def test_the_loss_and_its_gradient_are_those_of_the_formula(model: GPT, smoothing: float, likelihood: float) -> None:
    beta = 0.3
    store = PreferenceStore(PAIRS)
    store.reference_N2.copy_(torch.tensor([[-3.0, -2.0], [-4.0, -9.0], [-7.0, -7.5]]))
    batch = next(store.batches(10_000, 0, False, 32).epoch()).pad(5)
    objective = DpoObjective(model, Dpo(beta, smoothing, likelihood)).train()
    terms = objective(batch)
    found = sum(value * weight / batch.counts[name] for name, (value, weight) in terms.items())
    losses, chosen, margins = [], [], []
    for at, (good, bad) in zip(batch.examples, (PAIRS[at] for at in batch.examples), strict=True):
        ratios = [log_prob(model, one) - store.reference_N2[at, side] for side, one in enumerate((good, bad))]
        delta = beta * (ratios[0] - ratios[1])
        losses.append(-(1 - smoothing) * F.logsigmoid(delta) - smoothing * F.logsigmoid(-delta))
        chosen.append(log_prob(model, good))
        margins.append((delta / beta).detach())
    said = sum(label != IGNORED for good, _ in PAIRS for label in good.labels)
    expected = torch.stack(losses).mean() - likelihood * torch.stack(chosen).sum() / said
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(loss, list(model.parameters()), allow_unused=True) for loss in (found, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    assert float(terms["accuracy"][0]) == sum(float(margin) > 0 for margin in margins)
    torch.testing.assert_close(terms["margin"][0], torch.stack(margins).sum(), rtol=0, atol=1e-12)


def test_packed_rows_have_the_loss_of_rows_alone(model: GPT) -> None:
    found = [one for pair in PAIRS for one in pair]
    rows = PackedRows(found, 2, 12, seed=3)
    assert len(rows.filled) < len(found)
    objective = NextToken().build(model).eval()
    with torch.no_grad():
        packed = sum(float(objective(batch)["loss"][0]) for batch in rows.epoch())
        alone = float(objective(padded(found, 8))["loss"][0])
        expected = -sum(float(log_prob(model, one)) for one in found)
    assert packed == pytest.approx(alone, abs=1e-9) and alone == pytest.approx(expected, abs=1e-9)


def write_talk(folder: Path) -> tuple[Path, Path]:
    """Conversations, and preferences of the same prompts."""
    rows = [
        {"prompt": f"What is {a} and {b}?", "chosen": f"It is {a + b}.", "rejected": f"I do not know {a} or {b}!"}
        for a in range(8) for b in range(8)
    ]  # fmt: skip
    talk, pairs = folder / "talk.jsonl", folder / "pairs.jsonl"
    talk.write_text("".join(json.dumps({"prompt": row["prompt"], "completion": row["chosen"]}) + "\n" for row in rows))
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return talk, pairs


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    talk, _ = write_talk(folder)
    carried_out("tune", folder / "run", *SETTINGS, *SMALL, f"data.train={talk}")
    return folder


def test_a_tuned_model_answers_with_its_template(tuned: Path) -> None:
    generator = load(tuned / "run")
    prompt = [{"role": "user", "content": "What is 1 and 2?"}]
    ids = generator.ids(prompt)
    assert generator.tokenizer.decode(ids) == "Human: What is 1 and 2?\n\nAssistant:"
    assert isinstance(generator.generate(prompt, max_new=3, temperature=0), str)
    card = json.loads((tuned / "run" / "model" / "headway.json").read_text())
    assert card["task"] == "language" and card["score"]["validation perplexity"] > 1


def test_tuning_resumes_to_the_bit(monkeypatch: pytest.MonkeyPatch, tuned: Path, tmp_path: Path) -> None:
    def run(out: Path, resume: bool = False) -> None:
        carried_out("tune", out, *SETTINGS, *SMALL, f"data.train={tuned / 'talk.jsonl'}", resume=resume)

    check_resumed(monkeypatch, tuned / "run", tmp_path / "again", 6, run)


def test_preferences_begin_at_log_2_resume_to_the_bit_and_raise_the_chosen(
    monkeypatch: pytest.MonkeyPatch, tuned: Path, tmp_path: Path
) -> None:
    def run(out: Path, resume: bool = False) -> None:
        made = resolve("prefer", {"train": (str(tuned / "pairs.jsonl"),)}, None, str(tuned / "run"), list(settings))
        train_quietly(made, out, resume)

    settings = (*SETTINGS, "schedule.peak=0.01")
    write_talk(tuned)
    run(tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    first = next(one for one in log if one["event"] == "validation")
    score = json.loads((tmp_path / "run" / "model" / "headway.json").read_text())["score"]
    assert score["validation accuracy"] > 0.9 and score["validation margin"] > 0
    assert first["loss"] < math.log(2)
    asked = [{"role": "user", "content": "What is 1 and 2?"}]
    assert load(tmp_path / "run").ids(asked) == load(tuned / "run").ids(asked)  # the template stays
    check_resumed(monkeypatch, tmp_path / "run", tmp_path / "again", 6, run)


def test_before_the_first_step_no_answer_has_gained(tuned: Path, model: GPT) -> None:
    store = PreferenceStore(PAIRS)
    batches = store.batches(10_000, 0, False, 32)
    objective = DpoObjective(model, Dpo()).eval()
    for batch in batches.epoch():
        store.reference_N2[list(batch.examples)] = objective.log_probs(batch)[0].detach()
    batch = next(batches.epoch())
    terms = objective(batch.map(lambda t: t.double() if t.is_floating_point() else t))
    assert float(terms["loss"][0]) / 3 == pytest.approx(math.log(2), abs=1e-6)


def test_preferences_need_a_model_that_can_answer(tuned: Path, tmp_path: Path) -> None:
    write_talk(tuned)
    code, _, err = call("train", "prefer", "--data", tuned / "pairs.jsonl", "--out", tmp_path / "run")
    assert code == 2 and "pass --init MODEL" in err and "Traceback" not in err


def test_what_does_not_fit_is_left_out_and_told(tuned: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"question {n}", "completion": "word " * (2 if n % 4 else 400)} for n in range(80)]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [word for one in SETTINGS for word in ("--set", one)]
    code, _, err = call("train", "tune", "--data", tmp_path / "long.jsonl", "--init", tuned / "run", "--out",
                        tmp_path / "run", *words)  # fmt: skip
    assert code == 0 and "conversations longer than 96 tokens are left out" in err
    with pytest.raises(InputError, match="all 2 conversations are longer"):
        rows = [{"prompt": f"question {n}", "completion": "word " * 400} for n in range(4)]
        (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        carried_out("tune", tmp_path / "none", *SETTINGS, *SMALL, f"data.train={tmp_path / 'long.jsonl'}",
                    "data.hold_out=0.5")  # fmt: skip


REWARD = (
    "engine.device=cpu", "engine.batch=512", "engine.snapshot=4", "engine.log=5", "engine.checkpoint=3",
    "validation.every=10", "validation.score_every=10", "schedule.warmup=2", "schedule.peak=0.01", "engine.steps=30",
    "model.layers=1", "model.width=16", "model.inner=32", "model.heads=2", "model.max_length=64", "model.dropout=0.0",
    "data.text.size=300", "data.text.min_count=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def judge(tuned: Path) -> Path:
    _, pairs = write_talk(tuned)
    run = change(RECIPES["reward"].make(), [*REWARD, f"data.train={pairs}"])
    train_quietly(run, tuned / "judge")
    return tuned / "judge"


def test_a_judge_learns_which_answers_are_liked(judge: Path) -> None:
    chooser = load(judge)
    card = json.loads((judge / "model" / "headway.json").read_text())
    assert card["task"] == "multiple-choice" and card["score"]["validation accuracy"] > 0.9
    answers = ["It is 3.", "I do not know 1 or 2!"]
    shares = chooser.choose(("Human: What is 1 and 2?", answers))
    assert shares[0] > 0.5 and sum(shares) == pytest.approx(1)


def test_the_loss_of_a_judge_is_bradley_and_terrys(judge: Path) -> None:
    torch.manual_seed(0)
    head: Any = load(judge).model.head
    logits = torch.randn(6, requires_grad=True)
    batch = ChoiceBatch(TextInputs(torch.zeros(3, 1)), TextInputs(torch.zeros(3, 1)), torch.tensor([1.0, 1.0, 0.0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head, "choices", lambda encoded: encoded)
        found = head.losses(logits, batch)["loss"][0]
    expected = F.cross_entropy(logits.view(2, 3).T[:2], torch.zeros(2, dtype=torch.long), reduction="sum")
    torch.testing.assert_close(found, expected)


def test_training_a_judge_resumes_to_the_bit(monkeypatch: pytest.MonkeyPatch, judge: Path, tmp_path: Path) -> None:
    def run(out: Path, resume: bool = False) -> None:
        settings = [*REWARD, f"data.train={judge.parent / 'pairs.jsonl'}"]
        train_quietly(change(RECIPES["reward"].make(), settings), out, resume)

    check_resumed(monkeypatch, judge, tmp_path / "again", 17, run)


def test_of_several_answers_the_judge_prefers_one(tuned: Path, judge: Path) -> None:
    generator, chooser = load(tuned / "run"), load(judge)
    prompt = [{"role": "user", "content": "What is 1 and 2?"}]
    settings = {"max_new": 5, "seed": 3}
    [found] = generator.generate([prompt], best_of=6, judge=chooser, **settings)
    texts = [passage.text for passage in generator.generate_n([prompt], samples=6, **settings)[0]]
    shares = chooser.choose((asked_text(prompt), texts), truncate=True)
    assert found == texts[shares.index(max(shares))]
    words = ["generate", tuned / "run", "--chat", "--prompt", "What is 1 and 2?", "--best-of", 6, "--max-new-tokens", 5]
    code, out, err = call(*words, "--seed", 3, "--judge", judge)
    assert code == 0 and out.strip() == found.strip(), err
    code, _, err = call(*words, "--judge", tuned / "run")
    assert code == 2 and "does not choose among texts" in err
    code, _, err = call(*words[:-4], "--judge", judge)
    assert code == 2 and "add --best-of" in err
