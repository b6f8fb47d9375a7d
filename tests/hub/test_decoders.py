"""The families of `headway.models.decoder`, and Mamba, as folders: read, written back as a family that holds them, and
opened again by transformers. `test_families.py` has their numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny import TINY, facts_of, twin
from torch import Tensor

from foreign_world import give_tokenizer
from headway.errors import InputError
from headway.folder import read_model
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.hub.families import FOREIGN
from headway.hub.hf_export import export_hf
from headway.hub.names import by_group
from headway.hub.reading import import_foreign

NEW = ("decoder", "mamba")
DECODERS = [name for name, tiny in TINY.items() if FOREIGN[tiny.model_type].family in NEW]


def ids() -> Tensor:
    return torch.randint(0, 90, (2, 11), generator=torch.Generator().manual_seed(1))


def one_by_one(model: Any) -> Any:
    model.config._experts_implementation = "eager"
    return model.eval()


@pytest.mark.parametrize("name", DECODERS)
def test_a_folder_goes_there_and_back(tmp_path: Path, name: str) -> None:
    """Files have names and layouts of their own: a matrix for each expert, another name for the head."""
    theirs = TINY[name].build()
    theirs.save_pretrained(tmp_path / "theirs")
    give_tokenizer(tmp_path / "theirs")
    import_foreign(str(tmp_path / "theirs"), tmp_path / "mine")
    export_hf(tmp_path / "mine", tmp_path / "back")
    again, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(info.values()), info
    with torch.no_grad():
        expected = theirs(ids()).logits
        for found in (read_model(tmp_path / "theirs").model(ids())[0], one_by_one(again)(ids()).logits):
            torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_a_step_of_rows_of_different_lengths_gives_what_the_whole_gives(tmp_path: Path, name: str) -> None:
    """One token with a fixed cache: by the block's fast twin where it takes the block's parts, else by the block."""
    TINY[name].build().save_pretrained(tmp_path)
    give_tokenizer(tmp_path)
    mine = read_model(tmp_path).model
    lengths, tokens = torch.tensor([10, 6]), ids()
    with torch.inference_mode():
        state = mine.start(None, 2, tokens.device, room=16)
        _, state = mine.read(tokens[:, :10], state, lengths_R=lengths)
        found = mine(tokens[:, 10:], state)[0][:, 0]
        whole = [
            mine(torch.cat([row[:length], row[10:]])[None])[0][0, -1]
            for row, length in zip(tokens, lengths, strict=True)
        ]
    torch.testing.assert_close(found, torch.stack(whole), rtol=0, atol=1e-5)


ONE_OF_EACH = [name for name in DECODERS if "-" not in name.removeprefix("gpt-").removeprefix("qwen2-")]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_batch_is_continued_as_transformers_continues_each_text(name: str) -> None:
    """The likeliest tokens, by the engine, with prompts of different lengths that enter and leave the batch."""
    theirs = TINY[name].build(torch.float64)
    mine = twin(theirs, TINY[name].stored)[0]
    tokens, lengths = ids()[:1].repeat(3, 1), (2, 9, 5)
    prompts = [row[:length].tolist() for row, length in zip(tokens.roll(3, 1), lengths, strict=True)]
    requests = [Request(prompt, Sampling(temperature=0.0), 5, frozenset()) for prompt in prompts]
    found = generate_all(mine, requests, context=37, device=torch.device("cpu"), batch=2)
    for prompt, texts in zip(prompts, found, strict=True):
        expected = list(prompt)
        with torch.no_grad():
            for _ in range(5):
                expected.append(int(theirs(torch.tensor([expected])).logits[0, -1].argmax()))
        assert texts[0].ids == expected[len(prompt) :]


def test_rows_by_group() -> None:
    """Four heads, two keys, heads of width one: q0 q1 k0 v0 q2 q3 k1 v1."""
    assert by_group(4, 2, 1).tolist() == [0, 1, 4, 6, 2, 3, 5, 7]
    assert by_group(3, 1, 2).tolist() == list(range(10))


REFUSED = [
    ("phi3", {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}}, "no rotary scaling 'longrope'"),
    ("phi3", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "no rotary scaling 'yarn'"),
    ("qwen3", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ("qwen3", {"layer_types": ["chunked_attention"] * 2}, "layer_types must be sliding_attention or full_attention"),
    (
        "qwen3",
        {"use_sliding_window": True, "sliding_window": None, "layer_types": None, "max_window_layers": 0},
        "sliding_window is 0",
    ),
    ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers must be 0 or 1 for each"),
    ("granite", {"attention_multiplier": 0.0}, "attention_multiplier is 0.0, it must be above 0"),
    ("gemma2", {"final_logit_softcapping": 0.0}, "final_logit_softcapping is 0.0, it must be above 0"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ("gemma3", {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "must be one object for each of"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
    ("gptj", {"rotary_dim": 12}, "rotary_dim is 12, a head is 8 wide"),
    ("falcon", {"new_decoder_architecture": True, "parallel_attn": False}, "parallel_attn must be"),
    ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn is 2"),
    ("falcon", {"multi_query": False, "num_kv_heads": 2}, "num_kv_heads is 2"),
    ("gpt-neo", {"attention_types": [[["global"], 1]]}, "attention_types must say global or local for each of 3"),
    ("opt", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine is False"),
    ("bloom", {"slow_but_exact": True}, "slow_but_exact is True"),
    ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layernorm is True"),
    ("mamba", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("mamba", {"time_step_rank": 0}, "time_step_rank is 0"),
    ("qwen2-moe", {"mlp_only_layers": [0]}, "mlp_only_layers is [0]"),
    ("qwen2-moe", {"decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
]


@pytest.mark.parametrize(("name", "changes", "line"), REFUSED, ids=[f"{name}-{line[:30]}" for name, _, line in REFUSED])
def test_what_a_family_does_not_have_is_refused_by_name(name: str, changes: dict[str, Any], line: str) -> None:
    facts = json.loads(json.dumps(facts_of(TINY[name].build()))) | changes
    if "rope_scaling" in changes:
        facts.pop("rope_parameters")
    with pytest.raises(InputError) as caught:
        FOREIGN[facts["model_type"]].model_in(facts)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_older_keys_mean_the_same() -> None:
    """Of GPT-NeoX, Gemma 3 and Bloom, as they were published."""
    neox = facts_of(TINY["gpt-neox"].build())
    older = {key: value for key, value in neox.items() if key != "rope_parameters"}
    older |= {"rotary_emb_base": 10000, "rotary_pct": 0.25}
    assert FOREIGN["gpt_neox"].model_in(older) == FOREIGN["gpt_neox"].model_in(neox)
    gemma = facts_of(TINY["gemma3-linear"].build())
    older = {key: value for key, value in gemma.items() if key not in ("rope_parameters", "layer_types")}
    older |= {"rope_theta": 500.0, "rope_local_base_freq": 77.0, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}
    older |= {"sliding_window_pattern": 6, "cache_implementation": "hybrid"}
    assert FOREIGN["gemma3_text"].model_in(older) == FOREIGN["gemma3_text"].model_in(gemma)
    bloom = facts_of(TINY["bloom"].build())
    older = {key: value for key, value in bloom.items() if key != "hidden_size"}
    older |= {"n_embed": 24, "num_attention_heads": 4, "seq_length": 2048, "masked_softmax_fusion": True}
    assert FOREIGN["bloom"].model_in(older) == FOREIGN["bloom"].model_in(bloom)
