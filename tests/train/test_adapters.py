"""Runs that train adapters of low rank: which weights change, what is written, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from encoder_folders import ENTRIES, WORDS, write_encoder
from headway.batch import TextInputs
from headway.errors import InputError
from headway.folder import read_model
from headway.models import FAMILIES, build
from headway.models.bert import BertConfig
from headway.models.conv_seq2seq import ConvSeq2SeqConfig
from headway.models.gpt import GPTConfig
from headway.models.heads import Classes
from headway.models.protocols import Encoded
from headway.models.recurrent import Lstm, RecurrentConfig
from headway.models.rnn_seq2seq import RnnSeq2SeqConfig
from headway.models.transformer import TransformerConfig
from headway.nn.low_rank import Adapted, merge_adapters
from headway.nn.weights import kept_tensors
from headway.train.adapters import Lora, finished
from headway.train.run import read_run
from headway.train.selection import counts, freeze
from small_runs import answered, carried_out, check_resumed
from small_world import surroundings

CONFIGS: dict[str, Any] = {
    "bert": BertConfig(2, 8, 16, 2, max_length=8, dropout=0.0, attention_dropout=0.0),
    "gpt": GPTConfig(layers=2, width=8, heads=2, dropout=0.0),
    "transformer": TransformerConfig(2, 2, 8, 16, 2, dropout=0.0),
    "recurrent": RecurrentConfig(Lstm(), 2, 8),
    "rnn-seq2seq": RnnSeq2SeqConfig(width=8, dropout=0.0),
    "conv-seq2seq": ConvSeq2SeqConfig(1, 1, 8, 8, dropout=0.0),
}  # fmt: skip


def outputs(family: str, model: Any) -> torch.Tensor:
    config, sizes = CONFIGS[family], (9,) * len(FAMILIES[family].takes)
    found = model(*FAMILIES[family].example(config, sizes, 2, *(5,) * len(sizes)))
    while not isinstance(found, torch.Tensor):
        found = found.x_BTD if isinstance(found, Encoded) else found[0]
    return found


@pytest.mark.parametrize("family", CONFIGS)
def test_a_model_of_any_family_is_the_same_with_its_adapters_merged(family: str) -> None:
    torch.manual_seed(0)
    model = build(family, CONFIGS[family], (9,) * len(FAMILIES[family].takes)).double().eval()
    names, plain = list(kept_tensors(model)), outputs(family, model)
    Lora(rank=2).put_into(model, seed=1)
    torch.testing.assert_close(outputs(family, model), plain)
    parts = [part for part in model.modules() if isinstance(part, Adapted)]
    for part in parts:
        torch.nn.init.normal_(part.B_OR)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained and {name.rpartition(".")[2] for name in trained} == {"A_RI", "B_OR"}
    with_adapters = outputs(family, model)
    assert not torch.allclose(with_adapters, plain)
    outputs(family, model).square().sum().backward()
    assert all(part.B_OR.grad is not None and part.B_OR.grad.abs().sum() > 0 for part in parts)
    merge_adapters(model)
    assert list(kept_tensors(model)) == names
    torch.testing.assert_close(outputs(family, model), with_adapters)


SETTINGS = (
    "engine.device=cpu", "engine.steps=8", "engine.batch=256", "engine.snapshot=1000", "engine.log=2",
    "engine.checkpoint=3", "schedule.peak=0.01", "schedule.warmup=2", "validation.every=4", "validation.score_every=4",
    "model.layers=2", "model.width=24", "model.inner=40", "model.heads=3", "model.max_length=24", "model.dropout=0.1",
    "data.names=none,cat", "data.test=[]",
)  # fmt: skip
LORA = ("engine.adapters=lora", "engine.adapters.rank=2")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Labelled texts, an encoder, and a run with adapters that started from it."""
    folder = tmp_path_factory.mktemp("adapters")
    with surroundings(folder / "cache"):
        write_encoder(folder / "base", "Model")
        random = np.random.default_rng(1)
        rows = [" ".join(random.choice(WORDS[:10], 6)) for _ in range(80)]
        (folder / "texts.tsv").write_text("".join(f"{int('cat' in row)}\t{row}\n" for row in rows))
        tuned(folder, folder / "run")
        yield folder


IDS_BT = torch.tensor([[2, 7, 9, 12, 3], [2, 5, 5, 6, 3]])


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(TextInputs(IDS_BT))
    return found


def tuned(place: Path, out: Path, *settings: str, resume: bool = False, adapters: Sequence[str] = LORA) -> Path:
    files = [f"data.{part}={place / 'texts.tsv'}" for part in ("train", "valid")]
    carried_out("sst2-minilm", out, *files, f"init={place / 'base'}", *SETTINGS, *adapters, *settings, resume=resume)
    return out


def test_only_adapted_maps_and_the_head_change(place: Path) -> None:
    """The folder has the weights of a model without adapters; those that were frozen are the same to the bit."""
    before, after = (kept_tensors(read_model(place / name).model) for name in ("base", "run"))
    changed = {name for name in after if name.startswith("head.") or not torch.equal(before[name], after[name])}
    maps = (
        "attention.qkv.weight",
        "attention.output.weight",
        "feed_forward.expand.weight",
        "feed_forward.contract.weight",
    )
    expected = {f"encoder.encoder.layers.{layer}.{name}" for layer in (0, 1) for name in maps}
    assert {name for name in changed if not name.startswith("head.")} == expected
    for name in expected:
        singular = torch.linalg.svdvals((after[name] - before[name]).double())
        assert singular[1] > 1e-4 and singular[2:].max() < 1e-6, name


def test_a_killed_run_with_adapters_resumes_to_the_bit(place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    check_resumed(monkeypatch, place / "run", tmp_path / "killed", 6, partial(tuned, place))


def test_the_folder_answers_as_the_model_with_adapters_did(place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    trained = []

    def kept(model: Any, weights: Any, run: Any) -> Any:
        trained.append(logits(model))
        return finished(model, weights, run)

    monkeypatch.setattr("headway.train.job.finished", kept)
    tuned(place, tmp_path / "run")
    torch.testing.assert_close(logits(read_model(tmp_path / "run").model.eval()), trained[0], rtol=0, atol=1e-5)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    start = next(event for event in log if event["event"] == "start")
    assert 0 < start["trained"] < start["parameters"]


def test_a_merged_model_gives_the_same_logits_in_transformers(place: Path, tmp_path: Path) -> None:
    answered("export", place / "run", tmp_path / "theirs", "--format", "hf")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "theirs").eval()
    with torch.no_grad():
        found = theirs(IDS_BT).logits
    torch.testing.assert_close(logits(read_model(place / "run").model.eval()), found, rtol=0, atol=1e-5)


def test_frozen_weights_are_written_exactly_where_training_rounds_them(place: Path) -> None:
    run, start = read_run(place / "run" / "run.json"), kept_tensors(read_model(place / "base").model)
    model = build("bert", run.model, (len(ENTRIES),), run.head)
    Lora(on=("qkv",)).put_into(model, 1, whole=("head",))
    rounded = {name: weight.detach().float() for name, weight in model.to(torch.bfloat16).named_parameters()}
    found = finished(model, rounded, run)
    same = [name for name in start if name.startswith("encoder.") and "qkv.weight" not in name]
    assert same and all(torch.equal(start[name], found[name]) for name in same)


def test_the_count_of_trained_weights_is_shown(place: Path) -> None:
    model = build("bert", BertConfig(1, 8, 16, 2, types=0, max_length=8), (9,), Classes(("no", "yes")))
    Lora(rank=3, on=("qkv",)).put_into(model, 1, whole=("head",))
    head = sum(weight.numel() for weight in model.head.parameters())
    assert counts(model)[1] == 3 * (8 + 24) + head
    shown = answered("train", "classify", "--dry-run", "--init", place / "base", "--set", "engine.adapters=lora")
    assert " of them trained (with" in shown


def test_an_adapter_of_some_layers(place: Path) -> None:
    model = build("bert", BertConfig(3, 8, 16, 2, max_length=8), (9,), Classes(("no", "yes")))
    freeze(model, (), 1)
    Lora(on=("output", "encoder.layers.*.expand")).put_into(model, 1, whole=("head",))
    names = {name for name, part in model.named_modules() if isinstance(part, Adapted)}
    last = "encoder.encoder.layers.2"
    assert names == {f"{last}.attention.output", f"{last}.feed_forward.expand"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("engine.adapters.on=query",), "no linear map of a layer is named 'query'; there is: contract, expand"),
        (("engine.adapters.rank=0",), "engine.adapters.rank must be at least 1, not 0"),
        (("engine.adapters.alpha=0",), "engine.adapters.alpha must be above 0, not 0"),
        (("engine.last_layers=0",), "engine.adapters: the linear maps that it names are all frozen"),
        (("engine.last_layers=-1",), "engine.last_layers must be 0 or more, not -1"),
        (("engine.adapters=null", "engine.adapters.rank=4"), "'adapters' is not set: set it first"),
        (("engine.layer_decay=0",), "engine.layer_decay must be above 0, not 0"),
        (("init=",), "engine.adapters trains a few weights beside those of a trained model"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(
    settings: tuple[str, ...], message: str, place: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        tuned(place, tmp_path / "run", *settings)


def test_a_model_without_layers_has_nothing_to_adapt() -> None:
    with pytest.raises(InputError, match="the model has no layers with linear maps to adapt"):
        Lora().put_into(torch.nn.Sequential(torch.nn.Linear(2, 2)), 1)
