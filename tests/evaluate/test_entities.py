"""Entity F1 against seqeval, and against spans that are read by brute force."""

from __future__ import annotations

import random

import pytest

from headway.evaluate.entities import EntityScores, entities

LABELS = ("O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-MISC-x", "I-MISC-x")


def drawn(sentences: int = 300) -> list[list[list[str]]]:
    """True and given labels in any order: broken chunks too."""
    chooser = random.Random(5)
    both: list[list[list[str]]] = [[], []]
    for _ in range(sentences):
        true = chooser.choices(LABELS, k=chooser.randint(1, 12))
        both[0].append(true)
        both[1].append([label if chooser.random() < 0.7 else chooser.choice(LABELS) for label in true])
    return both


def test_scores_are_seqevals() -> None:
    metrics = pytest.importorskip("seqeval.metrics")
    true, given = drawn()
    found = EntityScores.of(true, given)
    assert 0.1 < found.f1 < 0.9
    assert found.f1 == pytest.approx(metrics.f1_score(true, given), abs=1e-12)
    assert found.precision == pytest.approx(metrics.precision_score(true, given), abs=1e-12)
    assert found.recall == pytest.approx(metrics.recall_score(true, given), abs=1e-12)
    assert found.accuracy == pytest.approx(metrics.accuracy_score(true, given), abs=1e-12)


def is_entity(labels: list[str], kind: str, start: int, end: int) -> bool:
    """Whether the words from `start` to `end` are one whole chunk."""

    def begins(at: int) -> bool:
        before = labels[at - 1] if at else "O"
        return labels[at] == f"B-{kind}" or (labels[at] == f"I-{kind}" and before not in (f"B-{kind}", f"I-{kind}"))

    inside = all(labels[at] == f"I-{kind}" for at in range(start + 1, end + 1))
    continues = end + 1 < len(labels) and labels[end + 1] == f"I-{kind}"
    return begins(start) and inside and not continues


def test_entities_are_the_spans_that_a_search_over_all_spans_finds() -> None:
    for labels in (row for part in drawn(100) for row in part):
        places = range(len(labels))
        every = {(kind, a, b) for kind in ("PER", "LOC", "MISC-x") for a in places for b in places if a <= b}
        assert entities(labels) == {span for span in every if is_entity(labels, *span)}


def test_the_older_scheme_gives_the_same_entities() -> None:
    older, newer = ["I-PER", "I-PER", "B-PER", "O", "I-LOC"], ["B-PER", "I-PER", "B-PER", "O", "B-LOC"]
    assert entities(older) == entities(newer) == {("PER", 0, 1), ("PER", 2, 2), ("LOC", 4, 4)}


def test_nothing_to_find_is_no_error() -> None:
    assert EntityScores.of([["O"]], [["O"]]).figures() == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "accuracy": 1.0}
