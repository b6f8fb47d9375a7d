"""Models as people have them: adapters, Meta's folders, other names of files, no model_type, no tokenizer."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import headway
from checkpoint_world import IDS, adapter, byte_pairs, llama, write_meta
from headway.errors import InputError
from headway.folder import read_model
from headway.hub.ids import ids_only


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found = model(IDS)
    return found[0] if isinstance(found, tuple) else found.logits


def equal(folder: Path, model: Any, within: float = 1e-5) -> None:
    torch.testing.assert_close(logits(read_model(folder).model), logits(model), rtol=0, atol=within)


Q, DOWN = "model.layers.1.self_attn.q_proj", "model.layers.0.mlp.down_proj"


@pytest.mark.parametrize(
    ("facts", "scales"),
    [({}, (2.0, 2.0)), ({"use_rslora": True}, (4.0, 4.0)), ({"alpha_pattern": {"q_proj": 2}}, (0.5, 2.0))],
    ids=["plain", "rank-stabilised", "pattern"],
)
def test_an_adapter_is_merged_into_its_base(facts: dict[str, Any], scales: tuple[float, float], tmp_path: Path) -> None:
    """(Hu et al. 2022): W + (α/r)BA; the base lies beside it under the name that the adapter gives."""
    model = llama(tmp_path / "base-llama")
    added = adapter(tmp_path / "tuned", {Q: (32, 32), DOWN: (32, 48)}, **facts)
    for scale, (module, delta) in zip(scales, added.items(), strict=True):
        model.get_submodule(module).weight.data += scale * delta
    equal(tmp_path / "tuned", model)


def test_an_adapter_of_transposed_matrices_and_whole_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=320, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(tmp_path / "tuned" / "base")
    byte_pairs().save(str(tmp_path / "tuned" / "base" / "tokenizer.json"))
    module = "transformer.h.0.attn.c_attn"
    added = adapter(tmp_path / "tuned", {module: (96, 32)}, fan_in_fan_out=True)
    model.get_submodule(module).weight.data += 2 * added[module].T
    norm = torch.full((32,), 1.5)
    path = tmp_path / "tuned" / "adapter_model.safetensors"
    save_file(load_file(path) | {"base_model.model.transformer.ln_f.weight": norm}, path)
    model.transformer.ln_f.weight.data = norm
    equal(tmp_path / "tuned", model)


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"peft_type": "PROMPT_TUNING"}, "peft_type is 'PROMPT_TUNING'"),
        ({"use_dora": True}, "use_dora is True"),
        ({"base_model_name_or_path": "/nowhere/base"}, "put that model into"),
    ],
)
def test_other_adapters_are_refused_by_name(facts: dict[str, Any], line: str, tmp_path: Path) -> None:
    llama(tmp_path / "base-llama")
    adapter(tmp_path / "tuned", {Q: (32, 32)}, **facts)
    with pytest.raises(InputError) as caught:
        read_model(tmp_path / "tuned")
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    llama(tmp_path / "base-llama")
    adapter(tmp_path / "tuned", {"model.layers.7.self_attn.q_proj": (32, 32)})
    with pytest.raises(InputError, match="which the base model .* does not have"):
        read_model(tmp_path / "tuned")
    adapter(tmp_path / "tuned", {Q: (32, 16)})
    with pytest.raises(InputError, match=r"has the shape \[32, 16\], expected \[32, 32\]"):
        read_model(tmp_path / "tuned")


@pytest.mark.parametrize("files", [1, 2])
def test_metas_folder_is_the_same_model(files: int, tmp_path: Path) -> None:
    """In one file, or split over two as for two devices."""
    model = llama(tmp_path / "hf", rms_norm_eps=1e-5, max_position_embeddings=4096)
    folder = tmp_path / "meta"
    told = write_meta(folder, model, files)
    equal(folder, model)
    (folder / "params.json").write_text(json.dumps(told | {"moe": {"experts": 8}}))
    with pytest.raises(InputError, match="'moe'"):
        read_model(folder)


@pytest.mark.parametrize("name", ["model.fp16.safetensors", "pytorch_model.fp32.bin", "weights.safetensors"])
def test_weights_under_another_name(name: str, tmp_path: Path) -> None:
    model = llama(tmp_path)
    if name.endswith(".bin"):
        torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / name)
        (tmp_path / "model.safetensors").unlink()
    else:
        (tmp_path / "model.safetensors").rename(tmp_path / name)
    equal(tmp_path, model)


def test_without_a_model_type_the_weights_say_what_it_is(tmp_path: Path) -> None:
    model = llama(tmp_path)
    facts = json.loads((tmp_path / "config.json").read_text())
    for lost in (["model_type"], ["model_type", "architectures"]):
        kept = {key: value for key, value in facts.items() if key not in lost}
        (tmp_path / "config.json").write_text(json.dumps(kept))
        if len(lost) == 1:
            equal(tmp_path, model)
    with pytest.raises(InputError, match=r"has no model_type, and its weights fit llama and .*: add"):
        read_model(tmp_path)


def test_a_gpt2_without_a_model_type(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=320, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(tmp_path)
    byte_pairs().save(str(tmp_path / "tokenizer.json"))
    facts = json.loads((tmp_path / "config.json").read_text())
    kept = {key: value for key, value in facts.items() if key not in ("model_type", "architectures")}
    (tmp_path / "config.json").write_text(json.dumps(kept))
    equal(tmp_path, model)


def test_without_a_tokenizer_ids_go_in_and_out(tmp_path: Path) -> None:
    model = llama(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(InputError, match="--ids"):
        read_model(tmp_path)
    with torch.no_grad():
        expected = model.generate(IDS, max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
    with ids_only():
        mine = headway.load(tmp_path, "cpu")
        [text] = mine.generate([" ".join(map(str, IDS[0].tolist()))], temperature=0, max_new=6)
        with pytest.raises(InputError, match="a word is no token"):
            mine.generate(["12 320"])
    assert text.split() == [str(i) for i in expected[0, IDS.shape[1] :].tolist()]


@pytest.mark.parametrize(
    ("files", "given", "line"),
    [
        ((), "gpt2", "the model of that name is hf://openai-community/gpt2"),
        ((), "someone/their-model", "written hf://someone/their-model"),
        (("m/model.safetensors",), "m", "config.json of Hugging Face's, is missing"),
        (("m/net.onnx",), "m", "an ONNX graph: its weights are read where"),
        (("net.pt",), "net.pt", "a file of torch.save"),
        (("m/config.json",), "m", "which has no model_type, and no weights"),
        (("m/a.txt",), "m", "headway opens its own folders"),
    ],
)
def test_what_is_no_model_is_told_with_the_way_to_one(
    files: tuple[str, ...], given: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    some = {"weight": torch.zeros(2)}
    write: dict[str, Any] = {".pt": partial(torch.save, some), ".safetensors": partial(save_file, some)}
    for file in files:
        Path(file).parent.mkdir(exist_ok=True)
        write.get(Path(file).suffix, lambda path: path.write_text("{}"))(Path(file))
    with pytest.raises(InputError) as caught:
        read_model(given)
    assert line in str(caught.value) and "ARPA" not in str(caught.value)
