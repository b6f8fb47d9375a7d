"""A log is read as it is: written to meanwhile, cut off, gone back in, with numbers that are none."""

from __future__ import annotations

import json
import math
from pathlib import Path

from headway.train.history import read_history


def write_log(folder: Path, *rows: object, end: str = "") -> Path:
    path = folder / "log.jsonl"
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.write_text(text + end, encoding="utf-8")
    return path


def train(step: int, **values: object) -> dict[str, object]:
    return {"event": "train", "step": step} | values


def judged(step: int, **values: object) -> dict[str, object]:
    return {"event": "validation", "step": step} | values


def test_curves_are_told_apart_by_event_and_name_and_other_events_are_left(tmp_path: Path) -> None:
    start = {"event": "start", "step": None, "parameters": 12, "device": "cpu"}
    history = read_history(
        write_log(tmp_path, start, train(50, loss=3.0, rate=1), judged(50, loss=3.5, bleu=1.5), train(100, loss=2.0))
    )
    assert history.curve("train", "loss") == [(50, 3.0), (100, 2.0)]
    assert history.curve("validation", "loss") == [(50, 3.5)]
    assert history.names == ["loss", "rate", "bleu"]
    assert (history.last_step, history.last("train", "loss"), history.best("bleu")) == (100, 2.0, (50, 1.5))


def test_a_last_line_that_is_cut_off_is_not_there_yet_but_another_is_named(tmp_path: Path) -> None:
    for end in ('{"event": "train", "step": 1', '{"event": "train", "step": 150, "loss": 1.2', "\xff", "{"):
        history = read_history(write_log(tmp_path, train(50, loss=3.0), end=end))
        assert history.curve("train", "loss") == [(50, 3.0)] and history.unreadable == []
    history = read_history(write_log(tmp_path, train(50, loss=3.0), '{"event"', "[1]", "", train(100, loss=2.0)))
    assert history.last_step == 100 and history.unreadable == [2, 3]


def test_a_last_line_that_only_lacks_its_line_break_counts(tmp_path: Path) -> None:
    assert read_history(write_log(tmp_path, end=json.dumps(train(50, loss=3.0)))).last_step == 50


def test_numbers_that_are_none_are_kept_but_are_never_the_best(tmp_path: Path) -> None:
    history = read_history(
        write_log(
            tmp_path, judged(1, bleu=math.nan), judged(2, bleu=7.0), judged(3, bleu=math.inf), judged(4, bleu=7.0)
        )
    )
    assert len(history.curve("validation", "bleu")) == 4 and history.best("bleu") == (2, 7.0)
    odd = [train(1, loss="high", rate=None, flag=True), train(2), {"event": "train", "step": "3", "loss": 1}]
    assert read_history(write_log(tmp_path, *odd)).names == []
    assert read_history(write_log(tmp_path, judged(1, bleu=math.nan))).best("bleu") is None


def test_steps_that_a_resumed_run_does_again_count_once(tmp_path: Path) -> None:
    rows = [train(step, loss=9.0) for step in (50, 100, 150)] + [train(step, loss=1.0) for step in (100, 150, 200)]
    assert read_history(write_log(tmp_path, *rows)).curve("train", "loss") == [
        (50, 9.0), (100, 1.0), (150, 1.0), (200, 1.0),
    ]  # fmt: skip


def test_an_empty_log_has_no_step(tmp_path: Path) -> None:
    history = read_history(write_log(tmp_path))
    assert (history.last_step, history.names, history.best("bleu")) == (None, [], None)
