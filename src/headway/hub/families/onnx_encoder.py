"""Encoders with their heads as one ONNX graph, `model.onnx`. Names of inputs and outputs are those of `transformers`.

B batch, C choices, T length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headway.batch import TextInputs
from headway.errors import InputError
from headway.folder import Loaded
from headway.hub.onnx_graphs import MODEL, Graph, Part
from headway.models import heads
from headway.models.configs import token_types
from headway.models.protocols import Encoded
from headway.nn.pooling import pool

Outputs = dict[str, Tensor]


def _vectors(answer: Any, encoded: Encoded, head: heads.Vectors) -> Outputs:
    first = {"pooler_output": answer[1]} if head.first else {}
    if head.pooling is None:
        return {"last_hidden_state": encoded.x_BTD} | first
    text_BD = pool(encoded.x_BTD, encoded.lengths_B, head.pooling, head.unit)
    return {"last_hidden_state": encoded.x_BTD} | first | {"sentence_embedding": text_BD}


def _logits(answer: Any, encoded: Encoded, head: Any) -> Outputs:
    return {"logits": answer}


# The outputs of each head, of its answer.
OUTPUTS: dict[Any, Callable[[Any, Encoded, Any], Outputs]] = {
    heads.Vectors: _vectors,
    heads.Words: _logits,
    heads.WordsAndPair: lambda answer, encoded, head: {
        "prediction_logits": answer[0],
        "seq_relationship_logits": answer[1],
    },
    heads.Classes: _logits,
    heads.NextSentence: _logits,
    heads.MultipleChoice: _logits,
    heads.Tags: _logits,
    heads.Replaced: lambda answer, encoded, head: {"logits": answer[..., 1]},
    heads.Spans: lambda answer, encoded, head: {"start_logits": answer[..., 0], "end_logits": answer[..., 1]},
}


class Whole(Part):
    """(ids, mask, types of tokens where the model has several) → what the head gives."""

    def __init__(self, model: Any, head: Any) -> None:
        super().__init__(model)
        self.config = head

    def answer(self, ids_BT: Tensor, mask_BT: Tensor, types_BT: Tensor | None = None) -> Outputs:
        encoded = self.model.encode(TextInputs(ids_BT, mask_BT.sum(1), types_BT))
        return OUTPUTS[type(self.config)](self.model.head(encoded), encoded, self.config)

    def forward(self, ids_BT: Tensor, mask_BT: Tensor, types_BT: Tensor | None = None) -> list[Tensor]:
        return list(self.answer(ids_BT, mask_BT, types_BT).values())


class Choices(Whole):
    """The same for texts of which one is chosen."""

    def forward(self, ids_BCT: Tensor, mask_BCT: Tensor, types_BCT: Tensor | None = None) -> list[Tensor]:
        types_NT = None if types_BCT is None else types_BCT.flatten(0, 1)
        (logits_N1,) = super().forward(ids_BCT.flatten(0, 1), mask_BCT.flatten(0, 1), types_NT)
        return [logits_N1.view(ids_BCT.shape[:2])]


def encoder(loaded: Loaded) -> dict[str, Graph]:
    model: Any = loaded.model
    head = loaded.card.head
    if type(head) not in OUTPUTS:
        held = ", ".join(kind.name for kind in OUTPUTS)
        raise InputError(f"headway writes encoders with the heads {held} as ONNX, not with head={head.name}")
    shape = (2, 3, 5) if isinstance(head, heads.MultipleChoice) else (2, 5)
    ids_BT, mask_BT, types_BT = torch.full(shape, 3), torch.ones(shape, dtype=torch.long), torch.zeros(shape).long()
    mask_BT[..., 1, 3:] = 0
    given = {"input_ids": ids_BT, "attention_mask": mask_BT}
    given |= {"token_type_ids": types_BT} if token_types(loaded.card.config) > 1 else {}
    graph = (Choices if len(shape) == 3 else Whole)(model, head)
    with torch.no_grad():
        flat = (each.view(-1, shape[-1]) for each in given.values())
        outputs = list(graph.answer(*flat))
    return {MODEL: (graph, tuple(given.values()), list(given), outputs)}
