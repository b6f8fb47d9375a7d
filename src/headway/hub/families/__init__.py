"""Foreign families: one file each. `FOREIGN` is the one place where a model_type becomes what headway knows of it."""

from __future__ import annotations

from typing import Any

from headway.errors import InputError, nearest
from headway.hub.families.ast import AST
from headway.hub.families.bart import BART, M2M_100, MBART
from headway.hub.families.bert import ALBERT, BERT, CAMEMBERT, ROBERTA, XLM_ROBERTA
from headway.hub.families.bert_kin import DISTILBERT, ELECTRA, MPNET
from headway.hub.families.big_bird import BIG_BIRD
from headway.hub.families.deberta import DEBERTA
from headway.hub.families.decision import DECISION
from headway.hub.families.decoders import GRANITE, MIXTRAL, OLMO2, PHI3, QWEN2_MOE, QWEN3, SMOLLM3
from headway.hub.families.detr import DETR
from headway.hub.families.falcon import FALCON
from headway.hub.families.foreign import Foreign
from headway.hub.families.gemma import GEMMA2, GEMMA3
from headway.hub.families.gpt2 import GPT2
from headway.hub.families.gpts import BLOOM, GPT_BIGCODE, GPT_NEO, OPT
from headway.hub.families.layer_norm_decoders import COHERE, GPT_NEOX, GPTJ, PHI, STABLELM, STARCODER2
from headway.hub.families.llama import GEMMA, LLAMA, MISTRAL, QWEN2
from headway.hub.families.mamba import MAMBA
from headway.hub.families.marian import MARIAN, PEGASUS
from headway.hub.families.modernbert import MODERNBERT
from headway.hub.families.t5 import MT5, MT5_ENCODER, T5, T5_ENCODER, UMT5, UMT5_ENCODER
from headway.hub.families.torch_transformer import TORCH
from headway.hub.families.vit import DEIT, VIT
from headway.hub.families.whisper import WHISPER

EVERY = (
    GPT2, LLAMA, MISTRAL, QWEN2, GEMMA, BERT, ROBERTA, ALBERT, MARIAN, PEGASUS, T5, QWEN3, OLMO2, PHI3, GRANITE,
    SMOLLM3, MIXTRAL, QWEN2_MOE, STARCODER2, STABLELM, GEMMA2, GEMMA3, COHERE, GPT_NEOX, PHI, GPTJ, FALCON, GPT_NEO,
    GPT_BIGCODE, OPT, BLOOM, MAMBA, XLM_ROBERTA, CAMEMBERT, ELECTRA, DISTILBERT, MPNET, MODERNBERT, DEBERTA, MT5,
    UMT5, BART, MBART, M2M_100, VIT, DEIT, DETR, AST, WHISPER, DECISION, BIG_BIRD,
)  # fmt: skip
FOREIGN: dict[str, Foreign] = {foreign.model_type: foreign for foreign in EVERY}

# Of a model_type whose encoder alone is a model too.
ENCODERS = {foreign.model_type: foreign for foreign in (T5_ENCODER, MT5_ENCODER, UMT5_ENCODER)}


# Read, and never written: no config.json names it.
UNNAMED = {TORCH.model_type: TORCH}


def foreign_of(facts: dict[str, Any], where: str) -> Foreign:
    """What headway knows of the model that this config.json describes."""
    kind = str(facts.get("model_type"))
    if kind in UNNAMED:
        return UNNAMED[kind]
    if kind not in FOREIGN:
        # Only another spelling: a similar name, as of qwen2 and qwen3, is of another model.
        same = [name for name in FOREIGN if _letters(name) == _letters(kind)]
        raise InputError(f"{where}: headway has no model_type '{kind}'{nearest(same[0] if same else '', FOREIGN)}")
    foreign = FOREIGN[kind]
    asked = facts.get("architectures") or [foreign.architectures[0]]
    if not isinstance(asked, list) or not all(isinstance(name, str) for name in asked):
        raise InputError(f"{where}: architectures is {str(asked)[:80]}, expected a list of names")
    if kind in ENCODERS and any(name in ENCODERS[kind].architectures for name in asked):
        return ENCODERS[kind]
    if not any(name in foreign.architectures for name in asked):
        raise InputError(f"{where}: headway cannot run a {asked[0]}{nearest(asked[0], foreign.architectures)}")
    return foreign


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
