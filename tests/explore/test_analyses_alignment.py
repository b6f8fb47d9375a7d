"""Word alignment and antecedents by attention, from heads that are right or wrong by construction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hand_written import column, of_one_text, of_two_texts, traced

from headway.errors import InputError
from headway.explore.analyses.alignment import AlignmentOptions, alignment, draw
from headway.explore.analyses.antecedents import AntecedentOptions, antecedents
from headway.explore.analyses.antecedents import draw as draw_antecedents

PAIRS = [("a b c", "w u v", "0-1 1-2 2-0"), ("d e", "x y z", "0-0 0-1 1p2"), ("f g", "p q", "0-0 1-1"),
         ("h i j", "r s t", "0-2 1-1 2-0")]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    paths = {}
    for at, name in enumerate(("source", "target", "gold")):
        (tmp_path / name).write_text("".join(f"{pair[at]}\n" for pair in PAIRS), encoding="utf-8")
        paths[name] = str(tmp_path / name)
    return paths


def links(source: str) -> list[tuple[int, int]]:
    row = next(pair[2] for pair in PAIRS if pair[0] == source)
    return [tuple(map(int, link.replace("p", "-").split("-"))) for link in row.split()]


def translator(source: str, target: str):
    """Head 0 looks at the right word while it writes each; head 1 does so one step later, when it has read it; head 2
    always looks at the end of the source."""
    rows, columns = len(target.split()) + 1, len(source.split()) + 1
    weights = np.zeros((1, 3, rows, columns))
    for s, t in links(source):
        weights[0, 0, t, s] = weights[0, 1, t + 1, s] = 1
    weights[0, 2, :, -1] = 1
    return of_two_texts(source, target, weights)


def backward(source: str, target: str):
    """The other direction, right too, but for the first pair, of which it sees nothing."""
    forward = next(pair[0] for pair in PAIRS if pair[1] == source)
    weights = np.zeros((1, 1, len(target.split()) + 1, len(source.split()) + 1))
    for s, t in links(forward):
        weights[0, 0, s, t] = 1
    return of_two_texts(source, target, weights)


def aligned(files: dict[str, str], **options):
    how = AlignmentOptions(**{"gold": files["gold"]} | options)
    return alignment(traced(translator), [files["source"], files["target"]], how)


def test_each_head_has_the_error_that_it_was_built_to_have_in_each_reading(files: dict[str, str]):
    table = aligned(files)
    aer = {
        (reading, head): column(table, "AER", what="head", head=head, reading=reading)
        for reading in ("written", "shifted") for head in (0, 1, 2)
    }  # fmt: skip
    assert aer["written", 0] == [0.0] and aer["shifted", 1] == [0.0]
    assert aer["written", 2] == aer["shifted", 2] == [1.0], "who looks at no word links none"
    # One word late, or early.
    assert aer["written", 1][0] > 0.5 and aer["shifted", 0][0] > 0.5
    assert column(table, "head", what="best head") == [0] and column(table, "AER", what="best head") == [0.0]
    assert (
        column(table, "pairs", what="best layer, 1 to 9 words") == [2] and len(column(table, "what")) == 8 + 3 + 2 + 2
    )
    assert column(table, "pairs", what="best head") == [2] and column(table, "pairs", what="head")[0] == 4
    [random] = column(table, "AER", what="random links")
    assert random > 0.2 and column(table, "AER", what="a head at random")[0] > 0.4


def test_the_error_rate_of_the_diagonal_is_that_of_a_hand_count(files: dict[str, str]):
    """Reported on pairs 2 and 4. The diagonal of the second is 0-0 1-1 1-2, where 0-0 and 0-1 are sure and 1-2 is
    possible; of the fourth 0-0 1-1 2-2, where only 1-1 is right."""
    [found] = column(aligned(files), "AER", what="diagonal")
    predicted, sure = 3 + 3, 2 + 3
    hit_sure, hit_possible = 1 + 1, 2 + 1
    assert found == pytest.approx(1 - (hit_sure + hit_possible) / (predicted + sure))


def test_the_reverse_model_is_read_from_target_to_source(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
):  # fmt: skip
    from headway.tasks import loading

    monkeypatch.setattr(loading, "load", lambda folder: traced(backward).loaded)
    table = aligned(files, reverse="some folder")
    # Each source word looks at one target word: of 0-0 0-1 it finds the first.
    assert column(table, "recall", what="best head, reverse") == pytest.approx([4 / 5])
    assert column(table, "AER", what="best head, union") == [0.0]
    assert column(table, "precision", what="best head, intersection") == [1.0]
    assert column(table, "recall", what="best head, intersection") == pytest.approx([4 / 5])
    assert column(table, "AER", what="best head, grow-diag") == [0.0], "0-1 is a neighbour of 0-0, and free"


def test_another_aligner_is_judged_by_the_same_code(files: dict[str, str], tmp_path: Path):
    (tmp_path / "other.out").write_text("1-2 2-3 3-1\n1-1 1-2\n1-2\n1-3 2-2 3-1\n", encoding="utf-8")
    table = aligned(files, beside=str(tmp_path / "other.out"), beside_first=1)
    assert column(table, "AER", what="other.out", pairs=2) == [0.0]
    # All four pairs: 9 links, 8 of them right, of 10 sure ones.
    assert column(table, "AER", what="other.out", pairs=4) == pytest.approx([1 - 16 / (9 + 10)])


def test_the_picture_of_the_heads_is_drawn(files: dict[str, str], tmp_path: Path):
    assert draw(aligned(files), tmp_path / "heads.png").is_file()


def test_gold_of_another_length_and_links_of_other_words_are_told_by_their_line(files: dict[str, str], tmp_path: Path):
    with pytest.raises(InputError, match=r"gold links are missing: --set gold=FILE"):
        aligned(files, gold="")
    (tmp_path / "short").write_text("0-0\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"short has 1 lines of links where there are 4 texts"):
        aligned(files, gold=str(tmp_path / "short"))
    (tmp_path / "other").write_text("0-0\n0-0\n0-0 1-2\n0-0\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"other, line 3: link 1-2 is outside of a text of 2 words and one of 2"):
        aligned(files, gold=str(tmp_path / "other"))
    Path(files["target"]).write_text("w u v\n\np q\nr s t\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"source, line 2: one side is empty"):
        aligned(files)


def test_a_model_without_cross_attention_cannot_align(files: dict[str, str]):
    def alone(*texts: str):
        size = len(" ".join(texts).split())
        return of_one_text(" ".join(texts), {"encoder.0.attention.weights": np.eye(size)[None]})

    how = AlignmentOptions(gold=files["gold"])
    with pytest.raises(InputError, match="a translation needs a translator"):
        alignment(traced(alone), [files["source"], files["target"]], how)


def test_pairs_whose_tokens_do_not_spell_their_words_are_left_out_and_counted(files: dict[str, str]):
    def unsure(source: str, target: str):
        trace = translator(source, target)
        if source == "a b c":
            trace.tracks["source"] = of_one_text("a bc", {}).tracks["tokens"]
            trace = type(trace)(trace.tracks, {}, {}, trace.about)
        return trace

    table = alignment(traced(unsure), [files["source"], files["target"]], AlignmentOptions(gold=files["gold"]))
    assert table.notes[-1] == "left out: 1 of 4 texts, whose tokens do not spell their words"
    assert column(table, "pairs", what="head")[0] == 3


SENTENCES = [("the car was old but it ran", "5-1"), ("she sang", ""), ("a big dog barks and it runs", "5-2"),
             ("my cat sees you and it runs", "5-1")]  # fmt: skip


def test_the_head_of_the_pronoun_is_found_beside_the_best_offset(tmp_path: Path):
    """Head 1 of layer 1 looks from each "it" to its noun, but half of its weight stays at home; the others look at the
    first word. Two links choose (offsets −4 and −4), one reports."""

    def make(text: str):
        size = len(text.split())
        weights = np.zeros((2, 2, size, size))
        weights[..., 0] = 1
        answer = dict(SENTENCES)[text]
        if answer:
            pronoun, noun = map(int, answer.split("-"))
            weights[1, 1, pronoun] = np.eye(size)[noun] * 0.4 + np.eye(size)[pronoun] * 0.6
        return of_one_text(text, {f"encoder.{n}.attention.weights": one for n, one in enumerate(weights)})

    for at, name in enumerate(("text", "links")):
        (tmp_path / name).write_text("".join(f"{row[at]}\n" for row in SENTENCES), encoding="utf-8")
    options = AntecedentOptions(links=str(tmp_path / "links"))
    table = antecedents(traced(make), [str(tmp_path / "text")], options)
    assert column(table, "right", what="head") == [0, 0, 0, 1]
    assert column(table, "layer", what="best head") == column(table, "head", what="best head") == [1]
    assert column(table, "right", what="best head") == [1.0]
    assert column(table, "weight", what="best head") == pytest.approx([0.4])
    assert column(table, "right", what="offset -4") == [0.0], "the one that is reported on is three words back"
    assert draw_antecedents(table, tmp_path / "antecedents.png").is_file()


def test_a_decoder_is_asked_in_the_row_that_writes_the_pronoun(tmp_path: Path):
    """The source pronoun 2 goes back to 0; their translations are words 2 and 1. The row before that of the written
    word counts, in the decoder and across."""
    for name, row in (("a", "car is it"), ("b", "la voiture elle"), ("gold", "0-1 2-2"), ("links", "2-0")):
        (tmp_path / name).write_text(f"{row}\n", encoding="utf-8")
    cross, own = np.zeros((1, 1, 4, 4)), np.zeros((1, 4, 4))
    cross[0, 0, 2, 0] = 1  # reads "voiture", writes "elle", looks at "car"
    own[0, 2, 2] = 1  # … and at "voiture", place 2 behind the start
    cross[0, 0, 3, 1] = own[0, 3, 1] = 1  # one row late would be wrong
    encoder = np.eye(4)[None]
    more = {"encoder.0.attention.weights": encoder, "decoder.0.attention.weights": own}
    options = AntecedentOptions(links=str(tmp_path / "links"), gold=str(tmp_path / "gold"))
    door = traced(lambda *both: of_two_texts(*both, cross, more))
    table = antecedents(door, [str(tmp_path / "a"), str(tmp_path / "b")], options)
    found = dict(zip(column(table, "site"), column(table, "right"), strict=True))
    assert found == {"decoder.cross": 1.0, "encoder.attention": 0.0, "decoder.attention": 1.0}


def test_links_that_are_missing_or_empty_are_told(tmp_path: Path):
    (tmp_path / "text").write_text("a b\n", encoding="utf-8")
    (tmp_path / "links").write_text("\n", encoding="utf-8")
    door = traced(lambda text: of_one_text(text, {"encoder.0.attention.weights": np.eye(2)[None]}))
    with pytest.raises(InputError, match="links are missing"):
        antecedents(door, [str(tmp_path / "text")], AntecedentOptions())
    with pytest.raises(InputError, match="links has no link that could be looked for"):
        antecedents(door, [str(tmp_path / "text")], AntecedentOptions(links=str(tmp_path / "links")))
