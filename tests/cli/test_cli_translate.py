"""Translating and scoring from the shell: every line its answer, in order, in each of the forms."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from calling import DEVICE, Answer, Headway, World, process, write

import headway as package
from headway.evaluate.bleu import score


@pytest.fixture(scope="module")
def sources(world: World) -> list[str]:
    return (world.root / "test.en").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def expected(world: World, sources: list[str]) -> list[str]:
    """What Python says, one sentence at a time: no batch, no order to get wrong."""
    translator = package.load(world.run, device="cpu")
    found = [translator.translate([source])[0] for source in sources]
    assert len(set(found)) > 10, "a model that says the same of everything cannot show that the order is kept"
    return found


def done(answer: Answer) -> str:
    assert answer.code == 0 and answer.err == "", answer
    return answer.out


def test_standard_input_to_standard_output_keeps_order_and_empty_lines(
    world: World, sources: list[str], expected: list[str]
) -> None:
    """As UTF-8, whatever the locale; a byte order mark, CRLF and a last line without an end are no text."""
    rows = ["", sources[0], "", "   ", *sources[1:6], "", sources[6]]
    answers = ["", expected[0], "", "", *expected[1:6], "", expected[6]]
    raw = b"\xef\xbb\xbf" + "\r\n".join(rows).encode("utf-8")
    locale = os.environ | {"PYTHONIOENCODING": "ascii"}
    answer = process("translate", world.run, "--threads", 1, *DEVICE, input=raw, env=locale)
    assert answer.returncode == 0 and answer.stderr == b""
    assert answer.stdout.decode("utf-8") == "".join(row + "\n" for row in answers)


def test_standard_input_that_is_no_utf8_is_named_by_line(world: World) -> None:
    answer = process("translate", world.run, *DEVICE, input=b"the dog\nthe \xff\n")
    assert answer.returncode == 2 and answer.stdout == b""
    assert b"standard input, line 2" in answer.stderr and answer.stderr.count(b"\n") == 1


def test_a_line_of_standard_input_that_is_too_long_is_named(world: World) -> None:
    answer = process("translate", world.run, *DEVICE, input=b"the dog\n" + b"the dog " * 200)
    assert answer.returncode == 2 and answer.stdout == b""
    assert b"standard input, line 2 has" in answer.stderr and answer.stderr.count(b"\n") == 1


def test_a_file_packed_or_not_gives_what_python_gives(
    headway: Headway, world: World, tmp_path: Path, sources: list[str], expected: list[str]
) -> None:
    packed = tmp_path / "test.en.gz"
    packed.write_bytes(gzip.compress((world.root / "test.en").read_bytes()))
    for file in (world.root / "test.en", packed):
        assert done(headway("translate", world.run, file, *DEVICE)).splitlines() == expected
    assert package.load(world.model, device="cpu").translate(sources) == expected


def test_long_input_is_answered_in_pieces_in_its_order(
    headway: Headway, world: World, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.cli.translate.CHUNK", 3)
    for batch in (1, 4, 64):
        answer = headway("translate", world.run, world.root / "test.en", "--batch-size", batch, *DEVICE)
        assert done(answer).splitlines() == expected


def test_output_goes_to_a_file_instead(headway: Headway, world: World, tmp_path: Path, expected: list[str]) -> None:
    file = write(tmp_path, "test.fr", ["from before"])
    assert done(headway("translate", world.run, world.root / "test.en", "--output", file, *DEVICE)) == ""
    assert file.read_text(encoding="utf-8").splitlines() == expected
    assert list(tmp_path.iterdir()) == [file]


def test_best_gives_several_with_falling_scores(headway: Headway, world: World, expected: list[str]) -> None:
    out = done(headway("translate", world.run, world.root / "test.en", "--best", 3, *DEVICE))
    rows = [row.split("\t") for row in out.splitlines()]
    assert len(rows) == 3 * len(expected)
    for at, wanted in enumerate(expected):
        scores = [float(number) for number, _ in rows[3 * at : 3 * at + 3]]
        assert scores == sorted(scores, reverse=True)
        assert rows[3 * at][1] == wanted


def test_json_is_an_object_a_line(
    headway: Headway, world: World, tmp_path: Path, sources: list[str], expected: list[str]
) -> None:
    file = write(tmp_path, "a.en", ["", *sources[:4]])
    out = done(headway("translate", world.run, file, "--json", "--best", 2, *DEVICE))
    rows = [json.loads(row) for row in out.splitlines()]
    assert [row["source"] for row in rows] == ["", *sources[:4]]
    assert rows[0]["translations"] == []
    for row, wanted in zip(rows[1:], expected, strict=False):
        best, second = row["translations"]
        assert best["text"] == wanted and best["score"] >= second["score"]
        assert len(best["tokens"]) == len(best["token_scores"])
        assert best["tokens"][-1] == "</s>" and "attention" not in best


def test_json_with_attention_has_weights_that_sum_to_one(headway: Headway, world: World) -> None:
    out = done(headway("translate", world.run, world.root / "test.en", "--json", "--attention", *DEVICE))
    for row in map(json.loads, out.splitlines()):
        found = row["translations"][0]
        seen = found["attention"]
        assert len(seen["weights"]) == 1 and len(seen["weights"][0]) == 2  # layers, heads
        for head in seen["weights"][0]:
            assert len(head) == len(found["tokens"]) == len(seen["target_owner"])
            for weights in head:
                assert len(weights) == len(seen["source_owner"])
                assert sum(weights) == pytest.approx(1, abs=1e-2)
        assert " ".join(seen["source_words"]) == row["source"]


def test_attention_of_several_translations_follows_each(headway: Headway, world: World, tmp_path: Path) -> None:
    file = write(tmp_path, "one.en", [(world.root / "test.en").read_text(encoding="utf-8").splitlines()[0]])
    out = done(headway("translate", world.run, file, "--best", 2, "--attention", *DEVICE))
    for answer in out.removesuffix("\n\n").split("\n\n"):
        first, *rest = answer.splitlines()
        score, text = first.split("\t")
        assert float(score) <= 0
        assert [line.split(" ← ")[0].strip() for line in rest] == text.split()


def test_attention_without_json_shows_source_words(
    headway: Headway, world: World, tmp_path: Path, sources: list[str], expected: list[str]
) -> None:
    file = write(tmp_path, "a.en", sources[:1])
    first, *rest = done(headway("translate", world.run, file, "--attention", *DEVICE)).splitlines()
    assert first == expected[0]
    assert any(word in line for line in rest for word in sources[0].split())


def test_pictures_are_png_files_by_line_number(
    headway: Headway, world: World, tmp_path: Path, sources: list[str]
) -> None:
    file = write(tmp_path, "a.en", [sources[0], "", sources[1]])
    answer = headway("translate", world.run, file, "--picture", tmp_path / "seen", *DEVICE)
    assert done(answer).count("\n") == 3
    pictures = sorted((tmp_path / "seen").iterdir())
    assert [path.name for path in pictures] == ["0001.png", "0003.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for path in pictures)


def test_a_line_break_in_an_output_does_not_shift_the_lines(
    headway: Headway, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.text.tokenizer.Tokenizer.decode", lambda self, ids: "two\nlines\r")
    out = done(headway("translate", world.run, world.root / "test.en", *DEVICE))
    assert out == "two lines \n" * 20


def test_evaluate_prints_bleu_with_signature_and_interval(
    headway: Headway, world: World, tmp_path: Path, expected: list[str]
) -> None:
    references = (world.root / "test.fr").read_text(encoding="utf-8").splitlines()
    wanted = score(expected, references, bootstrap=100)
    assert wanted.bleu_interval is not None
    low, high = wanted.bleu_interval
    call = ["evaluate", world.run, *world.files("test"), "--bootstrap", 100, *DEVICE]
    bleu, chrf, exact = done(headway(*call, "--output", tmp_path / "kept.fr")).splitlines()
    assert f"{wanted.bleu:.2f}  (95 %: {low:.2f} to {high:.2f})" in bleu and wanted.bleu_signature in bleu
    assert f"{wanted.chrf:.2f}" in chrf and wanted.chrf_signature in chrf
    assert "20 sentences" in exact
    assert (tmp_path / "kept.fr").read_text(encoding="utf-8").splitlines() == expected
    assert json.loads(done(headway(*call, "--json"))) == wanted.to_dict()


def test_an_evaluation_has_its_interval_without_being_asked(headway: Headway, world: World) -> None:
    answer = headway("evaluate", world.run, *world.files("test"), *DEVICE)
    assert answer.code == 0 and "(95 %: " in answer.out
    assert "(95 %: " not in headway("evaluate", world.run, *world.files("test"), "--bootstrap", 0, *DEVICE).out


def test_evaluate_scores_given_translations_without_a_model(
    headway: Headway, world: World, tmp_path: Path, expected: list[str]
) -> None:
    file, references = write(tmp_path, "hypotheses.fr", expected), world.root / "test.fr"
    texts = references.read_text(encoding="utf-8").splitlines()
    call = ["evaluate", "--hypotheses", file, "--references", references, "--json", "--bootstrap", 0]
    assert json.loads(done(headway(*call))) == score(expected, texts).to_dict()
    out = done(headway(*call, "--tokenize", "char", "--lowercase"))
    assert json.loads(out) == score(expected, texts, tokenize="char", lowercase=True).to_dict()
    same = done(headway("evaluate", "--hypotheses", references, "--references", references, "--bootstrap", 0))
    assert same.startswith("BLEU  100.00   ") and "exact match 100.0 %" in same
