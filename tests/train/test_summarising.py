"""Summaries: read from lines, cut where they are too long, judged by all that people wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway import load
from headway.data.summaries import read_summaries
from headway.errors import InputError
from headway.evaluate.rouge import Rouge
from headway.tasks.summarising import shortened
from headway.text.tokenizer import TextOptions, Tokenizer
from small_runs import answered, call, carried_out, check_resumed

SETTINGS = (
    "engine.device=cpu", "engine.batch=512", "engine.snapshot=4", "engine.log=5", "engine.average=2",
    "engine.checkpoint=3", "engine.steps=8", "validation.every=4", "validation.score_every=4", "schedule.warmup=2",
    "model.encoder_layers=1", "model.decoder_layers=1", "model.width=16", "model.inner=32", "model.heads=2",
    "model.max_length=48", "data.text.size=300", "data.text.min_count=1", "validation.sentences=5",
)  # fmt: skip


def write(folder: Path, count: int = 60) -> Path:
    rows = [
        {
            "text": [f"The cat number {n} sat on a mat.", "It was a fine day. " * (1 if n % 3 else 20)],
            "summary": [f"cat {n}", f"the cat {n} sat"][: 1 + n % 2],
        }
        for n in range(count)
    ]
    path = folder / "mail.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("summaries")
    carried_out("summarise", folder / "run", *SETTINGS, f"data.train={write(folder)}")
    return folder


def test_a_model_is_judged_with_all_references_and_answers_long_texts(trained: Path) -> None:
    card = json.loads((trained / "run" / "model" / "headway.json").read_text())
    assert card["task"] == "summarising" and {"test ROUGE-1", "test ROUGE-2", "test ROUGE-L"} <= set(card["score"])
    line = answered("predict", trained / "run", "--text", "The cat number 7 sat. " * 40, "--device", "cpu")
    assert line.count("\n") == 1
    kept = json.loads(answered("evaluate", trained / "run", trained / "mail.jsonl", "--device", "cpu", "--json"))
    values = read_summaries([trained / "mail.jsonl"], "text", "summary")
    model = load(trained / "run", "cpu")
    short = shortened(model.tokenizers[0], [one.text for one in values], model.source_limit)
    found = Rouge.of(model.translate(short), [one.summaries for one in values])
    assert kept["ROUGE-L"] == pytest.approx(found.longest) and kept["texts"] == 60


def test_it_resumes_to_the_bit(monkeypatch: pytest.MonkeyPatch, trained: Path, tmp_path: Path) -> None:
    def run(out: Path, resume: bool = False) -> None:
        carried_out("summarise", out, *SETTINGS, f"data.train={trained / 'mail.jsonl'}", resume=resume)

    check_resumed(monkeypatch, trained / "run", tmp_path / "again", 6, run)


def test_texts_are_cut_to_what_fits() -> None:
    tokenizer = Tokenizer.train(["a b c é 漢字 d"] * 5, TextOptions(size=300, min_count=1))
    texts = ["a b c", "漢字" * 20, "a b c d " * 30]
    short = shortened(tokenizer, texts, 10)
    assert short[0] == texts[0] and all(len(tokenizer.encode(text)) <= 10 for text in short)
    assert texts[1].startswith(short[1]) and texts[2].startswith(short[2]) and short[1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "x"}, "no key 'summary'"),
        ({"text": "", "summary": "x"}, "'text' is empty"),
        ({"text": "x", "summary": []}, "'summary' is empty"),
        ({"text": ["x", 3], "summary": "y"}, "'text' is int, expected a string"),
        ({"body": "x", "summary": "y"}, "no key 'text'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, row: dict[str, object], said: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"text": "a", "summary": "b"}) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(InputError, match=f"line 2: {said}"):
        read_summaries([path], "text", "summary")


def test_another_kind_of_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello\n")
    code, _, err = call("train", "summarise", "--data", tmp_path / "x.txt", "--out", tmp_path / "run")
    assert code == 2 and "give a .jsonl with 'text' and 'summary'" in err and "Traceback" not in err
