"""Which earlier tokens a prediction hangs on, by its gradient: for models that have no attention to look at.

T length, S the same tokens as what is hung on, P a place more than T, E width of the embedding, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from headway.batch import TextInputs
from headway.errors import InputError
from headway.generate.tracing import More
from headway.models.configs import family_of, token_tables
from headway.nn import tap
from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.tap import Choice, Recorder


@contextmanager
def recorded(model: Any, ids_BT: Tensor, choice: Choice) -> Iterator[tuple[Recorder, Tensor, More]]:
    """One text read with the taps open: what was seen, the logits (T, V), and the saliency, where it is chosen by
    its name or the model has no attention."""
    if not token_tables(model):
        raise InputError(
            f"a model that counts ({family_of(model)}) has nothing inside to trace: its tables are all there is"
        )
    more: More = {}
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), tap.record(model, choice) as recorder:
            logits_TV = model(ids_BT)[0][0]
        if wants_saliency(model, choice):
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
        return _slopes(said_T, rows_PE)[:, 1:]


class _Start(nn.Module):
    """A source as a module's call: source and target may share a table, of which only the source's is another one."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, source_BS: Tensor) -> Any:
        return self.model.start(TextInputs(source_BS), 1, source_BS.device)


def source_saliency(model: Any, source: Sequence[int], read: Sequence[int], taken: Sequence[int]) -> Tensor:
    """‖∂ log p(y_t | y_<t, x) / ∂e_s ⊙ e_s‖ for each token y_t that was written (`taken`, behind those `read`) and
    each token s of the source."""
    with torch.inference_mode(False), torch.enable_grad(), tap.record(nn.Module()):
        table_VE = model.embed_source.table.weight.detach()
        rows_SE = table_VE[list(source)].requires_grad_()
        places_BS = torch.arange(len(source), device=table_VE.device)[None]
        read_BT, taken_T1 = (torch.tensor(ids, device=table_VE.device) for ids in ([list(read)], [[i] for i in taken]))
        weights = {"model.embed_source.table.weight": rows_SE}
        state = functional_call(_Start(model), weights, (places_BS,), tie_weights=False)
        hidden_BTD, state = model.read(read_BT, state)
        said_T = model.head(hidden_BTD, state)[0].log_softmax(-1).gather(1, taken_T1)[:, 0]
        return _slopes(said_T, rows_SE)


def _slopes(said_T: Tensor, rows_SE: Tensor) -> Tensor:
    """‖∂ said_t / ∂e_s ⊙ e_s‖."""
    found_TS = []
    for t in range(len(said_T)):
        [slope_SE] = torch.autograd.grad(said_T[t], rows_SE, retain_graph=t + 1 < len(said_T))
        found_TS.append((slope_SE * rows_SE.detach()).norm(dim=-1))
    return torch.stack(found_TS)


def wants_saliency(model: Any, choice: Choice) -> bool:
    """Whether a trace has it: it is chosen by its name, or the model has no attention."""
    attends = any(isinstance(part, SelfAttention | CrossAttention) for part in model.modules())
    return (choice.tensors is not None or not attends) and choice.takes("saliency", None)
