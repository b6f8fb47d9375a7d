"""BigBird: texts of many blocks, in both kinds of attention, against transformers'."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from test_encoder_export import write_words
from test_encoders import VOCABULARY, Case
from tiny import VOCABULARY as WORDS

from headway.batch import TextInputs
from headway.errors import InputError
from headway.hub.config_keys import NoCounterpart
from headway.hub.families import FOREIGN
from headway.hub.hf_export import export_hf
from headway.hub.reading import import_foreign
from headway.models.bert import BertConfig
from headway.models.parts import Blocks

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers


def theirs_and_ours(dtype: torch.dtype, **settings: Any) -> tuple[Any, Any]:
    case = Case("big_bird", "ForMaskedLM", 0)
    torch.manual_seed(1)
    config = case.config(max_position_embeddings=160, **settings)
    theirs = transformers.BigBirdForMaskedLM(config)
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    theirs = theirs.to(dtype)
    ours, _ = case.ours(theirs)
    return theirs.eval(), ours.eval()


@pytest.mark.parametrize("kind", ["block_sparse", "original_full"])
@pytest.mark.parametrize("length", [11, 45, 96, 101, 160])  # of one block, of a few, of many; full blocks and not
@pytest.mark.parametrize("dtype, close", [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_logits_are_theirs(kind: str, length: int, dtype: torch.dtype, close: float) -> None:
    theirs, ours = theirs_and_ours(dtype, attention_type=kind, block_size=4, num_random_blocks=3)
    torch.manual_seed(length)
    ids_BT = torch.randint(2, VOCABULARY, (3, length))
    lengths_B = torch.tensor([length, max(1, length - 7), length // 2])
    there_BT = torch.arange(length) < lengths_B[:, None]
    with torch.no_grad():
        wanted = theirs(ids_BT, attention_mask=there_BT.long()).logits[there_BT]
        found = ours(TextInputs(ids_BT, lengths_B))[there_BT]
    torch.testing.assert_close(found, wanted, rtol=0, atol=close)


def test_gradients_are_theirs() -> None:
    """As in evaluation: in training theirs draws random blocks in its own way."""
    theirs, ours = theirs_and_ours(torch.float64, block_size=4, num_random_blocks=2)
    ids_BT = torch.randint(2, VOCABULARY, (2, 90))
    theirs(ids_BT).logits.square().mean().backward()
    ours(TextInputs(ids_BT, None)).square().mean().backward()
    wanted = theirs.bert.encoder.layer[0].attention.self.value.weight.grad
    found = ours.encoder.encoder.layers[0].attention.qkv.weight.grad[-len(wanted) :]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"])
def test_a_folder_comes_back_as_it_went(head: str, tmp_path: Path) -> None:
    case = Case("big_bird", head, 0)
    theirs = getattr(transformers, f"BigBird{head}")(
        case.config(max_position_embeddings=96, block_size=4, vocab_size=WORDS)
    ).eval()
    theirs.save_pretrained(tmp_path / "hf")
    write_words(tmp_path / "hf")
    import_foreign(str(tmp_path / "hf"), tmp_path / "mine")
    export_hf(tmp_path / "mine", tmp_path / "again")
    again, info = getattr(transformers, f"BigBird{head}").from_pretrained(tmp_path / "again", output_loading_info=True)
    missing = set(info["missing_keys"])  # theirs has it above every head, whether it is read or not
    assert missing <= ({"bert.pooler.weight", "bert.pooler.bias"} if head != "Model" else set())
    ids_BT = torch.randint(5, WORDS, (2, 90))
    with torch.no_grad():
        assert torch.equal(again.eval()(ids_BT)[0], theirs(ids_BT)[0])


def test_random_blocks_at_rest_have_no_counterpart() -> None:
    foreign = FOREIGN["big_bird"]
    written = foreign.fields["pattern"].write(Blocks(16, 2, "first"), BertConfig())
    assert written == {"attention_type": "block_sparse", "block_size": 16, "num_random_blocks": 2}
    with pytest.raises(NoCounterpart, match="pattern.resting"):
        foreign.fields["pattern"].write(Blocks(16, 2), BertConfig())


def test_what_headway_has_not_is_refused() -> None:
    facts = {"model_type": "big_bird", "architectures": ["BigBirdModel"], "rescale_embeddings": True}
    with pytest.raises(InputError, match="rescale_embeddings"):
        FOREIGN["big_bird"].model_in(facts)
