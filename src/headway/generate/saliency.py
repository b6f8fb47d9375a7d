"""Which earlier tokens a prediction hangs on, by its gradient: for models that have no attention to look at.

T length, S the same tokens as what is hung on, P a place more than T, E width of the embedding, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from headway.errors import InputError
from headway.generate.tracing import More
from headway.models.configs import family_of, token_tables
from headway.nn import tap
from headway.nn.attention import SelfAttention
from headway.nn.tap import Choice, Recorder


@contextmanager
def recorded(model: Any, ids_BT: Tensor, choice: Choice) -> Iterator[tuple[Recorder, Tensor, More]]:
    """One text read with the taps open: what was seen, the logits (T, V), and the saliency, where it is chosen by
    its name or the model has no attention."""
    if not token_tables(model):
        raise InputError(
            f"a model that counts ({family_of(model)}) has nothing inside to trace: its tables are all there is"
        )
    attends = any(isinstance(part, SelfAttention) for part in model.modules())
    more: More = {}
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), tap.record(model, choice) as recorder:
            logits_TV = model(ids_BT)[0][0]
        if (choice.tensors is not None or not attends) and choice.takes("saliency", None):
            more["saliency"] = saliency(model, ids_BT[0]), ("tokens", "tokens")
        yield recorder, logits_TV, more
    finally:
        model.train(training)


class _Hidden(nn.Module):
    """The last layer as a module's call, so that it can be called with another table."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids_BT: Tensor) -> Tensor:
        hidden_BTD: Tensor = self.model.read(ids_BT)[0]
        return hidden_BTD


def saliency(model: Any, ids_T: Tensor) -> Tensor:
    """‖∂ log p(x_{t+1} | x_≤t) / ∂e_s ⊙ e_s‖ for each place t and token s ≤ t (gradient × input: Denil et al. 2014);
    behind the last token it is the likeliest one's log p.

    Every place is given a row of the table to itself, so that a word which occurs twice has two gradients.
    """
    [(name, table)] = token_tables(model).items()
    # A recording of no module: recurrent layers then take their readable path, which has a gradient on every device.
    with torch.inference_mode(False), torch.enable_grad(), tap.record(nn.Module()):
        ids_T, length = ids_T.clone(), len(ids_T)
        blank_1E = table.weight.detach()[:1]  # the first row stands for what is not there yet
        rows_PE = torch.cat([blank_1E, table.weight.detach()[ids_T]]).requires_grad_()
        places_BT = torch.arange(1, length + 1, device=ids_T.device)[None]
        weights = {f"model.{name}.weight": rows_PE}
        hidden_BTD = functional_call(_Hidden(model), weights, (places_BT,), tie_weights=False)
        logp_TV = model.head(hidden_BTD)[0].log_softmax(-1)
        taken_T = torch.cat([ids_T[1:], logp_TV[-1].argmax()[None]])
        said_T = logp_TV.gather(1, taken_T[:, None])[:, 0]
        found_TS = torch.zeros(length, length, device=ids_T.device, dtype=rows_PE.dtype)
        for t in range(length):
            [slope_PE] = torch.autograd.grad(said_T[t], rows_PE, retain_graph=t + 1 < length)
            found_TS[t] = (slope_PE * rows_PE.detach())[1:].norm(dim=-1)
    return found_TS
