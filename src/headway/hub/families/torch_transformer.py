"""`torch.nn.Transformer` between embeddings and an output projection, in the words of its arguments →
`headway.models.transformer`. No config lies beside such weights: `headway.hub.torch_file` says what it would hold."""

from __future__ import annotations

from headway.hub.config_keys import choice, flag, number, size
from headway.hub.families.foreign import ACTIVATIONS, Foreign
from headway.hub.names import Table, below
from headway.models import parts
from headway.models.transformer import TransformerConfig

NORMS = {"encoder": ("attention", "feed_forward"), "decoder": ("attention", "cross", "feed_forward")}
PLACEMENTS: dict[str, parts.Norm] = {
    "post": parts.PostNorm(),
    "post-final": parts.PostNormAndFinal(),
    "pre": parts.PreNorm(),
}
POSITIONS: dict[str, parts.Position] = {
    "pairs": parts.Sinusoidal(),
    "halves": parts.Sinusoidal(order="halves"),
    "learned": parts.Learned(),
}
FIELDS = {
    "encoder_layers": size("num_encoder_layers"),
    "decoder_layers": size("num_decoder_layers"),
    "width": size("d_model"),
    "inner": size("dim_feedforward"),
    "heads": size("nhead"),
    "dropout": number("dropout", 0.1),
    "norm": choice("norm", "post-final", PLACEMENTS),
    "norm.epsilon": number("layer_norm_eps", 1e-5),
    "feed_forward": choice("activation", "relu", {name: ACTIVATIONS[name] for name in ("relu", "gelu")}),
    "position": choice("position", "pairs", POSITIONS),
    "embeddings": choice("embeddings", "separate", {name: name for name in ("shared", "tied", "joint", "separate")}),
    "max_length": size("max_length"),
    "scaled": flag("scale_embedding", True),
    "output_bias": flag("output_bias", True),
}


def names(config: TransformerConfig, head: None) -> Table:
    slot = "before" if isinstance(config.norm, parts.PreNorm) else "outside"
    found = {"head": "head", "head.rest_VC": "head.bias₀"}
    for side, ours in (("encoder", "source"), ("decoder", "target")):
        found |= {
            f"embed_{ours}.table": ours,
            f"embed_{ours}.position.table": f"{ours}.position",
            f"{side}.final": f"{side}.norm",
        }
        layer = {
            "attention.qkv": "self_attn.in_proj",
            "attention.output": "self_attn.out_proj",
            "cross.query": "multihead_attn.query",
            "cross.key_value": "multihead_attn.key_value",
            "cross.output": "multihead_attn.out_proj",
            "feed_forward.expand": "linear1",
            "feed_forward.contract": "linear2",
        }
        layer |= {f"around_{name}.{slot}": f"norm{number}" for number, name in enumerate(NORMS[side], 1)}
        found |= below(f"{side}.layers.*.", f"{side}.layers.*.", layer)
    return Table(found, doubt="headway opens torch.nn.Transformer between embeddings and one output projection")


TORCH = Foreign(
    "torch.nn.Transformer", (), TransformerConfig(), FIELDS, names, seq2seq=True, ignored=("decoder_vocab_size",)
)
