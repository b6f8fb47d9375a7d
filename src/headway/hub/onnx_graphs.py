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
from headway.models.encoder_decoder import decoder_state
from headway.nn.cache import GrowingCache
from headway.nn.slots import Clock, Memory
from headway.nn.state import State

ENCODER, DECODER, CACHED = "encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"


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
        caches = [GrowingCache() for _ in memories]
        state = decoder_state(caches, _clock(ids_BT, 0), memories, mask_BS.sum(1))
        logits_BTV, state = self.model.logits(ids_BT, state)
        of_source = [part for memory in memories for part in (memory.k_BHSK, memory.v_BHSK)]
        return [logits_BTV, *_contents(caches), *of_source]


class CachedDecoder(Part):
    """(ids, mask, the target's keys and values, the source's) → logits, and the target's keys and values."""

    def forward(
        self, ids_BT: Tensor, mask_BS: Tensor, past: Sequence[Tensor], of_source: Sequence[Tensor]
    ) -> list[Tensor]:
        memories = [Memory(k_BHSK, v_BHSK) for k_BHSK, v_BHSK in _pairs(of_source)]
        caches = [_holding(*pair) for pair in _pairs(past)]
        state = decoder_state(caches, _clock(ids_BT, past[0].shape[2]), memories, mask_BS.sum(1))
        logits_BTV, state = self.model.logits(ids_BT, state)
        return [logits_BTV, *_contents(caches)]


class LanguageModel(Part):
    """A language model: (ids) → logits, and keys and values."""

    def forward(self, ids_BT: Tensor) -> list[Tensor]:
        caches = [GrowingCache() for _ in self.model.decoder.layers]
        logits_BTV, _ = self.model(ids_BT, State({"caches": caches}, _clock(ids_BT, 0)))
        return [logits_BTV, *_contents(caches)]


class CachedLanguageModel(Part):
    """The same with the keys and values of earlier tokens as inputs."""

    def forward(self, ids_BT: Tensor, past: Sequence[Tensor]) -> list[Tensor]:
        caches = [_holding(*pair) for pair in _pairs(past)]
        logits_BTV, _ = self.model(ids_BT, State({"caches": caches}, _clock(ids_BT, past[0].shape[2])))
        return [logits_BTV, *_contents(caches)]


def _clock(ids_BT: Tensor, read: int) -> Clock:
    return Clock(torch.full((ids_BT.shape[0],), read, device=ids_BT.device), read)


def _holding(k_BHPK: Tensor, v_BHPK: Tensor) -> GrowingCache:
    cache = GrowingCache()
    cache.append(k_BHPK, v_BHPK)
    return cache


def _pairs(tensors: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _contents(caches: Sequence[GrowingCache]) -> list[Tensor]:
    return [part for cache in caches for part in cache.kv_RHSK]


Graph = tuple[nn.Module, tuple[Any, ...], list[str], list[str]]  # module, example, names of inputs and of outputs


def encoder_decoder(model: Any) -> dict[str, Graph]:
    layers = range(len(model.decoder.layers))
    ids_BS, ids_BT = torch.full((2, 5), 3), torch.full((2, 4), 3)
    mask_BS = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    with torch.no_grad():
        source_BSD = model.encode(TextInputs(ids_BS, mask_BS.sum(1))).x_BTD
        _, *rest = Decoder(model)(ids_BT, source_BSD, mask_BS)
    past, of_source = rest[: 2 * len(layers)], rest[2 * len(layers) :]
    mine, theirs = (
        [f"{n}.{side}.{part}" for n in layers for part in ("key", "value")] for side in ("decoder", "encoder")
    )
    presents, source_names = [f"present.{name}" for name in mine], [f"present.{name}" for name in theirs]
    pasts, source_pasts = ([f"past_key_values.{name}" for name in names] for names in (mine, theirs))
    return {
        ENCODER: (Encoder(model), (ids_BS, mask_BS), ["input_ids", "attention_mask"], ["last_hidden_state"]),
        DECODER: (
            Decoder(model), (ids_BT, source_BSD, mask_BS),
            ["input_ids", "encoder_hidden_states", "encoder_attention_mask"], ["logits", *presents, *source_names],
        ),
        CACHED: (
            CachedDecoder(model), (ids_BT[:, :1], mask_BS, past, of_source),
            ["input_ids", "encoder_attention_mask", *pasts, *source_pasts], ["logits", *presents],
        ),
    }  # fmt: skip


def decoder_only(model: Any) -> dict[str, Graph]:
    layers = range(len(model.decoder.layers))
    ids_BT = torch.full((2, 4), 3)
    with torch.no_grad():
        _, *past = LanguageModel(model)(ids_BT)
    names = [f"{n}.{part}" for n in layers for part in ("key", "value")]
    presents, pasts = [f"present.{name}" for name in names], [f"past_key_values.{name}" for name in names]
    return {
        DECODER: (LanguageModel(model), (ids_BT,), ["input_ids"], ["logits", *presents]),
        CACHED: (CachedLanguageModel(model), (ids_BT[:, :1], past), ["input_ids", *pasts], ["logits", *presents]),
    }
