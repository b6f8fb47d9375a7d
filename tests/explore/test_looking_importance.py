"""A silenced head: beside models whose weights for it are zero, one of them transformers' own."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import headway
from headway.errors import InputError
from headway.explore.analyses.analysis import Table, Traced
from headway.explore.analyses.importance import IMPORTANCE, Options
from headway.explore.analyses.silence import attending, silenced
from headway.generate.generator import Generator
from headway.models.gpt import GPT, GPTConfig
from headway.models.recurrent import Gru, Recurrent, RecurrentConfig
from headway.text.tokenizer import TextOptions, Tokenizer

sys.path.insert(0, str(Path(__file__).parents[1]))
from encoder_folders import ENTRIES, write_encoder

FOLDER = Path(__file__).parents[1] / "folders" / "format-1"
TEXTS = ["the cat sat on the mat", "the dog did not sit"]
TOKENIZER = Tokenizer.train([*TEXTS] * 3, TextOptions(size=290, exact=True))
CPU = torch.device("cpu")


def generator(model) -> Generator:
    torch.manual_seed(5)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return Generator(model.double().eval(), TOKENIZER, context=64, device=CPU)


def gpt(**more) -> Generator:
    return generator(GPT(GPTConfig(layers=2, width=12, heads=3, max_length=64, **more), len(TOKENIZER)))


def written(folder: Path, name: str, texts: list[str]) -> str:
    (folder / name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    return str(folder / name)


def measured(loaded, *files: str, **options) -> tuple[Table, dict[tuple[str, int, int], float]]:
    table = IMPORTANCE.run(Traced(loaded, IMPORTANCE.tensors), files, Options(**options))
    return table, {(site, layer, head): loss for site, layer, head, loss, *_ in table.rows}


def test_a_language_model_loses_what_one_with_zero_weights_for_that_head_loses(tmp_path):
    mine = gpt(shared_heads=1)
    table, losses = measured(mine, written(tmp_path, "a.txt", TEXTS))
    assert list(losses) == [("decoder.attention", layer, head) for layer in range(2) for head in range(3)]

    def loss(model) -> float:
        logps = [model.score(torch.tensor([mine.ids(text)]))[0, 1:] for text in TEXTS]
        return -float(torch.cat(logps).mean())

    with torch.no_grad():
        assert table.more["loss"] == pytest.approx(loss(mine.model), abs=1e-5)
        for (_, layer, head), found in losses.items():
            other = copy.deepcopy(mine.model)
            other.decoder.layers[layer].attention.output.weight[:, 4 * head : 4 * head + 4] = 0
            assert found == pytest.approx(loss(other), abs=1e-5)
    assert len({round(loss, 6) for loss in losses.values()}) == 6  # no two heads are one
    changes = table.column("change")
    assert f"{sum(change <= 0 for change in changes)} of 6 heads can be silenced" in table.notes[2]


def test_a_model_that_fills_gaps_loses_what_transformers_own_loses(tmp_path):
    theirs = write_encoder(tmp_path / "bert", "ForMaskedLM")
    mine = headway.load(tmp_path / "bert", "cpu")
    text = "the big cat sat on the red mat"
    table, losses = measured(mine, written(tmp_path, "a.txt", [text]), share=0.4, seed=3)
    # Which words were taken out is told by the seed: look at what the model is given.
    seen = []
    handle = mine.model.register_forward_pre_hook(lambda _, given: seen.append(given[0].ids_BT))
    IMPORTANCE.run(Traced(mine, IMPORTANCE.tensors), [str(tmp_path / "a.txt")], Options(0.4, 3))
    handle.remove()
    whole, masked = seen[0], seen[-1]
    gaps = (masked[0] == ENTRIES.index("[MASK]")).nonzero()[:, 0]
    assert len(gaps) == 3 and (whole != masked).sum() == 3

    def loss(model) -> float:
        logp = model(masked).logits[0].log_softmax(-1)
        return -float(logp[gaps, whole[0, gaps]].mean())

    with torch.no_grad():
        assert table.more["loss"] == pytest.approx(loss(theirs), abs=1e-4)
        for (site, layer, head), found in losses.items():
            assert site == "encoder.attention"
            other = copy.deepcopy(theirs)
            other.bert.encoder.layer[layer].attention.output.dense.weight[:, 8 * head : 8 * head + 8] = 0
            assert found == pytest.approx(loss(other), abs=1e-4)


def test_a_translator_loses_at_every_site_what_zero_weights_lose(tmp_path):
    mine = headway.load(FOLDER, "cpu")
    files = written(tmp_path, "a.en", ["He drives the car"]), written(tmp_path, "a.fr", ["Il conduit la voiture"])
    table, losses = measured(mine, *files)
    assert {site for site, *_ in losses} == {"encoder.attention", "decoder.attention", "decoder.cross"}
    source = torch.tensor([mine.framed(mine.encode(["He drives the car"])[0])])
    [target] = mine.target_tokenizer.encode_batch(["Il conduit la voiture"])
    read = torch.tensor([[mine.symbols.start, *target]])

    def loss(model) -> float:
        logp = model(source, read)[0].log_softmax(-1)
        return -float(logp[range(len(target) + 1), [*target, mine.symbols.end]].mean())

    with torch.no_grad():
        for (site, layer, head), found in losses.items():
            stack, name = site.split(".")
            other = copy.deepcopy(mine.model)
            part = getattr(getattr(other, stack).layers[layer], name)
            part.output.weight[:, head * part.head_width : (head + 1) * part.head_width] = 0
            assert found == pytest.approx(loss(other), abs=1e-4)
    # Without translations it is judged by its own.
    own, _ = measured(mine, files[0])
    found = mine.translate_n(["He drives the car"])[0][0]
    assert own.more["loss"] == pytest.approx(-np.mean(found.token_scores), abs=1e-4)


def test_a_head_speaks_again_afterwards_whatever_happened():
    model = gpt().model
    part = attending(model)["decoder.attention", 1]
    ids = torch.tensor([[5, 6, 7]])
    before = model.score(ids)
    with pytest.raises(RuntimeError, match="broken off"), silenced(part, 2):
        assert not torch.equal(model.score(ids), before)
        raise RuntimeError("broken off")
    assert torch.equal(model.score(ids), before)
    with pytest.raises(InputError, match="there is no head 3: this attention has 3"), silenced(part, 3):
        pass


def test_what_cannot_be_judged_is_one_clear_line(tmp_path):
    file = written(tmp_path, "a.txt", TEXTS)
    recurrent = generator(Recurrent(RecurrentConfig(cell=Gru(), layers=1, width=8), len(TOKENIZER)))
    with pytest.raises(InputError, match="has no heads to silence"):
        measured(recurrent, file)
    write_encoder(tmp_path / "bert", "Model")
    with pytest.raises(InputError, match="this model predicts no words"):
        measured(headway.load(tmp_path / "bert", "cpu"), written(tmp_path, "b.txt", ["the cat sat"]))
    with pytest.raises(InputError, match="share is 0"):
        Options(share=0)


def test_the_picture_is_drawn_from_the_table(tmp_path):
    table, _ = measured(gpt(), written(tmp_path, "a.txt", TEXTS))
    assert IMPORTANCE.draw(table, tmp_path / "importance.png").stat().st_size > 5000
