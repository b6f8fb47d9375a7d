"""headway explore: one file, the live page, traces; what is wrong is one line, and Ctrl-C ends it cleanly."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import Headway

import headway as package
from foreign_world import write_language_model
from headway.serve.running import bound

FOLDER = Path(__file__).parents[1] / "folders" / "format-1"
TEXT = "He drives the car"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = package.load(FOLDER, "cpu").trace(TEXT, tensors=["weights", "next"])
    return found.save(tmp_path_factory.mktemp("trace") / "car.safetensors")


def test_a_file_is_written_whole_and_holds_the_text(headway: Headway, tmp_path: Path) -> None:
    answer = headway("explore", FOLDER, "--text", TEXT, "--html", tmp_path / "car.html", "--device", "cpu")
    assert answer.code == 0 and answer.out == "" and "opens in any browser" in answer.err
    html = (tmp_path / "car.html").read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>") and 'octet-stream" data-packed' in html
    assert [path.name for path in tmp_path.iterdir()] == ["car.html"]


def test_a_text_without_quotes_and_a_target_are_understood(headway: Headway, tmp_path: Path) -> None:
    path = tmp_path / "car.html"
    words = ["--text", *TEXT.split(), "--target", "Il conduit"]
    assert headway("explore", FOLDER, *words, "--layers", "0", "--heads", "0,1", "--html", path).code == 0
    assert path.stat().st_size > 100_000


def test_a_saved_trace_is_shown_too_and_two_side_by_side(headway: Headway, trace: Path, tmp_path: Path) -> None:
    assert headway("explore", trace, "--html", tmp_path / "a.html").code == 0
    assert headway("explore", trace, "--second", trace, "--heads", "1", "--html", tmp_path / "b.html").code == 0
    assert (tmp_path / "b.html").read_text(encoding="utf-8").count('octet-stream" data-packed') == 2


def test_an_empty_target_is_none(headway: Headway, tmp_path: Path) -> None:
    path = tmp_path / "car.html"
    assert headway("explore", FOLDER, "--text", TEXT, "--target", "", "--beam-size", "2", "--html", path).code == 0


def test_what_is_wrong_is_one_line(refuses: Callable[..., str], trace: Path, tmp_path: Path) -> None:
    out, small_gpt = tmp_path / "a.html", tmp_path / "gpt2"
    write_language_model(small_gpt, "gpt2")
    (tmp_path / "words.txt").write_text("root and others, who are no trace at all")
    foreign, broken = tmp_path / "foreign.safetensors", tmp_path / "broken.safetensors"
    foreign.write_bytes((FOLDER / "model.safetensors").read_bytes())
    broken.write_bytes(trace.read_bytes()[:-1000])
    cases = [
        ((foreign,), "is no trace: a safetensors file without headway's header"),
        ((broken,), "is broken"),
        ((tmp_path / "none.safetensors",), "there is no file"),
        ((tmp_path / "none", "--text", "a"), "there is no folder"),
        ((FOLDER,), "a file has its text inside: give it with --text"),
        ((FOLDER, "--text", " "), "nothing to trace"),
        ((FOLDER, "--text", "car " * 3000), "takes at most"),
        ((FOLDER, "--text", TEXT, "--layers", "9"), "there is no layer 9"),
        ((FOLDER, "--text", TEXT, "--heads", "x"), "--heads takes numbers, as in --heads 0,3, not x"),
        ((FOLDER, "--text", TEXT, "--second", trace), "give two of a kind"),
        ((trace, "--heads", "7"), "this trace has no head 7"),
        ((trace, "--text", TEXT), "a trace has its text inside, and needs no model: leave --text out"),
        ((trace, "--target", "Il"), "leave --target out"),
        ((trace, "--beam-size", "2"), "leave --beam-size out"),
        ((FOLDER, "--text", ""), "the text of --text is empty"),
        ((FOLDER, "--text", TEXT, "--target", "Il", "--beam-size", "2"), "with --target nothing is searched for"),
        ((small_gpt, "--text", "a", "--beam-size", "2"), "--beam-size is the width of a translator's search"),
        ((small_gpt, "--text", "a", "--target", "b"), "--target is for a translator or an encoder"),
        ((tmp_path / "words.txt",), "is no trace: those are safetensors files"),
    ]
    for given, told in cases:
        assert told in refuses("explore", *given, "--html", out), given
    assert "there is no folder" in refuses("explore", FOLDER, "--text", TEXT, "--html", tmp_path / "no" / "a.html")
    assert not out.exists()


def test_a_live_page_is_not_begun_with_what_the_model_does_not_have(refuses: Callable[..., str]) -> None:
    assert "there is no layer 9" in refuses("explore", FOLDER, "--layers", "9", "--port", "0")
    assert "there is no head 9" in refuses("explore", FOLDER, "--text", TEXT, "--heads", "9", "--port", "0")


def test_a_port_in_use_is_one_line(refuses: Callable[..., str]) -> None:
    with bound(0) as taken:
        port = taken.getsockname()[1]
        line = refuses("explore", FOLDER, "--port", port)
    assert line == f"port {port} is in use: choose another, or --port 0 for any that is free"


def test_the_live_page_answers_and_ctrl_c_ends_it_cleanly() -> None:
    command = [sys.executable, "-m", "headway", "explore", str(FOLDER), "--text", TEXT, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("headway: the page is at http://127.0.0.1:") and "Ctrl-C ends it" in said
        address = said.split(" at ")[1].split()[0]
        with urllib.request.urlopen(address, timeout=300) as answer:
            page = answer.read().decode()
        assert TEXT in page and '"live": true' in page
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
