"""A reader that is trained on questions, resumed to the bit, asked and evaluated; its spans against brute force, its
loss against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encoder_folders import their_inputs, write_encoder
from headway.batch import IGNORED, TextInputs
from headway.data.answer_windows import AnswerBatch
from headway.errors import InputError
from headway.generate.reader import best_answer, best_spans
from headway.models.bert import BertConfig
from headway.models.heads import Headed
from headway.models.token_heads import Spans
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.tasks.questions import QuestionAnswering
from headway.train.job import train as train_run
from headway.train.log import Log
from small_runs import answered, call, carried_out, check_resumed
from small_world import surroundings

pytestmark = pytest.mark.usefixtures("own_cache")
SMALL = (
    "engine.device=cpu", "engine.steps=200", "engine.batch=1024", "engine.snapshot=1000", "engine.log=20",
    "engine.checkpoint=1000", "model.layers=1", "model.width=32", "model.inner=48", "model.heads=2",
    "model.max_length=48", "model.dropout=0.0", "model.attention_dropout=0.0", "data.text.kind=word",
    "data.text.min_count=1", "schedule.peak=0.005", "schedule.warmup=30", "validation.every=100",
    "validation.score_every=100",
)  # fmt: skip
KINDS = {"animal": ("cat", "grey dog", "owl"), "colour": ("red", "dark blue", "green"), "room": ("hall", "old barn")}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Which animal, colour or room it is; some answers have two words."""
    folder, random = tmp_path_factory.mktemp("questions"), np.random.default_rng(1)
    paths = {}
    for part, count in (("train", 200), ("valid", 30), ("test", 30)):
        rows = []
        for _ in range(count):
            told = {kind: str(random.choice(words)) for kind, words in KINDS.items()}
            context = f"the {told['animal']} is {told['colour']} and sits in the {told['room']} now ."
            kind = str(random.choice(list(KINDS)))
            answer = {"text": told[kind], "start": context.index(told[kind])}
            rows.append({"context": context, "question": f"which {kind}", "answers": [answer]})
        paths[part] = folder / f"{part}.jsonl"
        paths[part].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


def train(files: dict[str, Path], out: Path, *settings: str, resume: bool = False) -> dict[str, Any]:
    parts = [f"data.{part}={path}" for part, path in files.items()]
    return carried_out("answer", out, *parts, *SMALL, *settings, resume=resume).scores


def brute(first: Any, last: Any, begin: int, end: int, longest: int) -> tuple[float, int, int, float]:
    """The best of all spans, one after the other, and "no answer"."""
    open_ = [0, *range(begin, end)]
    p, q = (dict(zip(open_, logits[open_].log_softmax(0).tolist(), strict=True)) for logits in (first, last))
    spans = [(p[i] + q[j], i, j) for i in range(begin, end) for j in range(i, min(i + longest, end))]
    return *max(spans), p[0] + q[0]


@pytest.mark.parametrize("longest", [1, 3, 50])
def test_the_best_spans_are_those_of_brute_force(longest: int) -> None:
    torch.manual_seed(0)
    first_BT, last_BT = torch.randn(2, 6, 12).unbind(0)
    begin_B, end_B = torch.tensor([3, 4, 2, 5, 3, 1]), torch.tensor([11, 5, 12, 8, 9, 12])
    found = best_spans(first_BT, last_BT, begin_B, end_B, longest).rows()
    for row, (first, last, answer, none) in enumerate(found):
        wanted = brute(first_BT[row], last_BT[row], int(begin_B[row]), int(end_B[row]), longest)
        assert (first, last) == wanted[1:3]
        assert [answer, none] == pytest.approx([wanted[0], wanted[3]], abs=1e-5)


def test_the_answer_of_a_long_text_is_the_best_of_all_its_windows_unless_none_is_likelier(tmp_path: Path) -> None:
    """Window for window by transformers' tokens and logits."""
    theirs = write_encoder(tmp_path, "ForQuestionAnswering", num_labels=2)
    reader = load(tmp_path, "cpu")
    words = ("the cat sat on a mat , the big red dog ran under the old tree . " * 2).split()
    question, ends = "how old are you ?", []
    room, step = 24 - 3 - 5, 8
    for start in range(0, len(words) - room + step, step):
        part = " ".join(words[start : start + room])
        inputs = their_inputs(tmp_path, [(question, part)])
        with torch.no_grad():
            found = theirs(**inputs)
        stop = inputs["input_ids"].shape[1] - 1
        score, i, j, none = brute(found.start_logits[0], found.end_logits[0], 7, stop, 30)
        ends.append((score, start + i - 7, start + j - 7, none))
    score, first, last, _ = max(ends)
    span = reader.find((question, " ".join(words)))
    assert len(ends) > 2 and span.text == " ".join(words[first : last + 1])
    assert span.probability == pytest.approx(np.exp(score), rel=1e-4)
    assert span.text == " ".join(words)[span.start : span.end]
    odds = min(none for *_, none in ends) - score
    assert reader.find((question, " ".join(words)), no_answer=odds + 1e-3) == span
    none = reader.find((question, " ".join(words)), no_answer=odds - 1e-3)
    assert (none.text, none.start, none.end) == ("", 0, 0)
    assert none.probability == pytest.approx(np.exp(min(none for *_, none in ends)), rel=1e-4)


def test_the_loss_is_that_of_transformers_and_padding_has_no_part_in_it(tmp_path: Path) -> None:
    theirs = write_encoder(tmp_path, "ForQuestionAnswering", num_labels=2)
    ours = load(tmp_path, "cpu").model
    texts = [("how old are you", "the cat sat on the mat"), ("what is your age", "a dog ran on the tree")]
    inputs = their_inputs(tmp_path, texts)
    first, last = torch.tensor([6, 0]), torch.tensor([8, 0])
    with torch.no_grad():
        wanted = theirs(**inputs, start_positions=first, end_positions=last).loss
        given = TextInputs(inputs["input_ids"], None, inputs["token_type_ids"])
        loss, weight = ours.head.losses(ours.encode(given), AnswerBatch(given, first, last))["loss"]
        assert weight == 1 and float(loss) / 2 == pytest.approx(float(wanted), abs=1e-5)
        wide = torch.nn.functional.pad(given.ids_BT, (0, 3))
        padded = TextInputs(
            wide, torch.full((2,), given.ids_BT.shape[1]), torch.nn.functional.pad(given.types_BT, (0, 3))
        )
        batch = AnswerBatch(padded, first, last, first, last).pad(3)
        again, _ = ours.head.losses(ours.encode(batch.inputs), batch)["loss"]
    assert float(again) == pytest.approx(float(loss), abs=1e-4) and float(batch.counts["loss"]) == 2
    assert int(batch.first_B[2]) == IGNORED


def test_a_reader_learns_answers_and_is_evaluated(files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    scores = train(files, out)
    assert scores["test f1"] > 0.9 and scores["test exact"] > 0.85 and scores["validation f1"] > 0.9
    report = QuestionAnswering.evaluate(load(out, "cpu"), [str(files["test"])], {})
    assert report.values["f1"] == pytest.approx(scores["test f1"], abs=1e-4)
    shown = json.loads(answered("evaluate", out, files["test"], "--json", "--device", "cpu"))
    assert shown == report.values and shown["questions"] == 30

    context = "the owl is green and\nsits in the old\nbarn now ."
    (tmp_path / "page.txt").write_text(context)
    asked = ("predict", out, "--context", tmp_path / "page.txt", "--device", "cpu")
    answer, share, place = answered(*asked, "which room").removesuffix("\n").split("\t")
    start, end = map(int, place.split("-"))
    assert answer == "old barn" and context[start:end] == "old\nbarn" and 0 < float(share) <= 1
    (tmp_path / "asked.txt").write_text("which colour\n\nwhich room\n")
    found = answered(*asked, tmp_path / "asked.txt").splitlines()
    assert [line.split("\t")[0] for line in found] == ["green", "", "old barn"]
    assert answered("predict", out, files["test"], "--device", "cpu").count("\n") == 30
    assert answered(*asked, "which room", "--no-answer", "-100").startswith("(no answer)\t")
    assert answered(*asked, "which room", "--max-answer-tokens", "1").split("\t")[0] in ("old", "barn")
    facts = json.loads(answered(*asked, "which room", "--json"))
    assert facts["answer"] == "old\nbarn" and facts["start"] == start and facts["question"] == "which room"


@pytest.mark.parametrize("length", [12, 16])
def test_the_figures_of_training_are_those_of_evaluate_where_texts_are_read_in_windows(
    files: dict[str, Path], tmp_path: Path, length: int
) -> None:
    scores = train(files, tmp_path / "run", f"model.max_length={length}", "engine.steps=10", "data.stride=3")
    report = QuestionAnswering.evaluate(load(tmp_path / "run", "cpu"), [str(files["test"])], {})
    assert report.values["f1"] == pytest.approx(scores["test f1"], abs=1e-4)


def test_a_model_may_learn_that_there_is_no_answer(files: dict[str, Path], tmp_path: Path) -> None:
    """Questions about what no text tells."""
    both = {}
    for part, path in files.items():
        rows = [json.loads(row) for row in path.read_text().splitlines()]
        for row in rows[::2]:
            row |= {"question": "which day", "answers": []}
        both[part] = tmp_path / path.name
        both[part].write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"train\.jsonl, line 1 has no answer: set data\.no_answer=true"):
        train(both, tmp_path / "run")
    scores = train(both, tmp_path / "run", "data.no_answer=true")
    assert scores["test unanswerable"] > 0.9 and scores["test f1 answerable"] > 0.7
    reader = load(tmp_path / "run", "cpu")
    assert reader.find(("which day", "the cat is red and sits in the hall now .")).text == ""


def test_a_run_that_fails_and_is_resumed_ends_with_the_same_weights(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("engine.steps=8", "engine.checkpoint=3", "model.dropout=0.2", "validation.every=4")
    train(files, tmp_path / "whole", *settings)
    check_resumed(
        monkeypatch, tmp_path / "whole", tmp_path / "parts", 6,
        lambda out, resume=False: train(files, out, *settings, resume=resume),
    )  # fmt: skip


def test_articles_are_held_out_for_validation_and_test(tmp_path: Path) -> None:
    rows = [
        {"title": f"t{n % 10}", "context": f"cat {n} sat", "question": "who", "answers": [{"text": "cat", "start": 0}]}
        for n in range(60)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"train": tmp_path / "a.jsonl"}
    scores = train(data, tmp_path / "run", "data.hold_out=0.2", "data.hold_out_test=0.3", "engine.steps=2")
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    parts = {event["part"]: event["questions"] for event in log if "questions" in event}
    assert parts == {"train": 30, "valid": 12, "test": 18} and "test f1" in scores


def test_any_encoder_of_tokens_takes_the_head_and_others_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    from headway.models import build

    model = Headed(build("bert", BertConfig(1, 16, 32, 2, max_length=32), (30,)), Spans())
    assert model(TextInputs(torch.ones(2, 5, dtype=torch.long))).shape == (2, 5, 2)
    lstm = [f"data.train={files['train']}", "model=text-rnn", "model.width=16", "engine.steps=2", "engine.device=cpu"]
    run = change(RECIPES["answer"].make(), [*lstm, "engine.log=1"])
    (tmp_path / "lstm").mkdir()
    log = Log(tmp_path / "lstm", quiet=True)
    assert 0 <= train_run(run, tmp_path / "lstm", log).scores["validation f1"] <= 1
    log.close()
    with pytest.raises(InputError, match="head=spans reads every token, a model of the family 'text-cnn' gives one"):
        train(files, tmp_path / "cnn", "model=text-cnn")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("predict", "RUN", "--context", "nosuch.txt", "who"), "no file nosuch.txt"),
        (("predict", "RUN", "--context", "EMPTY", "who"), "is empty"),
        (
            ("predict", "RUN", "--text", "who"),
            "line 1 is not a question and a text, with a tab between them; or give the text with --context",
        ),
        (("predict", "RUN", "--context", "PAGE", "a\tb"), "with --context a line is a question alone"),
        (("predict", "RUN", "--text", "a\tb", "--beam-size", "2"), "--beam-size has no meaning for a model that finds"),
        (("predict", "RUN", "--context", "PAGE", "who " * 40), "or have long questions cut (--truncate)"),
        (("evaluate", "RUN", "PAGE"), "cannot read"),
        (("evaluate", "RUN", "BAD"), "line 1: the answer 'dog' is not in its context at character 0"),
        (("fill", "RUN", "--text", "a [MASK]"), "this model fills no gaps: it finds answers in a text"),
        (("train", "answer", "--data", "BAD"), "line 1: the answer 'dog' is not in its context at character 0"),
        (("train", "answer", "--data", "PAGE"), "cannot read"),
        (("train", "answer", "--data", "GOOD", "--set", "data.stride=0"), "data.stride must be at least 1, not 0"),
        (("train", "answer", "--data", "GOOD", "--set", "head=classes"), "needs a head: set head=spans"),
        (("train", "answer", "--data", "GOOD", "--set", "objective=labels"), "set objective=answer-ends"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    trained: Path, files: dict[str, Path], words: tuple[str, ...], message: str
) -> None:
    place = {name: str(trained / name) for name in ("EMPTY", "PAGE", "BAD")}
    places = {"RUN": str(trained / "run"), "GOOD": str(files["train"])} | place
    places["BAD"] += ".jsonl"
    device = () if words[0] == "train" else ("--device", "cpu")
    out = ("--out", str(trained / "other")) if words[0] == "train" else ()
    code, shown, said = call(*(places.get(word, word) for word in words), *device, *out)
    assert code == 2 and message in said and said.count("\n") == 1 and not shown
    assert not (trained / "other").exists()


@pytest.fixture(scope="module")
def trained(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with surroundings(folder / "cache"):
        train(files, folder / "run", "engine.steps=2")
    (folder / "EMPTY").write_text("")
    (folder / "PAGE").write_text("Ann is in the hall .")
    row = {"context": "a cat", "question": "?", "answers": [{"text": "dog", "start": 0}]}
    (folder / "BAD.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def test_no_window_is_better_than_the_best_window() -> None:
    rows = [(None, (1, 2, -3.0, -0.1)), (None, (4, 4, -0.5, -2.0))]

    class Whole:
        def characters(self, text: str, first: int, last: int) -> tuple[int, int]:
            return first, last + 1

    found = best_answer("abcdef", [(Whole(), row) for _, row in rows], None)  # type: ignore[list-item]
    assert (found.text, found.start) == ("e", 4) and found.probability == pytest.approx(np.exp(-0.5))
