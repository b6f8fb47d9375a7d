"""Tiny random models of `transformers`, one row for each choice that a family has: odd sizes, tied and not, …

A new family adds its rows to `TINY`, and a `Kind` if it is called in a way of its own; `test_families.py` does the
rest.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import tiny_pictures
import tiny_speech
import tiny_steps
import torch
import transformers
from torch import Tensor, nn

from foreign_world import from_hf
from headway.batch import TextInputs
from headway.hub.families import FOREIGN, foreign_of
from headway.models import build

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers.models.deberta_v2 import modeling_deberta_v2
    from transformers.models.modernbert import modeling_modernbert

transformers.utils.logging.set_verbosity_error()
VOCABULARY = 101
FOREIGN_ARCHITECTURES = {name for foreign in FOREIGN.values() for name in foreign.architectures}


@dataclass(frozen=True)
class Kind:
    """How a model is called on a padded batch: ours and theirs, each giving what is compared.

    ours and theirs: (model, ids_BT, lengths_B) → tensor (B, T, …); only the places inside a row's length are compared.
    cached: (model, ids_BT) → what several calls with a state give, piece by piece; None: it has no state.
    """

    ours: Callable[[Any, Tensor, Tensor], Tensor]
    theirs: Callable[[Any, Tensor, Tensor], Tensor]
    cached: Callable[[Any, Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Tiny:
    """One row. `architecture` is a class of transformers, `settings` its config's."""

    architecture: str
    settings: dict[str, Any]
    kind: str = "decoder"
    config: str = field(default="")  # its class; by default that of the architecture
    change: Callable[[Any], None] = lambda model: None  # what a config cannot say
    stored: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] = dict  # its weights as they are named in files

    @property
    def model_type(self) -> str:
        kind = getattr(transformers, self.config or self.architecture)
        return str((kind if self.config else kind.config_class).model_type)

    def build(self, dtype: torch.dtype = torch.float32) -> Any:
        """Random weights, none of them at its first value: zeros and ones would hide a mistake."""
        torch.manual_seed(3)
        kind = getattr(transformers, self.architecture)
        config = (
            getattr(transformers, self.config)(**self.settings) if self.config else kind.config_class(**self.settings)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(config)
        self.change(model)
        with torch.no_grad():
            for weight in [*model.parameters(), getattr(model, "final_logits_bias", torch.zeros(1))]:
                # Marian's table of sinusoids is a weight that is never trained.
                if weight.requires_grad or not isinstance(weight, nn.Parameter):
                    weight.add_(torch.randn_like(weight) * 0.1)
        return in_double(model.eval()) if dtype == torch.float64 else model.eval()


class InDouble:
    """A module's `torch`, in which float32 is float64."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def all_in_double(modules: set[Any]) -> Iterator[None]:
    """What these modules of transformers convert to float32 stays in float64: scores, softmax, routers, norms."""
    softmax, to_float = torch.nn.functional.softmax, Tensor.float

    def wide_softmax(x: Tensor, *how: Any, dtype: Any = None, **more: Any) -> Tensor:
        return softmax(x, *how, dtype=torch.float64 if x.dtype == torch.float64 else dtype, **more)

    try:
        torch.nn.functional.softmax = wide_softmax
        Tensor.float = lambda x: x if x.dtype == torch.float64 else to_float(x)  # type: ignore[method-assign]
        for module in modules:
            module.torch = InDouble()
        yield
    finally:
        torch.nn.functional.softmax, Tensor.float = softmax, to_float  # type: ignore[method-assign]
        for module in modules:
            module.torch = torch


def in_double(model: Any) -> Any:
    """transformers computes RMS norms in float32, and keeps Gemma's √width so, whatever a model's precision: here they
    follow it. So do scores and the softmax of the models that have no kernel."""
    forward, modules = model.forward, {sys.modules[type(part).__module__] for part in model.modules()}
    modules = {module for module in modules if module.__name__.startswith("transformers.models.")}

    def wide_forward(*inputs: Any, **more: Any) -> Any:
        with all_in_double(modules):
            return forward(*inputs, **more)

    model.forward = wide_forward
    for part in model.double().modules():
        if hasattr(part, "scalar_embed_scale"):
            part.embed_scale = torch.tensor(part.scalar_embed_scale, dtype=torch.float64)
        if type(part).__name__.endswith(("RMSNorm", "T5LayerNorm")):
            more = 1.0 if "Gemma" in type(part).__name__ else 0.0
            epsilon = getattr(part, "variance_epsilon", None) or getattr(part, "eps", None)
            part.forward = lambda x, part=part, more=more, epsilon=epsilon: (
                x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * (more + part.weight)
            )
    return model


def facts_of(theirs: Any) -> dict[str, Any]:
    """Its config.json, as it is saved."""
    facts = json.loads(theirs.config.to_json_string(use_diff=False))
    facts["architectures"] = [type(theirs).__name__]
    return facts


def by_expert(gate: str, up: str, down: str, layer: str = "mlp") -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """Files have a matrix for each expert, which transformers stacks."""

    def stored(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for name, weight in weights.items():
            renamed = name.replace(".mlp.", f".{layer}.")
            start, _, kind = renamed.partition("experts.")
            if kind not in ("gate_up_proj", "down_proj"):
                found[renamed] = weight
                continue
            for number, matrix in enumerate(weight):
                parts = [matrix] if kind == "down_proj" else matrix.chunk(2)
                names = [down] if kind == "down_proj" else [gate, up]
                found |= {f"{start}experts.{number}.{n}.weight": part for n, part in zip(names, parts, strict=True)}
        return found

    return stored


def twin(theirs: Any, stored: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] = dict) -> tuple[nn.Module, Any, Any]:
    """Our model with their weights, its table of names, and what headway knows of the family."""
    facts = facts_of(theirs)
    foreign = foreign_of(facts, "config.json")
    (config, head), sizes = foreign.model_in(facts), foreign.vocabularies(facts)
    mine = build(foreign.family, config, sizes, head)
    shapes = {name: tuple(weight.shape) for name, weight in mine.named_parameters()}
    table = foreign.table(shapes, config, sizes, head)
    weights = from_hf(table, stored(theirs.state_dict()), shapes)
    mine = mine.to(next(theirs.parameters()).dtype).eval()
    mine.load_state_dict(weights, strict=False)
    return mine, table, foreign


def their_mask(ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
    return (torch.arange(ids_BT.shape[1]) < lengths_B[:, None]).long()


def _cached_decoder(model: Any, ids_BT: Tensor) -> Tensor:
    """Five tokens, then one at a time."""
    state = model.start(None, len(ids_BT), ids_BT.device, room=ids_BT.shape[1] + 3)
    spans = [slice(0, 5), *(slice(t, t + 1) for t in range(5, ids_BT.shape[1]))]
    with torch.inference_mode():
        return torch.cat([model(ids_BT[:, span], state)[0] for span in spans], 1)


def _cached_encoder_decoder(model: Any, ids_BT: Tensor) -> Tensor:
    spans = [slice(0, 5), *(slice(t, t + 1) for t in range(5, ids_BT.shape[1]))]
    with torch.inference_mode():
        state = model.start(TextInputs(ids_BT), len(ids_BT), ids_BT.device, room=ids_BT.shape[1] + 3)
        return torch.cat([model.logits(ids_BT.flip(1)[:, span], state)[0] for span in spans], 1)


def _side_by_side(found: Any, ids_BT: Tensor) -> Tensor:
    """All that an encoder's head gives; what it says of a whole text at each of its places."""
    tensors = [found] if isinstance(found, Tensor) else [tensor for tensor in found if isinstance(tensor, Tensor)]
    length = ids_BT.shape[1]
    return torch.cat([x if x.dim() == 3 else x[:, None].expand(-1, length, -1) for x in tensors], -1)


def _their_answer(model: Any, ids_BT: Tensor, lengths_B: Tensor) -> Any:
    """With a type for each token where the model has types; every row is a choice where it has choices."""
    given = {"input_ids": ids_BT, "attention_mask": their_mask(ids_BT, lengths_B)}
    if types := getattr(model.config, "type_vocab_size", 0):
        given["token_type_ids"] = ids_BT % types
    if type(model).__name__.endswith("MultipleChoice"):
        return model(**{name: given[name][None] for name in given}).logits.mT
    answer = model(**given)
    if "start_logits" in answer:
        return torch.stack([answer.start_logits, answer.end_logits], -1)
    if type(model).__name__ == "ElectraForPreTraining":
        return torch.nn.functional.pad(answer.logits[..., None], (1, 0))
    return answer.to_tuple()


KINDS = {
    "encoder-decoder": Kind(
        ours=lambda model, ids_BT, lengths_B: model(ids_BT, ids_BT.flip(1), lengths_B),
        theirs=lambda model, ids_BT, lengths_B: (
            model(ids_BT, attention_mask=their_mask(ids_BT, lengths_B), decoder_input_ids=ids_BT.flip(1)).logits
        ),
        cached=_cached_encoder_decoder,
    ),
    "decoder": Kind(
        ours=lambda model, ids_BT, lengths_B: model(ids_BT)[0],
        theirs=lambda model, ids_BT, lengths_B: model(ids_BT, attention_mask=their_mask(ids_BT, lengths_B)).logits,
        cached=_cached_decoder,
    ),
    "encoder": Kind(
        ours=lambda model, ids_BT, lengths_B: _side_by_side(
            model(TextInputs(ids_BT, lengths_B, ids_BT % max(1, getattr(model.config, "types", 0)))), ids_BT
        ),
        theirs=lambda model, ids_BT, lengths_B: _side_by_side(_their_answer(model, ids_BT, lengths_B), ids_BT),
    ),
    "pictures": Kind(ours=tiny_pictures.ours, theirs=tiny_pictures.theirs),
    "steps": Kind(ours=tiny_steps.ours, theirs=tiny_steps.theirs),
    "boxes": Kind(ours=tiny_pictures.ours_of_boxes, theirs=tiny_pictures.theirs_of_boxes),
    "object-masks": Kind(ours=tiny_pictures.ours_of_masks, theirs=tiny_pictures.theirs_of_masks),
    "sounds": Kind(ours=tiny_pictures.ours_of_sounds, theirs=tiny_pictures.theirs_of_sounds),
    "speech": Kind(ours=tiny_speech.ours, theirs=tiny_speech.theirs, cached=tiny_speech.cached),
}

NO_DROPOUT_GPT2 = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 37, "n_embd": 24, "n_layer": 3, "n_head": 4, **NO_DROPOUT_GPT2}

MARIAN = {
    "vocab_size": VOCABULARY, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "max_position_embeddings": 41,
    "dropout": 0.0, "scale_embedding": True, "activation_function": "swish", "pad_token_id": 100, "eos_token_id": 0,
    "decoder_start_token_id": 100, "forced_eos_token_id": 0,
}  # fmt: skip
BART = MARIAN | {
    "activation_function": "gelu", "scale_embedding": False, "pad_token_id": 1, "decoder_start_token_id": 2,
    "bos_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": 2, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
    "attention_dropout": 0.0, "decoder_layers": 2,
}  # fmt: skip
T5 = {
    "vocab_size": VOCABULARY, "d_model": 20, "d_kv": 6, "d_ff": 37, "num_layers": 2, "num_decoder_layers": 3,
    "num_heads": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 11, "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}  # fmt: skip


def untied(model: Any) -> None:
    model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.1)


def one_by_one(model: Any) -> None:
    """Experts in a loop: transformers' kernel for all at once wants widths that are multiples of 16 bytes."""
    model.config._experts_implementation = "eager"


LLAMA = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 37, "head_dim": 4,
    "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1,
}  # fmt: skip
QWEN2 = {key: value for key, value in LLAMA.items() if key != "head_dim"}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 9}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 50.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def _llama(**settings: Any) -> Tiny:
    return Tiny("LlamaForCausalLM", LLAMA | settings)


TINY: dict[str, Tiny] = {
    "marian": Tiny("MarianMTModel", MARIAN, "encoder-decoder"),
    "marian-relu-odd": Tiny(
        "MarianMTModel",
        MARIAN
        | {
            "activation_function": "relu",
            "d_model": 21,
            "encoder_attention_heads": 3,
            "decoder_attention_heads": 3,
            "scale_embedding": False,
            "decoder_layers": 1,
        },
        "encoder-decoder",
    ),
    "marian-two-vocabularies": Tiny(
        "MarianMTModel",
        MARIAN | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 97, "pad_token_id": 96},
        "encoder-decoder",
    ),
    "pegasus": Tiny(
        "PegasusForConditionalGeneration",
        MARIAN | {"activation_function": "gelu", "pad_token_id": 0},
        "encoder-decoder",
    ),
    "t5": Tiny("T5ForConditionalGeneration", T5, "encoder-decoder"),
    "t5-gated-untied": Tiny(
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        "encoder-decoder",
        change=untied,
    ),
    "t5-gated-silu": Tiny(
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-silu", "num_heads": 1, "layer_norm_epsilon": 1e-3, "num_decoder_layers": 1},
        "encoder-decoder",
    ),
    "bart": Tiny("BartForConditionalGeneration", BART, "encoder-decoder"),
    "bart-relu-scaled": Tiny(
        "BartForConditionalGeneration",
        BART | {"activation_function": "relu", "scale_embedding": True, "decoder_layers": 1},
        "encoder-decoder",
    ),
    "mbart": Tiny("MBartForConditionalGeneration", BART | {"scale_embedding": True}, "encoder-decoder"),
    "m2m100": Tiny("M2M100ForConditionalGeneration", BART | {"scale_embedding": True}, "encoder-decoder"),
    "m2m100-odd": Tiny(
        "M2M100ForConditionalGeneration",
        BART | {"d_model": 21, "encoder_attention_heads": 3, "decoder_attention_heads": 3, "pad_token_id": 2},
        "encoder-decoder",
    ),
    "mt5": Tiny("MT5ForConditionalGeneration", T5, "encoder-decoder"),
    "umt5": Tiny("UMT5ForConditionalGeneration", T5, "encoder-decoder"),
    "umt5-relu": Tiny(
        "UMT5ForConditionalGeneration", T5 | {"feed_forward_proj": "relu", "num_heads": 1}, "encoder-decoder"
    ),
    "t5-encoder": Tiny("T5EncoderModel", T5, "encoder"),
    "mt5-encoder": Tiny("MT5EncoderModel", T5 | {"feed_forward_proj": "gated-gelu"}, "encoder"),
    "umt5-encoder": Tiny("UMT5EncoderModel", T5, "encoder"),
    "gpt2": Tiny("GPT2LMHeadModel", GPT2),
    "gpt2-untied": Tiny("GPT2LMHeadModel", GPT2 | {"tie_word_embeddings": False, "n_inner": 37}),
    "gpt2-gelu": Tiny(
        "GPT2LMHeadModel", GPT2 | {"activation_function": "gelu", "layer_norm_epsilon": 1e-3, "n_head": 1}
    ),
    "llama": _llama(),
    "llama-tied": _llama(tie_word_embeddings=True, num_key_value_heads=6, rms_norm_eps=1e-3),
    "llama-one-key": _llama(num_key_value_heads=1, num_attention_heads=3, head_dim=8),
    "llama-wide-heads": _llama(head_dim=10, attention_bias=True, hidden_act="gelu"),
    "llama-linear": _llama(rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}),
    "llama-dynamic": _llama(rope_parameters={"rope_type": "dynamic", "rope_theta": 500.0, "factor": 3.0}),
    "llama-3": _llama(rope_parameters=LLAMA3, num_attention_heads=3, num_key_value_heads=3, head_dim=16),
    "llama-yarn": _llama(rope_parameters=YARN, num_attention_heads=3, num_key_value_heads=3, head_dim=16),
    "llama-yarn-stretched": _llama(
        rope_parameters=YARN | {"attention_factor": 1.3, "beta_fast": 8.0, "truncate": False}
    ),
    "mistral": Tiny("MistralForCausalLM", LLAMA | {"sliding_window": None}),
    "mistral-window": Tiny("MistralForCausalLM", LLAMA | {"sliding_window": 5, "head_dim": 6}),
    "qwen2": Tiny("Qwen2ForCausalLM", QWEN2),
    "qwen2-window": Tiny(
        "Qwen2ForCausalLM", QWEN2 | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    ),
    "qwen2-tied": Tiny("Qwen2ForCausalLM", QWEN2 | {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    "gemma": Tiny("GemmaForCausalLM", LLAMA | {"head_dim": 8}),
    "gemma-one-key": Tiny("GemmaForCausalLM", LLAMA | {"num_key_value_heads": 1, "rms_norm_eps": 1e-4}),
    "gpt2-relu": Tiny("GPT2LMHeadModel", GPT2 | {"activation_function": "relu", "n_layer": 1, "vocab_size": 64}),
}

SMALL = {key: value for key, value in LLAMA.items() if key != "head_dim"} | {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
MIXTRAL = SMALL | {"num_local_experts": 3, "num_experts_per_tok": 2}
QWEN2_MOE = SMALL | {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 13, "shared_expert_intermediate_size": 11,
}  # fmt: skip
EXPERTS = by_expert("gate_proj", "up_proj", "down_proj")
MIXTRALS = by_expert("w1", "w3", "w2", layer="block_sparse_moe")


def _small(architecture: str, **settings: Any) -> Tiny:
    return Tiny(architecture, SMALL | settings)


TINY |= {
    "qwen3": _small("Qwen3ForCausalLM", head_dim=8),
    "qwen3-window": _small(
        "Qwen3ForCausalLM", head_dim=6, use_sliding_window=True, sliding_window=4, max_window_layers=1,
        tie_word_embeddings=True, attention_bias=True,
    ),
    "qwen3-mixed-windows": _small(
        "Qwen3ForCausalLM", head_dim=6, use_sliding_window=True, sliding_window=4, rope_parameters=YARN,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "olmo2": _small("Olmo2ForCausalLM"),
    "olmo2-bias": _small("Olmo2ForCausalLM", attention_bias=True, num_key_value_heads=4, rms_norm_eps=1e-3),
    "phi3": _small("Phi3ForCausalLM"),
    "phi3-part-window": _small(
        "Phi3ForCausalLM", sliding_window=5, num_key_value_heads=4, hidden_size=32,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.75},
    ),
    "granite": _small(
        "GraniteForCausalLM", embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.4,
        logits_scaling=1.7,
    ),
    "granite-biases": _small("GraniteForCausalLM", attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "smollm3": _small("SmolLM3ForCausalLM", num_hidden_layers=4),
    "smollm3-window": _small(
        "SmolLM3ForCausalLM", num_hidden_layers=3, no_rope_layers=[1, 0, 0], use_sliding_window=True, sliding_window=4,
        attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
    ),
    "mixtral": Tiny("MixtralForCausalLM", MIXTRAL, stored=MIXTRALS, change=one_by_one),
    "mixtral-window": Tiny(
        "MixtralForCausalLM", MIXTRAL | {"sliding_window": 4, "num_experts_per_tok": 1}, stored=MIXTRALS,
        change=one_by_one,
    ),
    "qwen2-moe": Tiny("Qwen2MoeForCausalLM", QWEN2_MOE, stored=EXPERTS, change=one_by_one),
    "qwen2-moe-normalized": Tiny(
        "Qwen2MoeForCausalLM",
        QWEN2_MOE | {"norm_topk_prob": True, "qkv_bias": False, "use_sliding_window": True, "sliding_window": 4},
        stored=EXPERTS, change=one_by_one,
    ),
}  # fmt: skip

ONE_HEAD_EACH = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
GPTJ = {
    "vocab_size": VOCABULARY, "n_positions": 37, "n_embd": 24, "n_layer": 2, "n_head": 3, "rotary_dim": 4,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
BIGCODE = GPTJ | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
BIGCODE.pop("rotary_dim")
NEO = {
    "vocab_size": VOCABULARY, "max_position_embeddings": 37, "hidden_size": 24, "num_layers": 3, "num_heads": 4,
    "attention_types": [[["global", "local"], 1], [["global"], 1]], "window_size": 4, "bos_token_id": 0,
    "eos_token_id": 0,
}  # fmt: skip
OPT = {
    "vocab_size": VOCABULARY, "max_position_embeddings": 37, "hidden_size": 24, "num_hidden_layers": 2, "ffn_dim": 31,
    "num_attention_heads": 4, "dropout": 0.0, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
BLOOM = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}


def as_embed_out(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Files call GPT-NeoX's head so."""
    return {name.replace("lm_head.", "embed_out."): weight for name, weight in weights.items()}


def exact_gelu(model: Any) -> None:
    """Bloom's constants have eight digits."""
    for block in model.transformer.h:
        block.mlp.gelu_impl = nn.GELU(approximate="tanh")


def _neox(**settings: Any) -> Tiny:
    return Tiny("GPTNeoXForCausalLM", ONE_HEAD_EACH | {"hidden_size": 32} | settings, stored=as_embed_out)


def _falcon(**settings: Any) -> Tiny:
    return Tiny("FalconForCausalLM", {k: v for k, v in ONE_HEAD_EACH.items() if k != "intermediate_size"} | settings)


TINY |= {
    "starcoder2": _small("Starcoder2ForCausalLM"),
    "starcoder2-plain": _small(
        "Starcoder2ForCausalLM", use_bias=False, sliding_window=5, tie_word_embeddings=False, hidden_act="gelu",
        norm_epsilon=1e-3, num_key_value_heads=4,
    ),
    "stablelm": _small("StableLmForCausalLM", hidden_size=32),
    "stablelm-parallel": _small(
        "StableLmForCausalLM", use_parallel_residual=True, use_qkv_bias=True, qk_layernorm=True, hidden_size=32,
        rope_parameters=LINEAR | {"partial_rotary_factor": 0.5}, tie_word_embeddings=True,
    ),
    "gemma2": _small(
        "Gemma2ForCausalLM", head_dim=8, sliding_window=4, query_pre_attn_scalar=5, final_logit_softcapping=3.0,
        attn_logit_softcapping=2.0,
    ),
    "gemma2-unbounded": _small(
        "Gemma2ForCausalLM", head_dim=6, final_logit_softcapping=None, attn_logit_softcapping=None,
        attention_bias=True, tie_word_embeddings=False, layer_types=["full_attention"] * 2, hidden_activation="gelu",
    ),
    "gemma3": _small("Gemma3ForCausalLM", head_dim=8, sliding_window=4, num_hidden_layers=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "gemma3-linear": _small("Gemma3ForCausalLM", head_dim=6, sliding_window=5, num_hidden_layers=7,
        query_pre_attn_scalar=7, final_logit_softcapping=2.0, attention_bias=True,
        rope_parameters={"full_attention": LINEAR, "sliding_attention": {"rope_type": "default", "rope_theta": 77.0}}),
    "cohere": _small("CohereForCausalLM"),
    "cohere-normed": _small(
        "CohereForCausalLM", use_qk_norm=True, attention_bias=True, logit_scale=0.7, tie_word_embeddings=False,
        layer_norm_eps=1e-3, rope_parameters=LINEAR,
    ),
    "gpt-neox": _neox(),
    "gpt-neox-in-turn": _neox(
        use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True, hidden_act="gelu_new",
        rope_parameters={"rope_type": "default", "rope_theta": 333.0, "partial_rotary_factor": 1.0},
    ),
    "phi": _small("PhiForCausalLM", hidden_size=32),
    "phi-normed": _small(
        "PhiForCausalLM", qk_layernorm=True, num_key_value_heads=4, tie_word_embeddings=True, hidden_size=32,
        rope_parameters=LINEAR | {"partial_rotary_factor": 0.25},
    ),
    "gptj": Tiny("GPTJForCausalLM", GPTJ),
    "gptj-whole": Tiny(
        "GPTJForCausalLM", GPTJ | {"rotary_dim": 8, "tie_word_embeddings": True, "n_inner": 29,
                                   "activation_function": "gelu"},
    ),
    "falcon": _falcon(),
    "falcon-each-key": _falcon(multi_query=False, bias=True, parallel_attn=False, tie_word_embeddings=False),
    "falcon-alibi": _falcon(alibi=True, multi_query=False, num_attention_heads=6),
    "falcon-new": _falcon(new_decoder_architecture=True, num_kv_heads=2, ffn_hidden_size=31),
    "falcon-new-one-norm": _falcon(
        new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, alibi=True, bias=True
    ),
    "gpt-neo": Tiny("GPTNeoForCausalLM", NEO),
    "gpt-neo-untied": Tiny(
        "GPTNeoForCausalLM", NEO | {"tie_word_embeddings": False, "intermediate_size": 29, "layer_norm_epsilon": 1e-3}
    ),
    "gpt-bigcode": Tiny("GPTBigCodeForCausalLM", BIGCODE),
    "gpt-bigcode-each-key": Tiny(
        "GPTBigCodeForCausalLM",
        BIGCODE | {"multi_query": False, "n_inner": 29, "tie_word_embeddings": False, "scale_attn_weights": False},
    ),
    "opt": Tiny("OPTForCausalLM", OPT),
    "opt-narrow": Tiny("OPTForCausalLM", OPT | {"word_embed_proj_dim": 10, "do_layer_norm_before": False}),
    "opt-plain": Tiny(
        "OPTForCausalLM", OPT | {"enable_bias": False, "tie_word_embeddings": False, "activation_function": "gelu"}
    ),
    "bloom": Tiny("BloomForCausalLM", BLOOM, change=exact_gelu),
    "bloom-untied": Tiny(
        "BloomForCausalLM", BLOOM | {"tie_word_embeddings": False, "n_head": 6, "layer_norm_epsilon": 1e-3},
        change=exact_gelu,
    ),
}  # fmt: skip

MAMBA = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 2, "state_size": 5, "bos_token_id": 0,
    "eos_token_id": 0, "pad_token_id": 1,
}  # fmt: skip
TINY |= {
    "mamba": Tiny("MambaForCausalLM", MAMBA),
    "mamba-odd": Tiny(
        "MambaForCausalLM",
        MAMBA | {"expand": 3, "conv_kernel": 2, "time_step_rank": 3, "use_bias": True, "use_conv_bias": False,
                 "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
    ),
}  # fmt: skip

ENCODER = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3,
    "intermediate_size": 37, "max_position_embeddings": 20, "hidden_dropout_prob": 0.0, "num_labels": 2,
    "attention_probs_dropout_prob": 0.0, "pad_token_id": 1,
}  # fmt: skip
ALBERT = ENCODER | {"embedding_size": 10, "classifier_dropout_prob": 0.0}
# Without the bare models, whose names lack their beginning: `test_encoders.py` has those.
ENCODERS: dict[str, dict[str, Any]] = {
    "Bert": ENCODER,
    "Bert-relu-untied": ENCODER
    | {"hidden_act": "relu", "type_vocab_size": 3, "layer_norm_eps": 1e-3, "tie_word_embeddings": False},
    "Roberta": ENCODER | {"type_vocab_size": 1, "num_labels": 3},
    "Roberta-relu": ENCODER | {"hidden_act": "relu", "pad_token_id": 2, "num_hidden_layers": 1},
    "Albert": ALBERT,
    "Albert-groups": ALBERT
    | {"embedding_size": 7, "num_hidden_groups": 2, "inner_group_num": 2, "num_hidden_layers": 4},
    "Albert-untied": ALBERT | {"embedding_size": 24, "hidden_act": "gelu", "tie_word_embeddings": False},
}
DISTILBERT = {
    "vocab_size": VOCABULARY, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 37, "max_position_embeddings": 20,
    "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0, "pad_token_id": 1,
}  # fmt: skip
SMALL = ENCODER | {"num_hidden_layers": 2}
ELECTRA = SMALL | {"embedding_size": 10, "summary_last_dropout": 0.0}
ENCODERS |= {
    "XLMRoberta": SMALL | {"type_vocab_size": 1},
    "Camembert": SMALL | {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "Electra": ELECTRA,
    "Electra-wide-relu": ELECTRA | {"embedding_size": 24, "hidden_act": "relu", "tie_word_embeddings": False},
    "DistilBert": DISTILBERT,
    "DistilBert-relu-untied": DISTILBERT | {"activation": "relu", "tie_word_embeddings": False},
    "MPNet": SMALL | {"num_labels": 3},
    # Texts of few blocks are seen whole; `test_big_bird.py` has longer ones.
    "BigBird": SMALL | {"classifier_dropout": 0.0},
    "BigBird-full-relu": SMALL | {"attention_type": "original_full", "hidden_act": "relu"},
}
MODERNBERT = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3,
    "intermediate_size": 37, "max_position_embeddings": 20, "local_attention": 6, "pad_token_id": 1, "eos_token_id": 2,
    "bos_token_id": 0, "cls_token_id": 0, "sep_token_id": 2,
}  # fmt: skip
ENCODERS |= {
    "ModernBert": MODERNBERT | {"tie_word_embeddings": True},
    "ModernBert-biases": MODERNBERT
    | {"attention_bias": True, "norm_bias": True, "classifier_bias": True, "classifier_pooling": "mean",
       "hidden_activation": "silu", "classifier_activation": "relu", "global_attn_every_n_layers": 2, "norm_eps": 1e-3,
       "tie_word_embeddings": False, "num_labels": 3, "global_rope_theta": 50.0, "local_rope_theta": 9.0},
}  # fmt: skip

DEBERTA = SMALL | {
    "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "cls_dropout": 0.0,
    "position_buckets": 6, "share_att_key": True, "norm_rel_ebd": "layer_norm", "type_vocab_size": 0,
}  # fmt: skip
ENCODERS |= {
    "DebertaV2": DEBERTA,
    "DebertaV2-own-maps": DEBERTA
    | {"share_att_key": False, "norm_rel_ebd": "none", "position_buckets": -1, "max_relative_positions": 5,
       "type_vocab_size": 2, "position_biased_input": True, "pooler_hidden_act": "tanh", "hidden_act": "gelu_new"},
    "DebertaV2-absolute": SMALL | {"position_biased_input": True, "type_vocab_size": 0, "layer_norm_eps": 1e-3},
}  # fmt: skip


def _turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """As theirs, but for a step through float32, which would hide what float64 shows."""
    half = modeling_modernbert.rotate_half
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + half(q) * sin, k * cos + half(k) * sin


modeling_modernbert.apply_rotary_pos_emb = _turned
# Theirs takes a root in float32, whatever the model's precision.
modeling_deberta_v2.scaled_size_sqrt = lambda x, terms: torch.sqrt(
    torch.tensor(x.shape[-1] * terms, dtype=torch.float64)
)
HEADS = (
    "ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
    "ForMultipleChoice", "ForNextSentencePrediction",
)  # fmt: skip
TINY |= {
    f"{name.lower()}-{head[3:]}": Tiny(
        f"{name.split('-')[0]}{head}",
        settings | ({"num_labels": 2} if head == "ForQuestionAnswering" else {}),
        "encoder",
    )
    for name, settings in ENCODERS.items()
    for head in HEADS
    if f"{name.split('-')[0]}{head}" in FOREIGN_ARCHITECTURES  # not every family has every head
}

TINY |= {
    name: Tiny(architecture, settings, kind, stored=tiny_pictures.as_in_files)
    for kind, rows in (("pictures", tiny_pictures.ROWS), ("sounds", tiny_pictures.SOUND_ROWS))
    for name, (architecture, settings) in rows.items()
}
TINY |= {
    name: Tiny(*row, "boxes", stored=tiny_pictures.boxes_as_in_files) for name, row in tiny_pictures.BOX_ROWS.items()
}
TINY |= {
    name: Tiny(*row, "object-masks", stored=tiny_pictures.masks_as_in_files)
    for name, row in tiny_pictures.MASK_ROWS.items()
}
TINY |= {name: Tiny(*row, "speech") for name, row in tiny_speech.ROWS.items()}
TINY |= {name: Tiny(*row, "steps") for name, row in tiny_steps.ROWS.items()}

each_tiny = pytest.mark.parametrize("tiny", TINY.values(), ids=TINY.keys())


def _first_quick() -> list[Any]:
    """All rows, and of each architecture the first without the mark `long`: the others are variants of it."""
    seen: set[str] = set()
    rows = []
    for name, row in TINY.items():
        rows.append(pytest.param(row, id=name, marks=[pytest.mark.long] if row.architecture in seen else []))
        seen.add(row.architecture)
    return rows


first_tiny = pytest.mark.parametrize("tiny", _first_quick())
