"""One training step of recurrent encoder-decoders, and their beam search: headway beside the same of torch.nn modules.

Every form of the decoder: without attention (plain), attention after the cell, before it, and with input feeding. The
peer is written as one would with torch.nn at its fastest: nn.LSTM or nn.GRU (cuDNN on a GPU) for all that needs no
attention of the step before, nn.LSTMCell or nn.GRUCell in a loop where it does, keys computed once, the same dropout,
label smoothing, clipping and Adam. One process, repeats interleaved, medians, float32; on a GPU products in
TensorFloat-32. There headway's step is also captured as a CUDA graph, as `headway train` does it.

    PYTHONPATH=src python benchmarks/rnn_seq2seq.py --device cuda
"""

from __future__ import annotations

from measure import arguments, interleaved, median, write

# isort: split
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training_steps import headway_step, speed_rows

from headway.generate.offline import search_all
from headway.generate.search import Search
from headway.generate.stepper import stepper_for
from headway.models.recurrent import Gru, Lstm
from headway.models.rnn_seq2seq import Additive, NoAttention, RnnSeq2Seq, RnnSeq2SeqConfig
from headway.text.tokenizer import END

VOCABULARY, CLIP, SMOOTHING, BEAM = 10_000, 1.0, 0.1, 5
SHAPES = {"cpu": (16, 12, 128), "cuda": (256, 16, 512)}  # rows, length of both sides, width
FORMS = {"plain": "after", "after": "after", "before": "before", "feeding": "feeding"}
CELLS = {"lstm": (Lstm(), nn.LSTM, nn.LSTMCell), "gru": (Gru(), nn.GRU, nn.GRUCell)}


def config(kind: str, form: str, width: int) -> RnnSeq2SeqConfig:
    attention = NoAttention() if form == "plain" else Additive()
    return RnnSeq2SeqConfig(CELLS[kind][0], width=width, dropout=0.4, attention=attention, form=FORMS[form])  # type: ignore[arg-type]


class Peer(nn.Module):
    """The same model of torch.nn modules."""

    def __init__(self, kind: str, form: str, width: int) -> None:
        super().__init__()
        _, layer, cell = CELLS[kind]
        self.form, self.states = form, 2 if kind == "lstm" else 1
        self.table = nn.Embedding(VOCABULARY, width)
        self.encoder = layer(width, width // 2, batch_first=True, bidirectional=True)
        self.first = nn.Linear(width // 2, self.states * width)
        stepped = form in ("before", "feeding")
        self.decoder = cell(2 * width, width) if stepped else layer(width, width, batch_first=True)
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.v, self.context = nn.Linear(width, 1, bias=False), nn.Linear(width, width, bias=False)
        self.combine, self.dropout = nn.Linear(width, width), nn.Dropout(0.4)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        h, _ = self.encoder(self.dropout(self.table(source)))
        half = h.shape[-1] // 2
        states = torch.tanh(self.first(h[:, 0, half:])).chunk(self.states, -1)
        y = self.dropout(self.table(target))
        hidden = (self._stepped if self.form in ("before", "feeding") else self._whole)(y, states, h)
        return F.linear(self.dropout(hidden), self.table.weight)

    def _whole(self, y: Tensor, states: tuple[Tensor, ...], h: Tensor) -> Tensor:
        first = tuple(part[None].contiguous() for part in states)
        d = self.decoder(y, first if self.states > 1 else first[0])[0]
        if self.form == "plain":
            return d
        d = self.dropout(d)
        return self._attended(self._context(d, h, self.key(h)), d)

    def _stepped(self, y: Tensor, states: tuple[Tensor, ...], h: Tensor) -> Tensor:
        keys, fed, found = self.key(h), torch.zeros_like(states[0]), []
        for t in range(y.shape[1]):
            if self.form == "before":
                fed = self._context(states[0][:, None], h, keys)[:, 0]
            new = self.decoder(torch.cat([y[:, t], fed], -1), states if self.states > 1 else states[0])
            states = new if self.states > 1 else (new,)
            d = self.dropout(states[0])
            if self.form == "feeding":
                fed = self._attended(self._context(d[:, None], h, keys)[:, 0], d)
            found.append(fed if self.form == "feeding" else torch.cat([fed, d], -1))
        whole = torch.stack(found, 1)
        return whole if self.form == "feeding" else self._attended(*whole.chunk(2, -1))

    def _context(self, d: Tensor, h: Tensor, keys: Tensor) -> Tensor:
        scores = self.v(torch.tanh(self.query(d)[:, :, None] + keys[:, None]))[..., 0]
        return scores.softmax(-1) @ h

    def _attended(self, context: Tensor, d: Tensor) -> Tensor:
        return torch.tanh(self.context(context) + self.combine(d))


def torch_nn(model: Peer, source: Tensor, target: Tensor, labels: Tensor) -> Callable[[], None]:
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, betas=(0.9, 0.98), fused=True)

    def step() -> None:
        logits = model(source, target)
        F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=SMOOTHING).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=True)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def training(kind: str, form: str, device: str, repeats: int) -> list[dict[str, Any]]:
    rows, length, width = SHAPES[device]
    source, target, labels = (torch.randint(4, VOCABULARY, (rows, length), device=device) for _ in range(3))
    works = {"torch.nn": torch_nn(Peer(kind, form, width).to(device), source, target, labels)}
    for name in ("headway", "headway graphs")[: 2 if device == "cuda" else 1]:
        model = RnnSeq2Seq(config(kind, form, width), VOCABULARY, VOCABULARY).to(device).train()
        works[name] = headway_step(model, (source, target, labels), name, 1e-3, CLIP)
    times = interleaved(works, device, 5 if device == "cuda" else 2, repeats)
    return speed_rows(times, "torch.nn", target.numel(), "tokens_per_second", cell=kind, form=form)


def beam(form: str, device: str, repeats: int) -> dict[str, Any]:
    """Random weights write to the longest that is allowed: as many steps as sources are long."""
    rows, length, width = SHAPES[device]
    place = torch.device(device)
    model = RnnSeq2Seq(config("lstm", form, width), VOCABULARY, VOCABULARY).to(place).eval()
    sources = [[*torch.randint(4, VOCABULARY, (length - 1,)).tolist(), END] for _ in range(rows)]
    search, stepper = Search(beam=BEAM, max_ratio=1.0, max_extra=0), stepper_for(model, place)
    lengths: list[int] = []

    def work() -> None:
        found = search_all(model, sources, search, limit=512, device=place, stepper=stepper, batch=rows)
        lengths[:] = [len(hypotheses[0].ids) for hypotheses in found]

    seconds = median(interleaved({"beam": work}, device, 1, repeats)["beam"])
    return {
        "form": form, "sentences_per_second": round(rows / seconds, 1),
        "target_tokens_per_second": round(sum(lengths) / seconds),
    }  # fmt: skip


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device, repeats = options.device, options.repeats or (30 if options.device == "cuda" else 5)
    rows = [row for kind in options.cells for form in FORMS for row in training(kind, form, device, repeats)]
    searched = [beam(form, device, max(1, repeats // 5)) for form in FORMS]
    count, length, width = SHAPES[device]
    case = {"rows": count, "length": length, "width": width, "vocabulary": VOCABULARY, "beam": BEAM}
    write(f"rnn-seq2seq-{device}", device, rows, options.out, case=case, beam_search=searched)


if __name__ == "__main__":
    main()
