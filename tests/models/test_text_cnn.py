"""Convolutional encoders of texts beside plain loops; the vectors of words tuned, static and both; a run of each."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headway.batch import TextInputs
from headway.errors import InputError
from headway.models import build
from headway.models.heads import Headed, LinearClasses
from headway.models.text_cnn import Bigrams, Dynamic, TextCnn, TextCnnConfig, Windows
from headway.models.text_rnn import TextRnn, TextRnnConfig
from headway.models.token_heads import Tags
from headway.tasks.loading import load
from small_runs import call, carried_out, check_resumed
from small_world import surroundings

LENGTHS = torch.tensor([9, 1, 4])
KINDS = {
    "windows": Windows((2, 3), 4),
    "attention": Windows((2, 3), 4, "attention", "same"),
    "narrow": Windows((1, 5), 4, "mean", "narrow"),
    "dynamic": Dynamic((4, 2), (3, 2), 3),
    "bigrams": Bigrams(3),
}


def encoder(choice: Any, **more: Any) -> TextCnn:
    torch.manual_seed(0)
    return TextCnn(TextCnnConfig(8, choice, max_length=32, **more), 20).double().eval()


def texts() -> torch.Tensor:
    return torch.randint(20, (3, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_text_has_the_vector_that_it_has_alone(kind: str) -> None:
    model = encoder(KINDS[kind])
    together = model.encode(TextInputs(texts(), LENGTHS)).x_BTD
    assert together.shape == (3, 1, model.width)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model.encode(TextInputs(texts()[row : row + 1, :length])).x_BTD
        torch.testing.assert_close(together[row], alone[0])


@torch.no_grad()
def test_windows_are_kims_features() -> None:
    """c_t = relu(w · x_{t:t+h−1} + b) of every window that touches the text; the largest of each filter."""
    model = encoder(KINDS["windows"])
    words = model.table(texts()[0])
    expected = []
    for convolution, size in zip(model.composition.convolutions, (2, 3), strict=True):
        padded = F.pad(words, (0, 0, size - 1, size - 1))
        for weight, bias in zip(convolution.map.weight, convolution.map.bias, strict=True):
            found = [float(weight @ padded[t : t + size].flatten() + bias) for t in range(len(padded) - size + 1)]
            expected.append(max(0.0, *found))
    assert model.encode(TextInputs(texts()[:1])).x_BTD.flatten().tolist() == pytest.approx(expected)


def largest_in_order(values: list[float], k: int) -> list[float]:
    at = sorted(sorted(range(len(values)), key=lambda place: -values[place])[:k])
    return [values[place] for place in at] + [0.0] * (k - len(at))


@torch.no_grad()
def test_dynamic_pooling_is_kalchbrenners_written_out() -> None:
    """Wide convolution along each row of the sentence matrix, folding, k-max, tanh, twice."""
    choice = KINDS["dynamic"]
    model, n = encoder(choice), 9
    torch.manual_seed(5)
    for bias in model.composition.biases:
        bias.normal_()
    maps = [model.table(texts()[0]).T.tolist()]  # of each map its rows of numbers
    for layer, (part, bias) in enumerate(zip(model.composition.convolutions, model.composition.biases, strict=True), 1):
        rows, window = part.rows, part.window
        k = max(choice.top, math.ceil((2 - layer) / 2 * n))
        weight = part.weight_RKO.unflatten(1, (window, -1)).tolist()  # row, place in the window, map below, map above
        above: list[list[list[float]]] = []
        for out in range(choice.maps[layer - 1]):
            wide = []
            for row in range(rows):
                length = len(maps[0][0])
                sums = [0.0] * (length + window - 1)
                for below, numbers in enumerate(maps):
                    for t in range(len(sums)):
                        for i in range(window):
                            at = t + i - window + 1
                            if 0 <= at < length:
                                sums[t] += weight[row][i][below][out] * numbers[row][at]
                wide.append(sums)
            folded = [[a + b for a, b in zip(*wide[two : two + 2], strict=True)] for two in range(0, rows, 2)]
            above.append([largest_in_order(row, k) for row in folded])
        bias_RO = bias.unflatten(0, (rows // 2, -1)).tolist()
        maps = [
            [[math.tanh(x + bias_RO[r][o]) for x in row] for r, row in enumerate(one)] for o, one in enumerate(above)
        ]
    expected = [maps[o][r][t] for t in range(choice.top) for r in range(2) for o in range(2)]
    assert model.encode(TextInputs(texts()[:1])).x_BTD.flatten().tolist() == pytest.approx(expected)


@torch.no_grad()
def test_bigrams_compose_neighbours_layer_by_layer() -> None:
    model = encoder(KINDS["bigrams"])
    vectors = list(model.table(texts()[0]))
    for layer in model.composition.layers:
        vectors = [torch.tanh(layer.map(torch.cat(two))) for two in zip(vectors, vectors[1:], strict=False)]
    assert len(vectors) == 9 - 3
    torch.testing.assert_close(model.encode(TextInputs(texts()[:1])).x_BTD[0, 0], torch.stack(vectors).amax(0))


@torch.no_grad()
def test_two_channels_add_up_what_the_same_filters_find_in_each() -> None:
    model = encoder(Windows((3,), 5), vectors="both")
    (convolution,) = model.composition.convolutions
    found = [convolution(table(texts()))[0] - convolution.map.bias for table in model.embed.values()]
    expected = F.relu(sum(found) + convolution.map.bias).amax(1)
    torch.testing.assert_close(model.encode(TextInputs(texts())).x_BTD[:, 0], expected)


@pytest.mark.parametrize(("vectors", "learn"), [("tuned", {"tuned"}), ("static", set()), ("both", {"tuned"})])
def test_static_vectors_get_no_gradient(vectors: Any, learn: set[str]) -> None:
    model = encoder(Windows((3,), 5), vectors=vectors)
    model.encode(TextInputs(texts())).x_BTD.sum().backward()
    assert {kind for kind, table in model.embed.items() if table.weight.grad is not None} == learn


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
def test_the_linear_head_is_one_map_of_the_pooled_vector_with_bounded_rows(pooling: Any) -> None:
    torch.manual_seed(0)
    recurrent = TextRnn(TextRnnConfig(width=6, max_length=32), 20)
    model = Headed(recurrent, LinearClasses(tuple("abc"), pooling=pooling, bound=0.5)).double().eval()
    with torch.no_grad():
        model.head.labels.weight.copy_(torch.tensor([[3.0] * 6, [0.01] * 6, [-1.0] * 6]))
        x_BTD = recurrent.encode(TextInputs(texts(), LENGTHS)).x_BTD
        for row, length in enumerate(LENGTHS.tolist()):
            own = x_BTD[row, :length]
            z = {"first": own[0], "last": own[-1], "mean": own.sum(0) / length, "max": own.amax(0)}[pooling]
            long = math.sqrt(6) * torch.tensor([3.0, 0.01, 1.0])
            bounded = model.head.labels.weight * torch.clamp(0.5 / long, max=1.0)[:, None]
            expected = bounded @ z + model.head.labels.bias
            torch.testing.assert_close(model(TextInputs(texts(), LENGTHS))[row], expected)


@torch.no_grad()
def test_a_recurrent_encoder_is_torchs_lstm_and_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    model = TextRnn(TextRnnConfig(layers=2, width=6, max_length=32), 20).double().eval()
    oracle = torch.nn.LSTM(6, 6, 2, batch_first=True, dtype=torch.float64)
    for number, layer in enumerate(model.states.layers):
        getattr(oracle, f"weight_ih_l{number}").copy_(layer.cell.from_input.weight)
        getattr(oracle, f"weight_hh_l{number}").copy_(layer.cell.from_state.weight)
        getattr(oracle, f"bias_ih_l{number}").copy_(layer.cell.from_input.bias)
        getattr(oracle, f"bias_hh_l{number}").zero_()
    found = model.encode(TextInputs(texts(), LENGTHS)).x_BTD
    for row, length in enumerate(LENGTHS.tolist()):
        expected, _ = oracle(model.embed(texts()[row : row + 1, :length]))
        torch.testing.assert_close(found[row, :length], expected[0])


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(InputError, match="head=tags reads every token, a model of the family 'text-cnn' gives one"):
        build("text-cnn", TextCnnConfig(8), (20,), Tags(labels=tuple("ab")))
    with pytest.raises(InputError, match=r"model\.width 6 is not a multiple of 4"):
        build("text-cnn", TextCnnConfig(6, Dynamic()), (20,))
    with pytest.raises(InputError, match="a window and a number of maps for each layer"):
        Dynamic((7,), (6, 14))
    for wrong in ({"sizes": ()}, {"sizes": (0, 3)}, {"maps": 0}):
        with pytest.raises(InputError, match=r"model\.composition\."):
            Windows(**wrong)
    with pytest.raises(InputError, match=r"model\.composition\.layers must be at least 1"):
        Bigrams(0)
    with pytest.raises(InputError, match=r"head\.bound must be 0"):
        LinearClasses(bound=-1.0)


SMALL = (
    "engine.device=cpu", "engine.batch=256", "engine.steps=40", "engine.log=10", "engine.checkpoint=8",
    "model.width=16", "model.max_length=32", "validation.every=20", "validation.score_every=20",
)  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Whether "not good" or "good" is in it."""
    folder, random = tmp_path_factory.mktemp("labelled"), np.random.default_rng(1)
    words, paths = ["the", "a", "film", "is", "was", "on", "very", "not"], {}
    for part, count in (("train", 300), ("valid", 50)):
        rows = []
        for number in range(count):
            text = random.choice(words[:-1], random.integers(2, 9)).tolist()
            at = int(random.integers(0, len(text) + 1))
            text[at:at] = ["not", "good"] if number % 2 else ["good"]
            rows.append(f"{number % 2}\t{' '.join(text)}\n")
        paths[part] = folder / f"{part}.tsv"
        paths[part].write_text("".join(rows), encoding="utf-8")
    return paths


def trained(files: dict[str, Path], out: Path, *settings: str, resume: bool = False) -> dict[str, Any]:
    paths = (f"data.{part}={path}" for part, path in files.items())
    with surroundings(out.parent / "cache"):
        return carried_out("classify-cnn", out, *paths, *SMALL, *settings, resume=resume).scores


@pytest.fixture(scope="module")
def run(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    assert trained(files, out)["validation accuracy"] > 0.9
    return out


def test_a_run_that_fails_and_is_resumed_ends_as_one_that_never_did(
    files: dict[str, Path], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_resumed(monkeypatch, run, tmp_path / "failed", 27, lambda out, **how: trained(files, out, **how))


def test_a_trained_model_answers_traces_and_refuses_what_it_cannot(run: Path, files: dict[str, Path]) -> None:
    code, out, _ = call("predict", run, "--text", "the film was not good", "--device", "cpu")
    assert code == 0 and out.split()[0] == "1"
    code, out, _ = call("evaluate", run, files["valid"], "--device", "cpu")
    assert code == 0 and "accuracy" in out
    model = load(run, "cpu")
    assert model.embed("a good film", pooling="mean").shape == (model.model.encoder.width,)
    assert "embed.tokens" in model.trace("a good film").tensors
    code, _, err = call("translate", run, "--text", "a good film", "--device", "cpu")
    assert code == 2 and len(err.strip().splitlines()) == 1


def test_vectors_of_a_file_fill_every_channel(files: dict[str, Path], tmp_path: Path) -> None:
    rows = [f"{word} {' '.join(['0.5' if word == 'good' else '-0.5'] * 16)}" for word in ("good", "film", "not")]
    (tmp_path / "words.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    trained(files, tmp_path / "run", "model.vectors=both", f"init={tmp_path / 'words.txt'}", "engine.steps=2",
            "data.text.min_count=1")  # fmt: skip
    model = load(tmp_path / "run", "cpu")
    entry = model.tokenizer.encode("good")[0]
    static, tuned = (model.model.encoder.embed[kind].weight[entry] for kind in ("static", "tuned"))
    assert torch.equal(static, torch.full((16,), 0.5)) and not torch.equal(tuned, static)
    torch.testing.assert_close(tuned, static, atol=0.1, rtol=0)


def test_configs_keep_what_a_folder_wrote(run: Path) -> None:
    model = load(run, "cpu").model
    assert replace(model.config, width=300, max_length=512) == TextCnnConfig()
