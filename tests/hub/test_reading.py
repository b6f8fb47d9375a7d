"""Hugging Face folders as files: whole, in shards, as old pickles, in other precisions; what is wrong with one is told
in one line, and nothing of it is used."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny import LLAMA, TINY, Tiny

from foreign_world import give_tokenizer
from headway.errors import InputError, Notice
from headway.folder import find_model, read_card, read_model
from headway.hub.config_keys import unknown_allowed
from headway.hub.families import FOREIGN
from headway.hub.reading import import_foreign
from headway.models.gpt import GPT
from headway.models.llama import Llama

CPU = torch.device("cpu")


def saved(folder: Path, tiny: Tiny, **how: Any) -> Any:
    model = tiny.build()
    model.save_pretrained(folder, **how)
    give_tokenizer(folder)
    return model


@pytest.fixture
def gpt2(tmp_path: Path) -> tuple[Path, Any]:
    folder = tmp_path / "gpt2"
    return folder, saved(folder, TINY["gpt2"])


def ids() -> torch.Tensor:
    return torch.randint(0, 90, (2, 11), generator=torch.Generator().manual_seed(1))


def agree(folder: Path, theirs: Any) -> Any:
    mine = read_model(folder).model
    with torch.no_grad():
        torch.testing.assert_close(mine(ids())[0], theirs(ids()).logits, rtol=0, atol=1e-5)
    return mine


@pytest.mark.parametrize("tiny", [TINY["gpt2"], TINY["gpt2-untied"], TINY["qwen2-tied"], TINY["llama"]])
def test_a_folder_is_read(tmp_path: Path, tiny: Tiny) -> None:
    mine = agree(tmp_path, saved(tmp_path, tiny))
    assert not mine.training and all(weight.requires_grad for weight in mine.parameters())
    assert find_model(tmp_path) == tmp_path and read_card(tmp_path).foreign_text


def test_shards_are_read(tmp_path: Path) -> None:
    theirs = saved(tmp_path, TINY["llama"], max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1 and not (tmp_path / "model.safetensors").exists()
    agree(tmp_path, theirs)


def test_an_old_pickle_of_tensors_is_read(gpt2: tuple[Path, Any]) -> None:
    """With masks that older programs kept, names without their prefix, and the tied head a second time."""
    folder, theirs = gpt2
    (folder / "model.safetensors").unlink()
    old = {name.removeprefix("transformer."): weight for name, weight in theirs.state_dict().items()}
    old |= {"h.0.attn.bias": torch.ones(1, 1, 37, 37), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    torch.save(old, folder / "pytorch_model.bin")
    agree(folder, theirs)
    torch.save(old, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    agree(folder, theirs)
    halves = [dict(list(old.items())[:9]), dict(list(old.items())[9:])]
    (folder / "pytorch_model.bin").unlink()
    for number, half in enumerate(halves):
        torch.save(half, folder / f"half-{number}.bin")
    places = {name: f"half-{number}.bin" for number, half in enumerate(halves) for name in half}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    agree(folder, theirs)


class Harm:
    """What a pickle would call when it is opened."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch HARMED",)


def test_a_pickle_that_would_run_code_is_refused_and_not_run(
    gpt2: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = gpt2
    monkeypatch.chdir(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"wte.weight": Harm()}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="would run code when it is opened .*refused; nothing of it was run"):
        read_model(folder)
    assert not (folder / "HARMED").exists()


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_come_in_the_wanted_precision(tmp_path: Path, stored: torch.dtype, wanted: torch.dtype) -> None:
    theirs = TINY["llama-tied"].build().to(stored)
    theirs.save_pretrained(tmp_path)
    give_tokenizer(tmp_path)
    mine = read_model(tmp_path, CPU, wanted).model
    assert {weight.dtype for weight in mine.parameters()} == {wanted}
    found, expected = mine.embed.table.weight, theirs.model.embed_tokens.weight.to(wanted)
    assert torch.equal(found, expected) and mine.output.weight is found
    assert mine.embed.position.cos_PK.dtype == torch.float32  # a table of angles needs all its digits


def test_what_needs_no_change_is_the_file_itself(gpt2: tuple[Path, Any], tmp_path: Path) -> None:
    """Mapped, so that it is read when it is used; and the file is never written to."""
    folder, theirs = gpt2
    before = (folder / "model.safetensors").read_bytes()
    mine = read_model(folder).model
    assert isinstance(mine, GPT)
    with torch.no_grad():
        for weight in mine.parameters():
            weight.add_(1.0)
    assert (folder / "model.safetensors").read_bytes() == before
    agree(folder, theirs)


def test_import_makes_a_model_folder(gpt2: tuple[Path, Any], tmp_path: Path) -> None:
    folder, theirs = gpt2
    import_foreign(str(folder), tmp_path / "mine")
    shutil.rmtree(folder)
    agree(tmp_path / "mine", theirs)
    found = read_model(tmp_path / "mine")
    assert (
        found.source_tokenizer.end == 0 and found.source_tokenizer.decode(found.source_tokenizer.encode("a b")) == "a b"
    )
    assert found.card.foreign_text and "# A headway gpt" in (tmp_path / "mine" / "README.md").read_text()
    with pytest.raises(InputError, match="not a model in the Hugging Face format"):
        import_foreign(str(tmp_path), tmp_path / "other")


def change_config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        facts = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(facts | changes))

    return change


def change_weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return do


def cut_short(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


FAULTS: list[tuple[Callable[[Path], Any], str]] = [
    (change_config(model_type="GPT-2"), "has no model_type 'GPT-2'; did you mean 'gpt2'"),
    (change_config(model_type="gpt5"), "has no model_type 'gpt5'; there is: albert, "),  # a similar one is another
    (change_config(model_type="longt5"), "has no model_type 'longt5'; there is: albert, "),
    (change_config(architectures=["GPT2ForQuestionAnswering"]), "cannot run a GPT2ForQuestionAnswering"),
    (change_config(architectures={"x": 1}), "architectures is {'x': 1}, expected a list of names"),
    (change_config(activation_function=["gelu"]), "headway has no activation_function '['gelu']'"),
    (change_config(attention_sinks=4), "'attention_sinks' (4), which headway's gpt2 does not have"),
    (change_config(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx is True"),
    (change_config(activation_function="swish"), "no activation_function 'swish'"),
    (change_config(quantization_config={"bits": 4}), "quantization_config is {'bits': 4}, which headway does not have"),
    (change_config(n_layer="three"), "n_layer is 'three', which is no whole number"),
    (change_config(n_layer=0), "n_layer is 0, it must be at least 1"),
    (change_config(n_head=5), "describes a model that cannot be built: width 24 is not a multiple of 5 heads"),
    (change_config(n_layer=2), "has 'transformer.h.2.attn.c_attn.bias'"),
    (change_config(n_layer=4), "lacks 'transformer.h.3.attn.c_attn.weight'"),
    (change_config(n_positions=40), "wpe.weight of shape [37, 24], expected [40, 24]"),
    (change_config(vocab_size=50), "the tokenizer has 100 entries, the model 50"),
    (change_weights(lambda w: w.pop("transformer.ln_f.bias")), "lacks 'transformer.ln_f.bias'"),
    (change_weights(lambda w: w.update({"transformer.more": torch.ones(2)})), "has 'transformer.more', which"),
    (change_weights(lambda w: w.update({"lm_head.weight": torch.ones(101, 24)})), "'lm_head.weight' must equal"),
    (cut_short, "is broken"),
    (lambda folder: (folder / "model.safetensors").unlink(), "has no weights: expected model.safetensors"),
    (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer"),
    (lambda folder: (folder / "config.json").write_text("{"), "config.json cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "line"), FAULTS, ids=[line[:40] for _, line in FAULTS])
def test_what_does_not_fit_is_told_in_one_line(gpt2: tuple[Path, Any], spoil: Callable[[Path], Any], line: str) -> None:
    folder, _ = gpt2
    spoil(folder)
    with pytest.raises(InputError) as caught:
        read_model(folder)
    assert line in str(caught.value) and str(folder) in str(caught.value), caught.value
    assert "\n" not in str(caught.value)


HARMLESS = {
    "_model_name_or_path": "x/y", "_num_labels": 3, "use_mrope": False, "is_llama_config": True, "num_labels": 5,
    "rope_interleaved": False, "directionality": "bidi", "pooler_fc_size": 768, "pooler_type": "first_token_transform",
    "unsloth_version": "2025.1.1", "unsloth_fixed": True, "condition_on_chain": True, "next_feature": None,
}  # fmt: skip


def test_keys_that_change_nothing_are_accepted(gpt2: tuple[Path, Any]) -> None:
    folder, theirs = gpt2
    change_config(**HARMLESS)(folder)
    agree(folder, theirs)


def test_unknown_keys_are_allowed_when_asked_for_and_named(gpt2: tuple[Path, Any]) -> None:
    folder, theirs = gpt2
    change_config(attention_sinks=4, deep=[1])(folder)
    with pytest.raises(InputError, match=r"'attention_sinks' \(4\), 'deep' \(\[1\]\).*--allow-unknown opens it"):
        read_model(folder)
    with unknown_allowed(), pytest.warns(Notice, match="'attention_sinks'"):
        agree(folder, theirs)


def test_weights_of_another_head_are_named_and_left_out(gpt2: tuple[Path, Any]) -> None:
    folder, theirs = gpt2
    change_weights(lambda weights: weights.update({"cls.bias": torch.ones(2), "v_head.weight": torch.ones(3)}))(folder)
    with pytest.warns(Notice, match="has 'cls.bias', 'v_head.weight': weights of a head .* left out"):
        agree(folder, theirs)


def test_added_tokens_that_the_model_has_no_row_for_are_left_out(gpt2: tuple[Path, Any]) -> None:
    """As of a padding that was added to the tokenizer alone."""
    folder, theirs = gpt2
    facts = json.loads((folder / "tokenizer.json").read_text())
    added = [facts["added_tokens"][0] | {"id": 100 + n, "content": f"[{n}]"} for n in range(3)]
    facts["added_tokens"] += added
    (folder / "tokenizer.json").write_text(json.dumps(facts))
    named = json.loads((folder / "tokenizer_config.json").read_text()) | {"pad_token": "[2]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    with pytest.warns(Notice, match="2 added tokens more than the model has rows: left out"):
        agree(folder, theirs)
    with pytest.warns(Notice):
        tokenizer = read_model(folder).source_tokenizer
    assert len(tokenizer) == 101 and tokenizer.pad is None
    assert tokenizer.encode("[0]") == [100] and max(tokenizer.encode("a[1][2]")) < 100


@pytest.mark.parametrize("kind", FOREIGN)
def test_every_key_that_is_on_by_default_is_known(kind: str) -> None:
    """What is unknown and off is accepted: that must be its default."""
    facts = transformers.CONFIG_MAPPING[kind]().to_dict()
    with pytest.raises(InputError, match=r" has 'unheard_of' \(True\), which headway's"):
        FOREIGN[kind].model_in(facts | {"unheard_of": True})


LLAMA_FAULTS = [
    ({"mlp_bias": True}, "mlp_bias is True"),
    ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "no rotary scaling 'longrope'"),
    ({"rope_parameters": {"rope_type": ["linear"], "rope_theta": 1e4}}, "no rotary scaling '['linear']'"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0, "bend": 3}}, "'bend' (3)"),
    ({"hidden_act": "tanh"}, "no hidden_act 'tanh'"),
    ({"sliding_window": 5}, "'sliding_window' (5)"),
    ({"num_key_value_heads": 4}, "6 heads cannot share 4 keys and values evenly"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "line"), LLAMA_FAULTS, ids=[line for _, line in LLAMA_FAULTS])
def test_choices_that_llama_does_not_have_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], line: str
) -> None:
    facts = LLAMA | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]} | changes
    (tmp_path / "config.json").write_text(json.dumps(facts))
    give_tokenizer(tmp_path)
    with pytest.raises(InputError) as caught:
        read_model(tmp_path)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_the_keys_of_older_files_mean_the_same(tmp_path: Path) -> None:
    """rope_theta and rope_scaling, as Llama 3 was published."""
    scaling = {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling |= {"original_max_position_embeddings": 64}
    theirs = saved(tmp_path, TINY["llama-3"])
    facts = json.loads((tmp_path / "config.json").read_text())
    facts.pop("rope_parameters")
    (tmp_path / "config.json").write_text(json.dumps(facts | {"rope_theta": 50.0, "rope_scaling": scaling}))
    assert isinstance(agree(tmp_path, theirs), Llama)


def test_positions_far_out_turn_as_theirs_do(tmp_path: Path) -> None:
    """Their angles are in float32, which shows at thousands of tokens."""
    facts = LLAMA | {"max_position_embeddings": 6000, "num_hidden_layers": 1}
    tiny = Tiny("LlamaForCausalLM", facts)
    theirs = saved(tmp_path, tiny)
    mine = read_model(tmp_path).model
    q = torch.randn(1, 2, 6000, 4)
    cos, sin = theirs.model.rotary_emb(q, torch.arange(6000)[None])
    assert torch.equal(mine.embed.position.cos_PK, cos[0]) and torch.equal(mine.embed.position.sin_PK, sin[0])


def test_gpt2s_sizes_match_the_published_ones(tmp_path: Path) -> None:
    """The smallest GPT-2 by its own default config, without a weight in memory."""
    from headway.hub.families.gpt2 import GPT2
    from headway.models.gpt import SIZES

    found, _ = GPT2.model_in(json.loads(transformers.GPT2Config().to_json_string(use_diff=False)))
    known = SIZES["124M"]
    assert (found.layers, found.width, found.heads, found.max_length) == (
        known.layers, known.width, known.heads, known.max_length,
    )  # fmt: skip
