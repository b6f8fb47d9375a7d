"""Models as modules that ONNX can hold: the encoder, the decoder from its first token, the decoder with its cache.

Names of inputs and outputs are those that programs around ONNX Runtime look for.

B batch, S source length, T new tokens, P past tokens, H heads, K head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headway.batch import TextInputs
from headway.errors import refuse
from headway.folder import Loaded
from headway.models.encoder_decoder import source_slots
from headway.nn.cache import GrowingCache
from headway.nn.slots import Clock, Memory
from headway.nn.state import State

MODEL, ENCODER = "model.onnx", "encoder_model.onnx"
DECODER, CACHED = "decoder_model.onnx", "decoder_with_past_model.onnx"


class Part(nn.Module):
    """Abstract. What one graph computes with a model."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model


class Encoder(Part):
    """(ids, mask) → the last layer."""

    def forward(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        return self.model.encode(TextInputs(ids_BS, mask_BS.sum(1))).x_BTD


class Decoder(Part):
    """(ids, the encoder's output, mask) → logits, and the keys and values of target and source."""

    def forward(self, ids_BT: Tensor, source_BSD: Tensor, mask_BS: Tensor) -> list[Tensor]:
        memories = [block.cross.remember(source_BSD) for block in self.model.decoder.layers]
        of_source = [part for memory in memories for part in (memory.k_BHSK, memory.v_BHSK)]
        return [*_decoded(self.model, ids_BT, source=source_slots(memories, mask_BS.sum(1))), *of_source]


class CachedDecoder(Part):
    """(ids, mask, the target's keys and values, the source's) → logits, and the target's keys and values."""

    def forward(
        self, ids_BT: Tensor, mask_BS: Tensor, past: Sequence[Tensor], of_source: Sequence[Tensor]
    ) -> list[Tensor]:
        memories = [Memory(*pair) for pair in zip(of_source[::2], of_source[1::2], strict=True)]
        return _decoded(self.model, ids_BT, past, source_slots(memories, mask_BS.sum(1)))


class LanguageModel(Part):
    """(ids, and keys and values of earlier tokens if there are any) → logits, and keys and values."""

    def forward(self, ids_BT: Tensor, past: Sequence[Tensor] = ()) -> list[Tensor]:
        return _decoded(self.model, ids_BT, past)


def _decoded(model: Any, ids_BT: Tensor, past: Sequence[Tensor] = (), source: Any = None) -> list[Tensor]:
    """Logits, and the keys and values of all tokens so far. `source`: the slots of what the encoder gave."""
    caches = [GrowingCache() for _ in model.decoder.layers]
    for cache, k_BHPK, v_BHPK in zip(caches, past[::2], past[1::2], strict=False):  # there may be no past
        cache.append(k_BHPK, v_BHPK)
    read = past[0].shape[2] if past else 0
    clock = Clock(torch.full((ids_BT.shape[0],), read, device=ids_BT.device), read)
    logits_BTV, _ = model.logits(ids_BT, State({"caches": caches} | (source or {}), clock))
    return [logits_BTV, *(part for cache in caches for part in cache.kv_RHSK)]


def _names(kind: str, model: Any, side: str = "") -> list[str]:
    return [f"{kind}.{n}.{side}{part}" for n in range(len(model.decoder.layers)) for part in ("key", "value")]


Graph = tuple[nn.Module, tuple[Any, ...], list[str], list[str]]  # module, example, names of inputs and of outputs
PRESENT, PAST = "present", "past_key_values"


def encoder_decoder(loaded: Loaded) -> dict[str, Graph]:
    model: Any = loaded.model
    ids_BS, ids_BT = torch.full((2, 5), 3), torch.full((2, 4), 3)
    mask_BS = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    with torch.no_grad():
        source_BSD = model.encode(TextInputs(ids_BS, mask_BS.sum(1))).x_BTD
        _, *rest = Decoder(model)(ids_BT, source_BSD, mask_BS)
    past, of_source = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    presents, pasts = (_names(kind, model, "decoder.") for kind in (PRESENT, PAST))
    source_presents, source_pasts = (_names(kind, model, "encoder.") for kind in (PRESENT, PAST))
    return {
        ENCODER: (Encoder(model), (ids_BS, mask_BS), ["input_ids", "attention_mask"], ["last_hidden_state"]),
        DECODER: (
            Decoder(model), (ids_BT, source_BSD, mask_BS),
            ["input_ids", "encoder_hidden_states", "encoder_attention_mask"], ["logits", *presents, *source_presents],
        ),
        CACHED: (
            CachedDecoder(model), (ids_BT[:, :1], mask_BS, past, of_source),
            ["input_ids", "encoder_attention_mask", *pasts, *source_pasts], ["logits", *presents],
        ),
    }  # fmt: skip


def decoder_only(loaded: Loaded) -> dict[str, Graph]:
    model: Any = loaded.model
    refuse(model.context is None, "an ONNX graph keeps all keys and values: it has no model.pattern=sinks")
    ids_BT = torch.full((2, 4), 3)
    with torch.no_grad():
        _, *past = LanguageModel(model)(ids_BT)
    presents, pasts = _names(PRESENT, model), _names(PAST, model)
    return {
        DECODER: (LanguageModel(model), (ids_BT,), ["input_ids"], ["logits", *presents]),
        CACHED: (LanguageModel(model), (ids_BT[:, :1], past), ["input_ids", *pasts], ["logits", *presents]),
    }
