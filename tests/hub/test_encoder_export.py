"""Encoders of other families as folders: headway opens what transformers wrote, and transformers what headway wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny import TINY, VOCABULARY, their_mask
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from headway.batch import TextInputs
from headway.folder import read_model
from headway.hub.hf_export import export_hf
from headway.hub.reading import import_foreign

FAMILIES = ("xlmroberta", "camembert", "electra", "distilbert", "mpnet", "modernbert", "debertav2")
HEADS = (
    "MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice", "PreTraining",
)  # fmt: skip
NAMES = [f"{family}-{head}" for family in FAMILIES for head in HEADS if f"{family}-{head}" in TINY]
NAMES += ["t5-encoder", "mt5-encoder", "umt5-encoder"]


def write_words(folder: Path) -> None:
    """A tokenizer of words: <s> is 0, <pad> 1, </s> 2, <unk> 3, <mask> 4."""
    entries = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *(f"w{number}" for number in range(VOCABULARY - 5))]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(entries)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(entries[:5])
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    inner.save(str(folder / "tokenizer.json"))
    named = {"bos_token": "<s>", "cls_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "sep_token": "</s>"}
    facts = named | {"unk_token": "<unk>", "mask_token": "<mask>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))


def answer(model: Any, ids_BT: torch.Tensor, lengths_B: torch.Tensor) -> list[torch.Tensor]:
    given = {"input_ids": ids_BT, "attention_mask": their_mask(ids_BT, lengths_B)}
    if type(model).__name__.endswith("MultipleChoice"):
        given = {name: given[name][None] for name in given}
    with torch.no_grad():
        return [tensor for tensor in model(**given).to_tuple() if isinstance(tensor, torch.Tensor)]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_comes_back_as_it_went(tmp_path: Path, name: str) -> None:
    tiny = TINY[name]
    theirs = tiny.build()
    theirs.save_pretrained(tmp_path / "hf")
    write_words(tmp_path / "hf")
    import_foreign(str(tmp_path / "hf"), tmp_path / "mine")
    kind = export_hf(tmp_path / "mine", tmp_path / "again")
    architecture = json.loads((tmp_path / "again" / "config.json").read_text())["architectures"][0]
    again, info = getattr(transformers, architecture).from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(info.values()), (kind, info)
    ids_BT, lengths_B = torch.randint(5, VOCABULARY, (3, 11)), torch.tensor([11, 4, 7])
    for found, expected in zip(*(answer(model.eval(), ids_BT, lengths_B) for model in (again, theirs)), strict=True):
        assert torch.equal(found, expected)
    direct, kept = (read_model(tmp_path / place).model.eval() for place in ("hf", "mine"))
    with torch.no_grad():
        assert torch.equal(direct(TextInputs(ids_BT, lengths_B)), kept(TextInputs(ids_BT, lengths_B)))
