"""`headway compare`: recipes side by side under one budget, gone on with, and refused in one line."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from calling import DEVICE, Headway, listing, write

from headway.cli.compare import _budget
from headway.cli.place import locked
from headway.recipes import RECIPES
from headway.recipes.grammar import sample
from headway.train.comparison import Entry, footer, on_one_text, spread, table, within

SMALL = ["--set", "engine.batch=512", "model.layers=1", "model.width=16", "model.heads=2", "model.max_length=32"]
PAIR = ["shakespeare-char-cpu", "gpt"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("text"), "text.txt", [row.source for row in sample(300, seed=3)])


def compare(text: Path, out: Path, *more: object) -> list[object]:
    return ["compare", *PAIR, "--data", text, "--out", out, *DEVICE, *SMALL, *more]


def models(out: Path) -> dict[str, int]:
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in sorted(out.glob("*/*/model/headway.json"))}


def test_recipes_are_compared_and_what_is_there_is_not_trained_again(
    headway: Headway, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    answer = headway(*compare(text, out, "--tokens", "6k"))
    assert answer.code == 0, answer
    first = models(out)
    assert len(first) == 2
    more = headway(*compare(text, out, "--tokens", "6k", "--seeds", 2, "--json"))
    assert more.code == 0, more
    both = models(out)
    assert len(both) == 4 and first.items() <= both.items()
    assert (out / "comparison.png").stat().st_size > 5_000

    results = json.loads(more.out)
    assert results == json.loads((out / "results.json").read_text())
    for entry in results["runs"]:
        cards = [json.loads((out / entry["name"] / f"seed-{n}/model/headway.json").read_text()) for n in (1, 2)]
        assert entry["test"] == [card["score"]["test perplexity"] for card in cards]
        assert entry["test"][0] != entry["test"][1]
        assert entry["tokens"] == round(6000 / 512) * 512
        assert {card["run"]["data"]["text"]["kind"] for card in cards} == {"char"}  # as the first recipe has it
        assert f"{statistics.mean(entry['test']):,.1f} ± " in (out / "table.md").read_text()
    # The same text held out of all: 4 runs, one validation store and one test store each.
    logs = [(out / name / "seed-1" / "log.jsonl").read_text().splitlines() for name in PAIR]
    amounts = [[json.loads(line)["characters"] for line in log if '"data"' in line] for log in logs]
    assert amounts[0] == amounts[1] and len(amounts[0]) == 3


def test_a_stopped_comparison_goes_on(headway: Headway, text: Path, tmp_path: Path) -> None:
    import headway.cli.train as train_module

    out, carried, stops = tmp_path / "out", [], iter([False, True])
    real = train_module.carry_out

    def stopping(run: object, *rest: object, **more: object) -> object:
        carried.append(run)
        if next(stops, False):
            raise KeyboardInterrupt
        return real(run, *rest, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_module, "carry_out", stopping)
        assert headway(*compare(text, out, "--tokens", "3k")).code == 130
        assert len(models(out)) == 1
        assert headway(*compare(text, out, "--tokens", "3k")).code == 0
    assert len(carried) == 3 and len(models(out)) == 2


def test_a_budget_in_seconds_is_measured_once(headway: Headway, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert headway(*compare(text, out, "--seconds", 0.5)).code == 0
    plan = json.loads((out / "comparison.json").read_text())
    assert set(plan["tokens"]) == set(PAIR) and min(plan["tokens"].values()) > 0
    assert not list(out.glob(".*-probe"))
    before = models(out)
    assert headway(*compare(text, out, "--seconds", 0.5)).code == 0
    assert models(out) == before


def test_a_run_within_its_budget_keeps_the_shares_of_its_steps() -> None:
    run = within(RECIPES["shakespeare-char"].make(), 1_000_000)
    assert run.engine.steps == round(1_000_000 / (64 * 256))
    assert run.schedule.warmup == run.validation.every == run.engine.checkpoint == run.engine.steps // 10


@pytest.mark.parametrize("name", ["ptb-lstm-medium", "ptb-lstm-tied", "ptb-gpt"])
def test_stairs_and_averages_are_those_of_the_whole_run(name: str) -> None:
    recipe = RECIPES[name].make()
    run = within(recipe, 1_000_000)
    share = run.engine.steps / recipe.engine.steps
    if recipe.engine.average > 1:
        assert run.engine.snapshot == pytest.approx(recipe.engine.snapshot * share, abs=0.5)
    end = [of.schedule.rate(of.engine.steps, of.engine.steps) / of.schedule.peak for of in (recipe, run)]
    assert end[1] == pytest.approx(end[0], rel=0.35)  # it comes down as far, give or take a stair


def test_spread_is_mean_and_deviation() -> None:
    assert spread([80.0, 84.0]) == "82.0 ± 2.8"
    assert spread([80.25]) == "80.2" and spread([]) == "–"
    plain = {"name": "a", "figure": "perplexity", "parameters": 0, "tokens": 0, "unit": "tokens", "share": 1.0}
    assert Entry("a", "perplexity").to_plain() == plain | {"notes": []}


def test_a_row_that_is_not_to_be_compared_as_it_stands_is_marked_and_explained() -> None:
    whole = Entry("whole", "perplexity", validation=[9.0], speed=[1.0], seconds=[9.0], epochs=[1.0])
    short = Entry("short", "perplexity", validation=[8.0], speed=[1.0], seconds=[9.0], epochs=[0.25, 1.5], share=0.5)
    late = Entry("late", "perplexity", validation=[8.0], speed=[1.0], seconds=[130.0], epochs=[2.0], allowed=60.0)
    assert [row[0] for row in table([whole, short, late])] == ["recipe", "whole", "short *", "late *"]
    lines = footer([whole, short, late]).splitlines()
    assert len(lines) == 2 and lines[0].startswith("* short saw 0.25 epochs") and "on 50 % of the valid" in lines[0]
    assert lines[1].startswith("* late took 2 min 10 s of 1 min")
    assert "0.25 epochs" in short.to_plain()["notes"][0] and footer([whole]) == ""


@pytest.mark.parametrize(("words", "count"), [("2M", 2e6), ("500k", 5e5), ("1,000", 1e3), ("1.5m", 1.5e6)])
def test_a_budget_is_read_as_people_write_it(words: str, count: float) -> None:
    assert _budget(words, None) == {"tokens": count}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tokens", "0"], "too small"),
        (["--tokens", "-5"], "too small"),
        (["--tokens", "many"], "no number"),
        (["--seconds", "0"], "too small"),
        (["--seconds", "1", "--tokens", "5k"], "two budgets"),
        (["--seeds", "0"], "at least once"),
    ],
)
def test_a_bad_budget_is_one_line(headway: Headway, text: Path, tmp_path: Path, more: list[str], said: str) -> None:
    answer = headway(*compare(text, tmp_path / "out", *more))
    assert answer.code == 2 and said in answer.err and len(answer.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("{", "comparison.json cannot be read"),
        ("[" * 20_000, "nested too deeply"),
        ('{"budget": 3, "tokens": {}}', "comparison.json: budget must have numbers by their names"),
        ('{"budget": {}, "tokens": {"markov": "x"}}', "comparison.json: tokens must have numbers by their names"),
    ],
)
def test_a_plan_that_cannot_be_read_is_one_line(
    headway: Headway, text: Path, tmp_path: Path, plan: str, said: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "comparison.json").write_text(plan, encoding="utf-8")
    answer = headway(*compare(text, out))
    assert answer.code == 2 and said in answer.err and len(answer.err.splitlines()) == 1


def test_a_mistyped_file_leaves_nothing_behind_and_a_wrong_setting_names_its_recipe(
    headway: Headway, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    answer = headway(*compare(tmp_path / "no.txt", out))
    assert answer.code == 2 and "no.txt" in answer.err and not out.exists()
    assert headway(*compare(text, out, "--tokens", "2k")).code == 0
    kept = models(out)
    assert headway(*compare(tmp_path / "no.txt", out, "--overwrite")).code == 2 and models(out) == kept
    answer = headway("compare", "markov", "lstm", "--data", text, "--out", out, "--set", "model.width=32")
    assert answer.code == 2 and answer.err.startswith("headway: markov: unknown key 'model.width'")


def test_what_cannot_be_compared_is_refused(headway: Headway, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    apart = headway("compare", "multi30k-en-de", "shakespeare-char", "--out", out)
    assert apart.code == 2 and "not comparable" in apart.err
    texts = headway("compare", "novels-gpt", "shakespeare-char", "--out", out)
    assert texts.code == 2 and "data.train" in texts.err and "--data" in texts.err
    unknown = headway("compare", "shakespear-char", "--out", out)
    assert unknown.code == 2 and "shakespeare-char" in unknown.err
    assert headway(*compare(text, out, "--tokens", "2k")).code == 0
    other = headway(*compare(text, out, "--tokens", "4k"))
    assert other.code == 2 and "another budget" in other.err
    elsewhere = headway(*compare(text, text.parent, "--tokens", "4k", "--overwrite"))
    assert elsewhere.code == 2 and "not the folder of a comparison" in elsewhere.err


def test_the_order_of_the_text_may_differ() -> None:
    runs = {name: RECIPES[name].make() for name in ("shakespeare-char", "shakespeare-char-cpu")}
    leveled = on_one_text(runs, own=False)
    assert all(run.data.hold_out_test == run.data.hold_out for run in leveled.values())  # type: ignore[union-attr]


def test_a_chain_that_gives_a_word_no_chance_is_drawn_too(headway: Headway, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    chain = ["--set", "model.smoothing=maximum-likelihood", "data.text.kind=word"]
    answer = headway("compare", "markov", "--data", text, "--out", out, *DEVICE, *chain)
    assert answer.code == 0 and " inf " in answer.out, answer
    assert (out / "comparison.png").is_file() and "Infinity" not in (out / "results.json").read_text()


@pytest.mark.parametrize("bad", [["--device", "x"], ["--set", "engine.frozen=nosuch"], ["--set", "init=/nonexistent"]])
def test_a_comparison_that_cannot_be_replaced_stays(
    headway: Headway, text: Path, tmp_path: Path, bad: list[str]
) -> None:
    out = tmp_path / "out"
    assert headway(*compare(text, out, "--tokens", "1k")).code == 0
    before = listing(out)
    assert headway(*compare(text, out, "--tokens", "1k", "--overwrite", *bad)).code == 2
    assert listing(out) == before and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_replaced_comparison_is_there_until_the_new_one_is_whole(
    headway: Headway, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between two recipes: the earlier results stay, the same command finishes the new ones."""
    out, drawn = tmp_path / "out", "headway.explore.curves.comparison_picture"
    assert headway(*compare(text, out, "--tokens", "1k")).code == 0
    before, command = listing(out), compare(text, out, "--tokens", "2k", "--overwrite")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(drawn, interrupt)
        assert headway(*command).code == 130
    assert listing(out) == before
    trained = models(tmp_path / "out.new")
    assert len(trained) == 2
    assert headway(*command).code == 0
    assert models(out) == trained and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_comparison_that_is_being_trained_is_not_touched(headway: Headway, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert headway(*compare(text, out, "--tokens", "1k")).code == 0
    write(tmp_path, "out.new", ["what the other process is about to put there"])
    before = listing(tmp_path)
    with locked(out):
        for more in ([], ["--overwrite"]):
            answer = headway(*compare(text, out, "--tokens", "1k", *more))
            assert answer.code == 2 and "another process" in answer.line
    assert listing(tmp_path) == before


@pytest.mark.long
def test_translators_are_compared_by_the_length_of_the_source_too(headway: Headway, tmp_path: Path) -> None:
    rows, out = sample(400, seed=3), tmp_path / "out"
    sides = [write(tmp_path, name, [getattr(row, name) for row in rows]) for name in ("source", "target")]
    small = ["--set", "engine.batch=256", "model.width=16", "data.hold_out=40", "search.beam=1", "search.max_extra=1"]
    answer = headway(
        "compare", "translate", "translate-rnn", "--data", *sides, "--tokens", "1k", "--out", out, *DEVICE, *small
    )
    assert answer.code == 0, answer
    assert "longest path" in answer.out and (out / "breakdown.png").stat().st_size > 5_000
    for entry in json.loads((out / "results.json").read_text())["runs"]:
        assert entry["by"] == "words of the source" and entry["path"] >= 1
        assert sum(row["count"] for row in entry["breakdown"][0]) > 20
