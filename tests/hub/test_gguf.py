"""GGUF files, against what transformers reads of the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf.constants import GGMLQuantizationType as Type
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import headway
from checkpoint_world import TEXT, converted, write
from headway.errors import InputError
from headway.folder import read_model
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.hub.gguf_export import PRECISIONS, export_gguf
from headway.hub.gguf_file import gguf_file

SIZE = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}  # fmt: skip
FACTS = {"block_count": 2, "context_length": 64, "embedding_length": 64, "feed_forward_length": 96,
         "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-6,
         "rope.freq_base": 10_000.0, "vocab_size": 320}  # fmt: skip
GPT2_FACTS = {"block_count": 2, "context_length": 1024, "embedding_length": 64, "feed_forward_length": 256,
              "attention.head_count": 4, "attention.layer_norm_epsilon": 1e-5}  # fmt: skip
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any], gguf.MODEL_ARCH]] = {
    "llama": (transformers.LlamaConfig, SIZE, FACTS, gguf.MODEL_ARCH.LLAMA),
    "llama tied": (transformers.LlamaConfig, SIZE | {"tie_word_embeddings": True}, FACTS, gguf.MODEL_ARCH.LLAMA),
    "qwen2": (transformers.Qwen2Config, SIZE, FACTS, gguf.MODEL_ARCH.QWEN2),
    "gemma": (transformers.GemmaConfig, SIZE | {"head_dim": 16}, FACTS | {"attention.key_length": 16,
              "attention.value_length": 16}, gguf.MODEL_ARCH.GEMMA),
    "gpt2": (transformers.GPT2Config, {"vocab_size": 320, "n_embd": 64, "n_layer": 2, "n_head": 4,
             "n_positions": 1024}, GPT2_FACTS, gguf.MODEL_ARCH.GPT2),
}  # fmt: skip
HEADS = {"attention.key_length": 256, "attention.value_length": 256}
# Windows on layers of both kinds, and the scale of scores that transformers' reader takes for granted: that of 256.
GEMMAS = {"head_dim": 256, "sliding_window": 4, "query_pre_attn_scalar": 256}
GEMMA_FACTS = FACTS | HEADS | {"attention.sliding_window": 4}
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
LAYER_NORM = {key: value for key, value in FACTS.items() if "rms" not in key} | {"attention.layer_norm_epsilon": 1e-5}
CASES |= {
    "qwen3": (transformers.Qwen3Config, SIZE | {"head_dim": 128}, FACTS | {"attention.key_length": 128,
              "attention.value_length": 128}, gguf.MODEL_ARCH.QWEN3),
    "gemma2": (transformers.Gemma2Config, SIZE | GEMMAS, GEMMA_FACTS | CAPS, gguf.MODEL_ARCH.GEMMA2),
    "gemma3": (transformers.Gemma3TextConfig, SIZE | GEMMAS | {"num_hidden_layers": 6},
               GEMMA_FACTS | {"rope.freq_base": 1e6, "block_count": 6},
               gguf.MODEL_ARCH.GEMMA3),
    "olmo2": (transformers.Olmo2Config, SIZE | {"rms_norm_eps": 1e-6}, FACTS, gguf.MODEL_ARCH.OLMO2),
    "phi3": (transformers.Phi3Config, SIZE | {"rms_norm_eps": 1e-6, "pad_token_id": 0},
             FACTS | {"rope.dimension_count": 16, "attention.sliding_window": 0}, gguf.MODEL_ARCH.PHI3),
    "starcoder2": (transformers.Starcoder2Config, SIZE, LAYER_NORM, gguf.MODEL_ARCH.STARCODER2),
    "stablelm": (transformers.StableLmConfig, SIZE | {"use_qkv_bias": True},
                 LAYER_NORM | {"rope.dimension_count": 4, "use_parallel_residual": False}, gguf.MODEL_ARCH.STABLELM),
}  # fmt: skip
UNREAD = {"gemma", "olmo2"}  # by transformers


def made(case: str, folder: Path, kind: Type = Type.F32, **more: Any) -> tuple[Path, Any]:
    config, sizes, facts, arch = CASES[case]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config(**sizes)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    path = write(folder / "model.gguf", gguf.MODEL_ARCH_NAMES[arch], facts, converted(model, arch), kind, **more)
    return path, model


IDS = torch.tensor([[5, 300, 17, 44, 261, 3, 99, 12]])


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_the_model_that_was_written(case: str, tmp_path: Path) -> None:
    path, model = made(case, tmp_path)
    with torch.no_grad():
        found, expected = read_model(path).model(IDS)[0], model(IDS).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def read_by_transformers(path: Path) -> Any:
    """Their reader's config and weights (`from_pretrained` would want one more package)."""
    facts = load_gguf_checkpoint(str(path))["config"]
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**{"pad_token_id": 0} | facts)
    )
    weights = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model.float().eval()


WIDE = SIZE | {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
CASES["wide"] = (transformers.LlamaConfig, WIDE, FACTS | {"block_count": 1, "embedding_length": 256,
                 "feed_forward_length": 256}, gguf.MODEL_ARCH.LLAMA)  # fmt: skip
BLOCKS = [Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_NL, Type.IQ4_XS, Type.IQ3_S, Type.IQ2_XXS]


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_blocks_of_256_give_what_transformers_reads_of_the_same_file(kind: Type, tmp_path: Path) -> None:
    path, _ = made("wide", tmp_path, kind)
    with torch.no_grad():
        found, expected = read_model(path).model(IDS)[0], read_by_transformers(path)(IDS).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert expected.isfinite().all() and expected.std() > 0


QUANTISED = [("llama", kind) for kind in (Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1)]
OTHERS = [
    pytest.param(case, Type.Q8_0, marks=pytest.mark.long, id=case)
    for case in CASES
    if case not in UNREAD and not case.startswith(("llama", "wide"))
]


@pytest.mark.parametrize(("case", "kind"), [*(pytest.param(*one, id=one[1].name) for one in QUANTISED), *OTHERS])
def test_quantised_weights_give_what_transformers_reads_of_the_same_file(case: str, kind: Type, tmp_path: Path) -> None:
    path, _ = made(case, tmp_path, kind)
    theirs = read_by_transformers(path)
    mine = headway.load(path, "cpu")
    with torch.no_grad():
        torch.testing.assert_close(mine.model(IDS)[0], theirs(IDS).logits, rtol=0, atol=1e-5)
        expected = theirs.generate(IDS, max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0)
    asked = Request(IDS[0].tolist(), Sampling(0), max_new=20, stops=frozenset())
    [[written]] = generate_all(mine.model, [asked], context=64, device=torch.device("cpu"))
    assert list(written.ids) == expected[0, IDS.shape[1] :].tolist()


def test_byte_pairs_are_split_as_the_file_says(tmp_path: Path) -> None:
    """Against the tokenizer that the file was written from; digits by one, by three, or together."""
    from checkpoint_world import byte_pairs

    path, _ = made("llama", tmp_path)
    mine, theirs = read_model(path).source_tokenizer, byte_pairs()
    assert [mine.encode(text) for text in TEXT] == [theirs.encode(text).ids for text in TEXT]
    assert mine.decode(mine.encode(TEXT[1])) == TEXT[1] and mine.stops == {2} and mine.start == 1
    assert mine.encode("<|im_start|>a") == [3, *mine.encode("a")]
    assert mine.chat is not None
    for pre, splits in (("qwen2", ["1", "8", "5", "1"]), ("llama-bpe", ["185", "1"]), ("smollm", ["1", "8", "5", "1"])):
        path, _ = made("llama", tmp_path, pre=pre)
        inner = read_model(path).source_tokenizer.inner
        assert [text for text, _ in inner.pre_tokenizer.pre_tokenize_str("1851")] == splits
    path, _ = made("llama", tmp_path, pre="klingon")
    with pytest.raises(InputError, match="does not split texts as 'klingon'"):
        read_model(path)


def test_sentencepiece_is_what_transformers_makes_of_the_same_file(tmp_path: Path) -> None:
    path, _ = made("llama", tmp_path, tokenizer="llama")
    mine = gguf_file(path).tokenizers()[0]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in (*TEXT, "  two  spaces ", "naïve 漢字 \U0001f600"):
        expected = theirs.encode(text, add_special_tokens=False)
        assert mine.encode(text) == expected and mine.framed_batch([text]) == [[1, *expected]]
        assert mine.decode(mine.encode(text)).lstrip() == text.lstrip()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"expert_count": 8}, "'llama.expert_count' (8)"),
        ({"rope.dimension_count": 8}, "'llama.rope.dimension_count' (8)"),
        ({"attention.head_count": 5}, "cannot be built"),
        ({"block_count": 3}, "lacks"),
    ],
)
def test_what_a_file_says_and_headway_cannot_do_is_refused(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    *case, facts, arch = CASES["llama"]
    _, model = made("llama", tmp_path)
    path = write(tmp_path / "other.gguf", "llama", facts | changes, converted(model, arch))
    with pytest.raises(InputError) as caught:
        read_model(path)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_weights_that_no_table_has_are_refused(tmp_path: Path) -> None:
    *case, facts, arch = CASES["llama"]
    _, model = made("llama", tmp_path)
    more = converted(model, arch) | {"blk.0.attn_q_norm.weight": np.ones(16, np.float32)}
    with pytest.raises(InputError, match="attn_q_norm"):
        read_model(write(tmp_path / "other.gguf", "llama", facts, more))
    with pytest.raises(InputError, match="no GGUF file of a 'rwkv'"):
        read_model(write(tmp_path / "third.gguf", "rwkv", {}, {}))


@pytest.mark.parametrize(
    ("case", "changes", "line"),
    [
        ("gemma2", {"query_pre_attn_scalar": 64}, "a gemma2 with query_pre_attn_scalar=64"),
        ("gemma3", {"layer_types": ["full_attention"] * 6}, "a gemma3 with layer_types="),
        ("qwen3", {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 4}, "a sliding window"),
        ("qwen3", {"attention_bias": True}, "attention_bias=True"),
        ("starcoder2", {"sliding_window": 4}, "a sliding window"),
    ],
)
def test_what_a_file_could_not_say_is_not_written(
    case: str, changes: dict[str, Any], line: str, tmp_path: Path
) -> None:
    from checkpoint_world import byte_pairs

    config, sizes, *_ = CASES[case]
    transformers.AutoModelForCausalLM.from_config(config(**sizes | changes)).save_pretrained(tmp_path)
    byte_pairs().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=line):
        export_gguf(tmp_path, tmp_path / "no.gguf")


def test_llama_3s_factors_become_its_scaling(tmp_path: Path) -> None:
    """And others are refused."""
    from headway.models.rotary_scaling import Llama3

    *case, facts, arch = CASES["llama"]
    _, model = made("llama", tmp_path)
    plain = 10_000.0 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    factors = (plain / Llama3(factor=32.0, length=8192, low=1.0, high=4.0).frequencies(16, 10_000.0)).float().numpy()
    path = write(tmp_path / "a.gguf", "llama", facts, converted(model, arch) | {"rope_freqs.weight": factors})
    assert gguf_file(path).facts["rope_scaling"]["factor"] == 32.0
    path = write(tmp_path / "b.gguf", "llama", facts, converted(model, arch) | {"rope_freqs.weight": factors * 2})
    with pytest.raises(InputError, match="rope_freqs"):
        read_model(path)


def test_a_damaged_file_is_told_in_one_line(tmp_path: Path) -> None:
    path, _ = made("llama", tmp_path, Type.Q4_0)
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    for number in range(40):
        damaged = bytearray(whole)
        place = int(generator.integers(0, 12_000 if number % 3 else 200))
        damaged[place] ^= int(generator.integers(1, 256))
        path.write_bytes(damaged[: place + 1] if number % 10 == 0 else damaged)
        try:
            read_model(path)
        except InputError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_is_read_by_transformers_as_the_same_model(case: str, tmp_path: Path) -> None:
    path, model = made(case, tmp_path)
    export_gguf(path, tmp_path / "again.gguf", "float32")
    with torch.no_grad():
        expected = model(IDS).logits
        torch.testing.assert_close(read_model(tmp_path / "again.gguf").model(IDS)[0], expected, rtol=0, atol=1e-5)
        if case not in UNREAD:
            theirs = read_by_transformers(tmp_path / "again.gguf")
            torch.testing.assert_close(theirs(IDS).logits, expected, rtol=0, atol=1e-5)
    before, after = (read_model(file).source_tokenizer for file in (path, tmp_path / "again.gguf"))
    assert [before.encode(text) for text in TEXT] == [after.encode(text) for text in TEXT]
    assert (before.start, before.end, before.stops, before.opening) == (
        after.start,
        after.end,
        after.stops,
        after.opening,
    )


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "q8_0", "q4_0"])
def test_precisions_are_those_of_the_library(precision: str, tmp_path: Path) -> None:
    path, _ = made("llama", tmp_path)
    export_gguf(path, tmp_path / "small.gguf", precision)
    written, whole = (gguf_file(file).weights for file in (tmp_path / "small.gguf", path))
    name = "model.layers.0.mlp.up_proj.weight"
    kind = Type[PRECISIONS[precision]]
    expected = gguf.quants.dequantize(gguf.quants.quantize(whole.get(name).numpy(), kind), kind)
    assert np.array_equal(written.get(name).numpy(), expected)
    assert (tmp_path / "small.gguf").stat().st_size < path.stat().st_size


def test_a_tokenizer_that_llama_cpp_does_not_have_is_refused(tmp_path: Path) -> None:
    CASES["pieces"] = (transformers.LlamaConfig, SIZE | {"vocab_size": 400}, FACTS, gguf.MODEL_ARCH.LLAMA)
    path, _ = made("pieces", tmp_path, tokenizer="llama")
    with pytest.raises(InputError, match="byte-level BPE"):
        export_gguf(path, tmp_path / "no.gguf")
    assert not (tmp_path / "no.gguf").exists() and not list(tmp_path.glob(".*"))
