"""Pairs as other people's translators are given them: batch and loss are those of `transformers`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foreign_world import write_translator
from headway.data.batches import Frame, pair_batches
from headway.data.store import prepare
from headway.folder import read_model
from headway.recipes.grammar import sample
from headway.tasks.objective import CrossEntropy, RDrop
from headway.tasks.translation import framed
from headway.text.tokenizer import PAD

ROWS = sample(40, seed=6)
SOURCES, TARGETS = ([getattr(row, side) for row in ROWS] for side in ("source", "target"))


@pytest.mark.parametrize("objective", [CrossEntropy(smoothing=0.0), RDrop(smoothing=0.0)], ids=["plain", "r-drop"])
@pytest.mark.parametrize("kind", ["marian", "t5"])
def test_the_loss_of_a_batch_is_that_of_transformers(
    tmp_path: Path, kind: str, objective: CrossEntropy | RDrop
) -> None:
    """Theirs makes the decoder's input of the labels itself."""
    theirs = write_translator(tmp_path / kind, kind, [*SOURCES, *TARGETS])
    mine = read_model(tmp_path / kind)
    tokenizer = mine.source_tokenizer
    files = [tmp_path / "x", tmp_path / "y"]
    for file, texts in zip(files, (SOURCES, TARGETS), strict=True):
        file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    store = prepare(files, tokenizer, tokenizer, tmp_path / "store", max_length=39)
    learned = objective.build(mine.model).train()
    for batch in pair_batches(store, 256, 1, frame=framed(mine.card, tokenizer)).epoch():
        chosen = [[texts[n] for n in batch.examples] for texts in (SOURCES, TARGETS)]
        sources, targets = (tokenizer.framed_batch(texts) for texts in chosen)
        longest = max(map(len, targets))
        labels = torch.tensor([[*ids, *[-100] * (longest - len(ids))] for ids in targets])
        width = max(map(len, sources))
        ids = torch.tensor([[*row, *[tokenizer.pad] * (width - len(row))] for row in sources])
        hidden = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in sources])
        with torch.no_grad():
            expected = theirs(input_ids=ids, attention_mask=hidden, labels=labels).loss
        assert batch.tokens == int((labels != -100).sum())
        for piece, split in ((batch, None), *((part, True) for part in batch.split(2))):
            nll = learned(piece)["nll"]
            if split is None:
                torch.testing.assert_close(nll[0] / batch.counts["nll"], expected, rtol=1e-5, atol=1e-6)
            assert piece.tokens == int((piece.labels_BT != -1).sum())


@pytest.mark.parametrize("first", [(), (97,), (97, 98)], ids=len)
def test_a_frame_stands_around_every_source_and_target(tmp_path: Path, first: tuple[int, ...]) -> None:
    """With more before and behind than any family of headway's has."""
    mine_folder = tmp_path / "t5"
    write_translator(mine_folder, "t5", [*SOURCES, *TARGETS])
    tokenizer = read_model(mine_folder).source_tokenizer
    for name, texts in (("x", SOURCES), ("y", TARGETS)):
        (tmp_path / name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    store = prepare([tmp_path / "x", tmp_path / "y"], tokenizer, tokenizer, tmp_path / "store", max_length=39)
    frame = Frame((91, 92), (93, 94), 95, 96, first)
    for batch in pair_batches(store, 256, 1, frame=frame).epoch():
        whole = torch.full((len(batch.examples),), batch.inputs.ids_BT.shape[1])
        lengths = whole if batch.inputs.lengths_B is None else batch.inputs.lengths_B
        for row, example in enumerate(batch.examples):
            source, target = tokenizer.encode(SOURCES[example]), tokenizer.encode(TARGETS[example])
            n = int(lengths[row])
            assert batch.inputs.ids_BT[row, :n].tolist() == [91, 92, *source, 93, 94]
            assert (batch.inputs.ids_BT[row, n:] == PAD).all()
            asked = batch.labels_BT[row] != -1
            assert batch.labels_BT[row][asked].tolist() == [*first, *target, 96]
            assert batch.ids_BT[row][asked].tolist() == [95, *first, *target]
