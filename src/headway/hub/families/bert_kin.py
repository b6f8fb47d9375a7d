"""ELECTRA (Clark et al. 2020), DistilBERT (Sanh et al. 2019) and MPNet (Song et al. 2020) in the Hugging Face format ↔
`headway.models.bert`."""

from __future__ import annotations

from dataclasses import replace

from headway.hub.config_keys import Field, Keys, choice, number, size
from headway.hub.families.bert import (
    ANGLE,
    FIELDS,
    FIRST,
    IDS,
    IGNORED,
    LABELS,
    LAYER,
    OWN_LABELS,
    ROBERTA_FIELDS,
    ROBERTA_ROWS,
    SPANS,
    SQUARE,
    TAGS,
    names_below,
    pooled,
)  # fmt: skip
from headway.hub.families.encoder import MUST, Kin, Row, activation_of, choice_of, classes, foreign, tags, words
from headway.hub.families.foreign import ACTIVATIONS, Usual
from headway.models import parts
from headway.models.bert import BertConfig
from headway.models.head import Map
from headway.models.heads import Classes, MultipleChoice, Vectors, Words
from headway.models.token_heads import Replaced, Tags


def _narrow(keys: Keys) -> int:
    """ELECTRA's embedding is widened only where it is narrower."""
    narrow, width = keys.size("embedding_size", 128), keys.size("hidden_size", 256)
    return 0 if narrow == width else narrow


ELECTRA_FIELDS = FIELDS | {
    "narrow": Field(_narrow, lambda narrow, config: {"embedding_size": narrow or config.width}),
}
ELECTRA_DEFAULTS = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4}
DISTILBERT_FIELDS = {
    "layers": size("n_layers", 6),
    "width": size("dim", 768),
    "inner": size("hidden_dim", 3072),
    "heads": size("n_heads", 12),
    "max_length": size("max_position_embeddings", 512),
    "dropout": number("dropout", 0.1),
    "attention_dropout": number("attention_dropout", 0.1),
    "feed_forward": choice("activation", "gelu", ACTIVATIONS),
}
DISTILBERT_LAYER = {
    "around_attention.outside": "sa_layer_norm",
    "around_feed_forward.outside": "output_layer_norm",
    "attention.qkv": "attention.{q,k,v}_lin",
    "attention.output": "attention.out_lin",
    "feed_forward.expand": "ffn.lin1",
    "feed_forward.contract": "ffn.lin2",
}
MPNET_LAYER = LAYER | {
    "around_attention.outside": "attention.LayerNorm",
    "attention.qkv": "attention.attn.{q,k,v}",
    "attention.output": "attention.attn.o",
}


MPNET_KIN = Kin(
    "mpnet", "MPNet", "mpnet.",
    names_below("mpnet", "encoder.layer", MPNET_LAYER, {"encoder.distance.table": "encoder.relative_attention_bias"}),
    pooled("mpnet.pooler.dense", "") | {
        "ForMaskedLM": ROBERTA_ROWS["ForMaskedLM"],
        "ForSequenceClassification": replace(ROBERTA_ROWS["ForSequenceClassification"], dropout=""),
    },
    (IDS, r"^mpnet\.pooler\.dense\."),
)  # fmt: skip
ELECTRA_KIN = Kin(
    "electra", "Electra", "electra.",
    names_below("electra", "encoder.layer", LAYER, {"encoder.embed.widen": "embeddings_project"}),
    {
        "Model": Row(Vectors, lambda keys, config: Vectors()),
        "ForMaskedLM": Row(
            Words, words(activation="gelu"),
            {"head.map": "generator_predictions.dense", "head.norm": "generator_predictions.LayerNorm",
             "head.output": "generator_lm_head", "head.bias_V": "generator_lm_head.bias"},
        ),
        "ForPreTraining": Row(
            Replaced, lambda keys, config: Replaced(map=Map(activation_of(config))),
            {"head.layer.map": "discriminator_predictions.dense",
             "head.labels": "discriminator_predictions.dense_prediction"},
        ),
        "ForSequenceClassification": Row(Classes, classes(True, Map("gelu")), OWN_LABELS, "classifier_dropout"),
        "ForTokenClassification": TAGS,
        "ForQuestionAnswering": SPANS,
        "ForMultipleChoice": Row(
            MultipleChoice, choice_of(Map("gelu")),
            {FIRST: "sequence_summary.summary", "head.score": "classifier"}, "summary_last_dropout",
        ),
    },
    (IDS,),
)  # fmt: skip
DISTILBERT_FIRST = {FIRST: "pre_classifier"}
DISTILBERT_KIN = Kin(
    "distilbert", "DistilBert", "distilbert.", names_below("distilbert", "transformer.layer", DISTILBERT_LAYER),
    {
        "Model": Row(Vectors, lambda keys, config: Vectors()),
        "ForMaskedLM": Row(
            Words, words(),
            {"head.map": "vocab_transform", "head.norm": "vocab_layer_norm", "head.output": "vocab_projector",
             "head.bias_V": "vocab_projector.bias"},
        ),
        "ForSequenceClassification": Row(
            Classes, classes(hidden=Map("relu")), DISTILBERT_FIRST | LABELS, "seq_classif_dropout"
        ),
        "ForTokenClassification": Row(Tags, tags, LABELS),
        "ForQuestionAnswering": replace(SPANS, dropout="qa_dropout"),
        "ForMultipleChoice": Row(
            MultipleChoice, choice_of(Map("relu")), DISTILBERT_FIRST | {"head.score": "classifier"},
            "seq_classif_dropout",
        ),
    },
    (IDS,),
)  # fmt: skip


ELECTRA = foreign(
    ELECTRA_KIN, BertConfig(), ELECTRA_FIELDS, Usual(SQUARE), ELECTRA_DEFAULTS,
    must=MUST | {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
    ignored=(*IGNORED, "summary_last_dropout"),
)  # fmt: skip
DISTILBERT = foreign(
    DISTILBERT_KIN, BertConfig(types=0), DISTILBERT_FIELDS, Usual(SQUARE),
    {"seq_classif_dropout": 0.2, "qa_dropout": 0.1},
    # Sinusoids are where its table of positions began.
    ignored=(*IGNORED, "sinusoidal_pos_embds", "seq_classif_dropout", "qa_dropout", "tie_weights_"),
)  # fmt: skip
MPNET = foreign(
    MPNET_KIN, BertConfig(types=0, distance=parts.RelativeBias()),
    {path: one for path, one in ROBERTA_FIELDS.items() if path != "types"},
    Usual(ANGLE | {"unknown": "[UNK]"}, enclosed=True), must=MUST | {"relative_attention_num_buckets": 32},
    ignored=IGNORED,
)  # fmt: skip
