"""BART (Lewis et al. 2020), mBART (Liu et al. 2020) and M2M-100 (Fan et al. 2021; NLLB too) in the Hugging Face format
↔ `headway.models.transformer`. In the last two a target begins with the token of its language."""

from __future__ import annotations

from dataclasses import replace

from headway.hub.config_keys import Field, Keys, NoCounterpart
from headway.hub.families.bert import ANGLE
from headway.hub.families.foreign import SHARED, Usual
from headway.hub.families.marian import FIELDS, MARIAN, TIED
from headway.models import parts
from headway.models.transformer import TransformerConfig

# BART's tables of positions have two rows more than positions, which stood for special tokens.
LEARNED = TransformerConfig(
    position=parts.Learned(first=2), norm=parts.PostNorm(), output_bias=True, embedding_norm=True
)  # fmt: skip
PLAIN = TIED | {
    SHARED: True,
    "static_position_embeddings": False,
    "add_bias_logits": False,
    "normalize_embedding": True,
}
SIZES = {
    "encoder_layers": 12, "decoder_layers": 12, "d_model": 1024, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096,
    "encoder_attention_heads": 16, "decoder_attention_heads": 16,
}  # fmt: skip
# Beside those of Marian: heads that headway does not have, and names of languages in a tokenizer.
IGNORED = (*MARIAN.ignored, "gradient_checkpointing", "max_source_positions", "max_target_positions")
BART = replace(
    MARIAN, model_type="bart", architectures=("BartForConditionalGeneration",), base=LEARNED, fields=FIELDS,
    constants=None, defaults=SIZES, ignored=IGNORED, usual=Usual(ANGLE, enclosed=True),
    must=PLAIN | {"normalize_before": False, "add_final_layer_norm": False},
)  # fmt: skip
MBART = replace(
    BART, model_type="mbart", architectures=("MBartForConditionalGeneration",), usual=Usual(ANGLE), languages=True,
    base=replace(LEARNED, norm=parts.PreNorm()),
    must=PLAIN | {"normalize_before": True, "add_final_layer_norm": True},
)  # fmt: skip


def _first(keys: Keys) -> int:
    """Positions are counted from behind the padding's."""
    return int(keys.take("pad_token_id", 1, int)) + 1


def _first_out(first: int, config: TransformerConfig) -> dict[str, int]:
    if first < 1:
        raise NoCounterpart
    return {"pad_token_id": first - 1}


M2M_100 = replace(
    MBART, model_type="m2m_100", architectures=("M2M100ForConditionalGeneration",),
    base=TransformerConfig(position=parts.Sinusoidal(order="fairseq", first=2), norm=parts.PreNorm()),
    fields=FIELDS | {"position.first": Field(_first, _first_out)},
    defaults=SIZES | {"activation_function": "relu", "attention_dropout": 0.1, "scale_embedding": True},
    must=PLAIN | {"normalize_before": True, "add_final_layer_norm": True, "static_position_embeddings": True,
                  "normalize_embedding": False},
)  # fmt: skip
