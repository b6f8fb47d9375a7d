"""Training by counting: from text files to a model folder that scores as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headway.errors import InputError
from headway.folder import read_model
from headway.models.ngram import NGram, NGramConfig
from headway.models.smoothing import MaximumLikelihood, StupidBackoff
from headway.recipes import RECIPES
from headway.recipes.grammar import sample
from headway.tasks.language import PlainText
from headway.tasks.loading import load
from headway.tasks.objective import Counting, NextToken
from headway.tasks.translation import ParallelText
from headway.text.tokenizer import END, TextOptions
from headway.train.estimate import describe
from headway.train.job import train
from headway.train.log import Log
from headway.train.run import Run
from small_runs import train_quietly
from small_world import surroundings

LINES = TextOptions(kind="word", size=500, min_count=1, lines=True)


@pytest.fixture(autouse=True)
def apart(tmp_path: Path) -> Iterator[None]:
    with surroundings(tmp_path / "cache"):
        yield


@pytest.fixture
def data(tmp_path: Path) -> PlainText:
    """Sentences of the demo's grammar, a line each, in three files."""
    rows = [sentence.source for sentence in sample(400, seed=3)]
    for name, part in (("train", rows[:300]), ("valid", rows[300:350]), ("test", rows[350:])):
        (tmp_path / name).write_text("".join(f"{row}\n" for row in part), encoding="utf-8")
    return PlainText(*((str(tmp_path / name),) for name in ("train", "valid", "test")), text=LINES)


def rows_of(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def learn(data: PlainText, out: Path, model: NGramConfig = NGramConfig(3)) -> dict[str, object]:  # noqa: B008
    return train_quietly(Run("x", data, model, Counting()), out).scores


def test_a_folder_is_written_that_scores_as_its_card_says(data: PlainText, tmp_path: Path) -> None:
    scores = learn(data, tmp_path / "run")
    found = read_model(tmp_path / "run")
    assert isinstance(found.model, NGram) and found.card.score == scores
    lines = [END, *(i for row in rows_of(data.test[0]) for i in [*found.source_tokenizer.encode(row), END])]
    logp = found.model.score(torch.tensor([lines]))
    assert scores["test perplexity"] == pytest.approx(float((-logp.sum() / (len(lines) - 1)).exp()), abs=1e-4)
    events = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["data", "data", "data", "counted", "start", "end"]
    assert events[3]["3-grams"] == found.model.config.sizes[1]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"]["order"] == 3


def test_a_word_is_foretold_better_from_the_one_before(data: PlainText, tmp_path: Path) -> None:
    alone, behind_one = (learn(data, tmp_path / str(n), NGramConfig(n))["validation perplexity"] for n in (1, 2))
    assert float(str(behind_one)) < float(str(alone)) / 2


def test_a_chain_writes_sentences_of_what_it_has_seen(data: PlainText, tmp_path: Path) -> None:
    learn(data, tmp_path / "run", NGramConfig(3, MaximumLikelihood()))
    known = {word for row in rows_of(data.train[0]) for word in row.split()}
    starts = {row.split()[0] for row in rows_of(data.train[0])}
    generator = load(tmp_path / "run", "cpu")
    texts = [passage.text for passage in generator.generate_n([""], samples=20, max_new=60, seed=1)[0]]
    assert len(set(texts)) > 5
    for text in texts:
        assert text.split()[0] in starts and set(text.split()) <= known
    prompt = next(iter(sorted(starts)))
    assert generator.generate([prompt], max_new=3, temperature=0) == generator.generate(
        [prompt], max_new=3, temperature=0
    )


def test_what_a_score_cannot_be_is_said(data: PlainText, tmp_path: Path) -> None:
    unseen = learn(replace(data, text=replace(LINES, size=60)), tmp_path / "a", NGramConfig(3, MaximumLikelihood()))
    assert "infinite" in str(unseen["test perplexity"])
    assert "do not sum to one" in str(learn(data, tmp_path / "b", NGramConfig(2, StupidBackoff()))["note"])


def test_held_out_lines_are_never_counted(data: PlainText, tmp_path: Path) -> None:
    scores = learn(replace(data, valid=(), test=(), hold_out_test=0.1), tmp_path / "run")
    assert {"validation perplexity", "test perplexity"} <= scores.keys()


def test_what_cannot_be_counted_is_refused(data: PlainText, tmp_path: Path) -> None:
    mixture = replace(data, train=data.train * 2, weights=(0.5, 0.5))
    for run, said in (
        (Run("x", data, NGramConfig(), Counting(), init="somewhere"), "leave --init out"),
        (Run("x", mixture, NGramConfig(), Counting()), "data.weights"),
    ):
        with pytest.raises(InputError, match=said):
            train(run, tmp_path, Log(quiet=True))
    with pytest.raises(InputError, match="model.order must be at least 1"):
        Run("x", data, NGramConfig(0), Counting())
    with pytest.raises(InputError, match="lines is for plain text"):
        Run("x", ParallelText(text=LINES), RECIPES["translate"].make().model)


def test_a_counted_run_is_told_from_one_in_steps(data: PlainText) -> None:
    run = Run("x", data, NGramConfig(), Counting())
    assert run.objective.one_pass and not RECIPES["gpt"].make().objective.one_pass
    with pytest.raises(InputError, match="objective=next-token is not for .* 'ngram' .*: set objective=counting"):
        Run("x", data, NGramConfig(), NextToken())
    assert "one pass" in describe(run) and '"smoothing"' in describe(run)


@pytest.mark.parametrize("name", ["markov", "ptb-kn5", "names-markov"])
def test_recipes_are_there(name: str) -> None:
    run = RECIPES[name].make()
    assert isinstance(run.model, NGramConfig) and run.recipe == name
