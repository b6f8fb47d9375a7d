"""Adapters that headway trained, written as peft's folders and opened again with their base."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from checkpoint_world import IDS, TEXT, byte_pairs, llama
from encoder_folders import write_encoder
from headway.folder import read_model
from small_runs import answered, call
from small_world import surroundings


def gpt2(folder: Path) -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=320, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    byte_pairs().save(str(folder / "tokenizer.json"))


SETTINGS = (
    "engine.steps=4", "engine.batch=64", "schedule.peak=0.01", "schedule.warmup=1", "engine.average=0",
    "engine.adapters=lora", "engine.adapters.rank=2", "model.dropout=0.0",
)  # fmt: skip


@pytest.mark.parametrize(("kind", "expected"), [(llama, {"q_proj", "down_proj"}), (gpt2, {"c_attn", "c_fc"})])
def test_an_adapter_comes_back_as_it_was(kind: object, expected: set[str], tmp_path: Path) -> None:
    kind(tmp_path / "base")  # type: ignore[operator]
    ends = {"eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
    (tmp_path / "base" / "tokenizer_config.json").write_text(json.dumps(ends))
    (tmp_path / "text.txt").write_text("\n".join(TEXT * 6) + "\n")
    settings = SETTINGS if kind is gpt2 else SETTINGS[:-1]
    with surroundings(tmp_path / "cache"):
        answered(
            "train", "gpt", "--data", tmp_path / "text.txt", "--valid", tmp_path / "text.txt", "--init",
            tmp_path / "base", "--device", "cpu", "--out", tmp_path / "run", "--set", *settings,
        )  # fmt: skip
        answered("export", tmp_path / "run", tmp_path / "adapter", "--format", "peft")
    facts = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert facts["peft_type"] == "LORA" and facts["r"] == 2 and expected <= set(facts["target_modules"])
    assert facts["fan_in_fan_out"] == (kind is gpt2)
    saved = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert {min(matrix.shape) for matrix in saved.values()} == {2}
    with torch.no_grad():
        before, tuned, found = (read_model(tmp_path / name).model.eval()(IDS)[0] for name in ("base", "run", "adapter"))
    torch.testing.assert_close(found, tuned, rtol=0, atol=1e-5)
    assert (before - tuned).abs().max() > 1e-3


def test_a_model_without_adapters_is_none(tmp_path: Path) -> None:
    llama(tmp_path / "base")
    code, _, said = call("export", tmp_path / "base", tmp_path / "adapter", "--format", "peft")
    assert code == 2 and "was not trained with adapters" in said and not (tmp_path / "adapter").exists()


def test_a_pooler_that_was_trained_is_saved_whole_and_no_target(tmp_path: Path) -> None:
    write_encoder(tmp_path / "base", "Model")
    (tmp_path / "a.tsv").write_text("".join(f"{number % 2}\tthe cat {number}\n" for number in range(24)))
    with surroundings(tmp_path / "cache"):
        answered(
            "train", "classify", "--data", tmp_path / "a.tsv", "--valid", tmp_path / "a.tsv", "--init",
            tmp_path / "base", "--device", "cpu", "--out", tmp_path / "run", "--set", *SETTINGS,
        )  # fmt: skip
        answered("export", tmp_path / "run", tmp_path / "adapter", "--format", "peft")
        answered("export", tmp_path / "run", tmp_path / "whole", "--format", "hf")
    facts = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert facts["modules_to_save"] == ["bert.pooler.dense", "classifier"]
    saved = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    base, tuned = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "whole"))
    for name, weight in tuned.items():
        module = f"base_model.model.{name.removesuffix('.weight')}"
        found = saved.get(f"base_model.model.{name}", base.get(name.removeprefix("bert.")))
        if f"{module}.lora_A.weight" in saved:
            found = found + saved[f"{module}.lora_B.weight"] @ saved[f"{module}.lora_A.weight"]
            assert any(f".{name}".endswith(f".{target}.weight") for target in facts["target_modules"])
        torch.testing.assert_close(found, weight, rtol=0, atol=1e-5)
    assert not any("bert.pooler.dense".endswith(target) for target in facts["target_modules"])
