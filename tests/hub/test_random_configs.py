"""Random configs of every family that is read: each is refused, or gives the logits that transformers gives.

Which keys there are is read from transformers' config classes, so that a key that headway does not know is drawn too.
`HEADWAY_CONFIGS=200 pytest …` draws more; `python tests/hub/test_random_configs.py 200 [family …]` counts what came.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import transformers
from tiny import EXPERTS, HEADS, KINDS, MIXTRALS, VOCABULARY, Tiny, as_embed_out, facts_of, one_by_one
from tiny_pictures import as_in_files
from transformers import PreTrainedConfig

from foreign_world import from_hf
from headway.errors import InputError
from headway.hub.families import FOREIGN, foreign_of
from headway.models import build

DRAWS = int(os.environ.get("HEADWAY_CONFIGS", "2"))
WITHIN = 1e-4  # of the largest logit
CHANGED = 0.15  # the share of keys that are not sizes and get another value
# What a whole number may be, by its key; the first pattern that fits.
NUMBERS: list[tuple[str, Sequence[int]]] = [
    (r"vocab_size$", [VOCABULARY]),
    (r"^type_vocab_size$", [1, 2, 3]),
    (r"_token_id$", [1]),
    (r"^(num_hidden_layers|num_layers|n_layers?|encoder_layers|decoder_layers|num_decoder_layers)$", [1, 2, 3]),
    (r"(attention_heads|num_heads|n_heads?)$", [2, 4]),
    (r"(key_value_heads|kv_heads)$", [1, 2, 4]),
    (r"^(hidden_size|n_embd|d_model|dim|embedding_size|word_embed_proj_dim)$", [16, 32]),
    (r"^(head_dim|d_kv|rotary_dim)$", [4, 8, 16]),
    (r"(intermediate_size|n_inner|ffn_dim|d_ff|ffn_hidden_size|hidden_dim)$", [20, 33]),
    (r"(position_embeddings|n_positions|seq_length)$", [24, 64]),
    (r"window", [0, 3, 6, 50]),
    (r"relative_attention", [6, 11, 16]),
    (r"^query_pre_attn_scalar$", [1, 5, 256]),
    (r"^num_(local_)?experts$", [2, 3, 4]),
    (r"^image_size$", [8, 12]),
    (r"^patch_size$", [4, 4, 2, 5]),
    (r"^num_channels$", [1, 3]),
    (r"^(num_mel_bins|max_length)$", [12, 20]),
    (r"^(time|frequency)_stride$", [3, 3, 2]),
    (r".", [0, 1, 2, 3]),
]
ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh", "quick_gelu")
PROJECTIONS = ("relu", "gelu", "silu", "gated-gelu", "gated-silu", "gated-relu", "gated-tanh")
# Of their own programs' or of what is returned, not of the model.
SKIPPED = {
    "transformers_version",
    "id2label",
    "label2id",
    "architectures",
    "dtype",
    "output_router_logits",
    "initializer_range",
}
GRIDS = [pattern for pattern, _ in NUMBERS if re.search("image|patch|channels|mel|stride", pattern)]
SIZES = re.compile("|".join(f"(?:{pattern})" for pattern in [*GRIDS, *(pattern for pattern, _ in NUMBERS[:10])]))
WORDS = {"norm_rel_ebd": ("none", "layer_norm"), "classifier_pooling": ("cls", "mean")}
MORE: dict[str, dict[str, Any]] = {
    "mixtral": {"stored": MIXTRALS, "change": one_by_one},
    "qwen2_moe": {"stored": EXPERTS, "change": one_by_one},
    "gpt_neox": {"stored": as_embed_out},
    "vit": {"stored": as_in_files},
    "deit": {"stored": as_in_files},
    "audio-spectrogram-transformer": {"stored": as_in_files},
}


def draw(kind: str, at: random.Random) -> dict[str, Any]:
    """Keys and values for a config of this model_type."""
    config = transformers.CONFIG_MAPPING[kind]
    usual, base = config().to_dict(), {field.name for field in dataclasses.fields(PreTrainedConfig)}
    found: dict[str, Any] = {"tie_word_embeddings": at.random() < 0.5}
    for field in dataclasses.fields(config):
        if field.name in base - found.keys() or field.name in SKIPPED:
            continue
        default = usual.get(field.name, field.default)
        if SIZES.search(field.name) and (isinstance(default, int) or at.random() < 0.5):
            found[field.name] = _number(field.name, at)
        elif field.name == "attention_types" or at.random() < CHANGED:  # the first must fit the number of layers
            found[field.name] = _other(field.name, default, str(field.type), at)
    return _fitting(found, at)


def _number(key: str, at: random.Random) -> int:
    return at.choice(next(values for pattern, values in NUMBERS if re.search(pattern, key)))


def _other(key: str, default: Any, kind: str, at: random.Random) -> Any:
    if isinstance(default, bool) or (default is None and "bool" in kind):
        return not default
    if isinstance(default, float) or (default is None and "float" in kind):
        if "eps" in key:
            return at.choice([1e-6, 1e-5, 1e-3, 0.1])
        return at.choice([None, 0.0, 0.5, 1.0, 2.0]) if "None" in kind else at.choice([0.0, 0.5, 1.0, 2.0])
    if isinstance(default, int) or (default is None and "int" in kind and "list" not in kind):
        return at.choice([None, _number(key, at)]) if "None" in kind else _number(key, at)
    if isinstance(default, str):
        choices = PROJECTIONS if "proj" in key else ACTIVATIONS
        return at.choice(WORDS.get(key, (default, *choices)))
    return ...  # lists and objects depend on the other keys: below


def _fitting(found: dict[str, Any], at: random.Random) -> dict[str, Any]:
    """Lists and objects for the drawn sizes, and no value where there is none to draw."""
    layers = found.get("num_hidden_layers", found.get("num_layers", 2))
    lists: dict[str, Callable[[], Any]] = {
        "layer_types": lambda: [at.choice(["full_attention", "sliding_attention"]) for _ in range(layers)],
        "no_rope_layers": lambda: [at.choice([0, 1]) for _ in range(layers)],
        "mlp_only_layers": lambda: at.choice([[], [0]]),
        "attention_types": lambda: [[[at.choice(["global", "local"])], 1] for _ in range(layers)],
        "rope_parameters": lambda: _rotary(at),
        "pos_att_type": lambda: at.choice([["p2c", "c2p"], ["c2p"], ["p2c"], [], "c2p|p2c"]),
    }
    for key in [key for key, value in found.items() if value is ...]:
        del found[key]
        if key in lists:
            found[key] = lists[key]()
    for key in [key for key in found if key.startswith("encoder_") and at.random() < 0.8]:
        other = key.replace("encoder_", "decoder_")  # where most families have one value for both
        found |= {other: found[key]} if other in found and "layers" not in key else {}
    return found


def _rotary(at: random.Random) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 3.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 9},
        {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ]  # fmt: skip
    one = at.choice(kinds) | {"rope_theta": at.choice([50.0, 1e4])}
    one |= {"partial_rotary_factor": at.choice([0.25, 0.5, 1.0])} if at.random() < 0.3 else {}
    return one if at.random() < 0.8 else {"full_attention": one, "sliding_attention": kinds[0] | {"rope_theta": 70.0}}


def outcome(kind: str, number: int) -> str:
    """What became of one draw: "equal", "refused", or "none of theirs" where transformers cannot run it."""
    at = random.Random(f"{kind} {number}")
    settings, foreign = draw(kind, at), FOREIGN[kind]
    headed = [name for name in foreign.architectures if name.endswith(HEADS)]
    form = "encoder" if headed else "encoder-decoder" if foreign.seq2seq else "decoder"
    if foreign.processors is not None:
        form, headed = (
            "sounds" if foreign.family == "ast" else "pictures",
            [name for name in foreign.architectures if "Classification" in name],
        )
    tiny = Tiny(at.choice(headed or foreign.architectures[:1]), settings, form, **MORE.get(kind, {}))
    ids_BT, lengths_B = (
        torch.randint(3, 60, (3, 13), generator=torch.Generator().manual_seed(5)),
        torch.tensor([13, 4, 9]),
    )
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            theirs = tiny.build()
            expected = KINDS[form].theirs(theirs, ids_BT, lengths_B)
    except Exception as error:  # transformers raises many kinds
        return f"none of theirs: {type(error).__name__}"
    # As it is saved, with every key, or as it was given.
    facts = facts_of(theirs)
    if at.random() < 0.5:
        facts = settings | {key: facts[key] for key in ("model_type", "architectures", "pad_token_id") if key in facts}
    try:
        found = opened(facts, theirs, tiny.stored, form, ids_BT, lengths_B)
    except (InputError, ValueError) as error:
        return f"refused: {error}"
    for row, length in enumerate(lengths_B.tolist()):
        off = (found[row, :length] - expected[row, :length]).abs().max()
        bound = WITHIN * expected[row, :length].abs().max().clamp(min=1e-3)
        assert off <= bound, f"{kind} {number}: opened, but the logits are off by {off:.2g}: {settings}"
    return "equal"


def opened(
    facts: dict[str, Any], theirs: Any, stored: Any, form: str, ids_BT: torch.Tensor, lengths_B: torch.Tensor
) -> torch.Tensor:
    """The logits of headway's model of this config.json with these weights. A ValueError says that it cannot be built,
    which reading a folder reports in one line."""
    foreign = foreign_of(facts, "config.json")
    (config, head), sizes = foreign.model_in(facts), foreign.vocabularies(facts)
    mine = build(foreign.family, config, sizes, head).eval()
    if foreign.settle is not None and foreign.seq2seq:
        config, head = foreign.settle(config, head, None, theirs.state_dict())  # type: ignore[arg-type]
        mine = build(foreign.family, config, sizes, head).eval()
    shapes = {name: tuple(weight.shape) for name, weight in mine.named_parameters()}
    mine.load_state_dict(
        from_hf(foreign.table(shapes, config, sizes, head), stored(theirs.state_dict()), shapes), strict=False
    )
    with torch.no_grad():
        return KINDS[form].ours(mine, ids_BT, lengths_B)


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_random_config_is_refused_or_gives_equal_logits(kind: str) -> None:
    for number in range(DRAWS):
        outcome(kind, number)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for kind in sys.argv[2:] or FOREIGN:
        counted: Counter[str] = Counter()
        for number in range(int(sys.argv[1])):
            try:
                what = outcome(kind, number)
            except AssertionError as error:
                what = f"WRONG {error}"
                print(what)
            except Exception as error:
                what = f"BROKEN {type(error).__name__}"
                print(what, kind, number, error)
            counted[what.partition(":")[0]] += 1
        print(kind, dict(counted), flush=True)
