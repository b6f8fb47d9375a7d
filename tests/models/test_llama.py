"""Llama's parts by themselves (the numbers are held against `transformers` in tests/hub): states, windows, packing, and
the same text whichever way steps are taken."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.models.llama import Llama, LlamaConfig, OneRmsNorm
from headway.models.rotary_scaling import Llama3, Yarn
from headway.nn.mask import And, Causal, Scene, Segments, Window

CONFIG = LlamaConfig(3, 24, 36, 6, 2, max_length=64)
CONFIGS = {
    "plain": CONFIG,
    "windows": replace(CONFIG, window=5, bias="qkv"),
    "upper-windows": replace(CONFIG, window=4, windowed_from=1, head_width=6),
    "scaled": replace(CONFIG, norm=OneRmsNorm(), scaled=True, tied=True, scaling=Llama3(8.0, length=16)),
    "stretched": replace(CONFIG, scaling=Yarn(4.0, 16), bias="all"),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def build(config: LlamaConfig, device: str = "cpu") -> Llama:
    torch.manual_seed(1)
    model = Llama(config, 60).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model.to(device)


@each_config
def test_cached_equals_uncached(config: LlamaConfig) -> None:
    model = build(config)
    ids = torch.randint(0, 60, (2, 14))
    whole, _ = model(ids)
    for room in (None, 20):
        state = model.start(None, 2, ids.device, room)
        with torch.no_grad():
            found = [model(ids[:, :6], state)[0], *(model(ids[:, t : t + 1], state)[0] for t in range(6, 14))]
        torch.testing.assert_close(torch.cat(found, 1), whole, rtol=0, atol=1e-10)


@each_config
def test_rows_of_different_lengths_go_on_as_if_alone(config: LlamaConfig) -> None:
    model = build(config)
    rows = [torch.randint(0, 60, (n,)) for n in (3, 9, 5)]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    more = torch.randint(0, 60, (3, 4))
    with torch.no_grad():
        state = model.start(None, 3, padded.device, room=16)
        model.read(padded, state, lengths_R=torch.tensor([3, 9, 5]))
        found = torch.cat([model(more[:, t : t + 1], state)[0] for t in range(4)], 1)
        for row, ids in enumerate(rows):
            alone, _ = model(torch.cat([ids, more[row]])[None])
            torch.testing.assert_close(found[row], alone[0, len(ids) :], rtol=0, atol=1e-10)


@each_config
def test_packed_documents_are_as_documents_alone(config: LlamaConfig) -> None:
    """Rotary positions know distances only, up to the digits of their angles."""
    model = build(config)
    documents = [torch.randint(0, 60, (n,)) for n in (4, 9, 6)]
    segments = torch.cat([torch.full((len(d),), i) for i, d in enumerate(documents)])[None]
    packed, _ = model(torch.cat(documents)[None], segments_BT=segments)
    alone = torch.cat([model(d[None])[0] for d in documents], 1)
    torch.testing.assert_close(packed, alone, rtol=0, atol=1e-5)


def test_a_window_hides_what_is_further_back() -> None:
    model = build(replace(CONFIG, layers=1, window=5))
    ids = torch.randint(0, 60, (1, 12))
    changed = ids.clone()
    changed[0, 3] = (ids[0, 3] + 1) % 60
    apart = (model(ids)[0] - model(changed)[0]).abs().amax(-1)[0]
    assert (apart > 0).nonzero()[:, 0].tolist() == [3, 4, 5, 6, 7]


def test_a_window_that_hides_nothing_costs_no_matrix() -> None:
    rule = Causal() & Segments() & Window(7)
    assert rule.view(Scene(8, 8, torch.device("cpu"))).causal
    assert rule.view(Scene(1, 8, torch.device("cpu"), start=7)).rule is None
    assert isinstance(rule.simplify(Scene(9, 9, torch.device("cpu"))), And)
    assert rule.view(Scene(9, 9, torch.device("cpu"))).dense


def texts(model: Llama, device: torch.device) -> list[list[int]]:
    prompts = [Request(list(range(3, 3 + n)), Sampling(temperature=0.0), max_new=20) for n in (2, 11, 5)]
    found = generate_all(model, prompts, context=64, device=device)
    return [written.ids for [written] in found]


@each_config
def test_greedy_text_is_that_of_reading_everything_anew(config: LlamaConfig) -> None:
    model = build(config)
    for n, found in zip((2, 11, 5), texts(model, torch.device("cpu")), strict=True):
        ids = list(range(3, 3 + n))
        for token in found:
            with torch.no_grad():
                assert int(model(torch.tensor([ids]))[0][0, -1].argmax()) == token
            ids.append(token)


@pytest.mark.gpu
@each_config
def test_captured_steps_on_a_gpu_write_the_same(config: LlamaConfig) -> None:
    expected = texts(build(config), torch.device("cpu"))
    assert texts(build(config, "cuda"), torch.device("cuda")) == expected
