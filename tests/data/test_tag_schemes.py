"""Schemes of tags against seqeval's reading of chunks."""

from __future__ import annotations

import random

import pytest

from headway.data.tag_schemes import chunks, rewritten, scheme_of, types_of

TAGS = ("O", "O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B", "S-B")


def drawn(tags: tuple[str, ...], rows: int = 400) -> list[list[str]]:
    chooser = random.Random(3)
    return [chooser.choices(tags, k=chooser.randint(1, 10)) for _ in range(rows)]


@pytest.mark.parametrize("tags", [TAGS, ("O", "B-A", "I-A", "I-B", "B-B-c", "I-B-c")])
def test_chunks_are_seqevals_in_any_scheme_and_for_tags_that_contradict(tags: tuple[str, ...]) -> None:
    labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    for row in drawn(tags):
        assert chunks(row) == labeling.get_entities(row), row


def test_rewriting_keeps_the_chunks_and_gives_valid_tags() -> None:
    scheme = pytest.importorskip("seqeval.scheme")
    for row in drawn(TAGS):
        for name, theirs in (("bio", scheme.IOB2), ("bioes", scheme.IOBES)):
            written = rewritten(row, name)  # type: ignore[arg-type]
            assert chunks(written) == chunks(row) and rewritten(written, name) == written  # type: ignore[arg-type]
            strict = [(one.tag, one.start, one.end - 1) for one in scheme.Entities([list(written)], theirs).entities[0]]
            assert strict == chunks(row)  # read strictly, so that one tag out of place would lose a chunk


def test_the_older_scheme_and_tags_that_are_no_chunks() -> None:
    assert rewritten(["I-X", "I-X", "B-X", "I-Y", "O", "I-Y"], "bio") == ("B-X", "I-X", "B-X", "B-Y", "O", "B-Y")
    assert rewritten(["I-X", "I-X", "B-X", "O"], "bioes") == ("B-X", "E-X", "S-X", "O")
    assert rewritten(["NN", "-LRB-", "E", "X-Y"], "bioes") == ("NN", "-LRB-", "E", "X-Y")
    assert scheme_of(("O", "B-X", "I-X")) == scheme_of(("NN", "E")) == "bio" and scheme_of(("O", "S-X")) == "bioes"
    assert types_of(("O", "B-X", "S-X", "E-Y-z", "-LRB-")) == {"X", "Y-z"}
