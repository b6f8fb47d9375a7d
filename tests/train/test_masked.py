"""An encoder that learns from masked words: its losses beside transformers', runs, and what becomes of the model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from headway.batch import IGNORED, TextInputs
from headway.data.masking import MaskedBatch
from headway.folder import read_model
from headway.hub.hf_export import export_hf
from headway.models import build
from headway.models.head import right
from headway.recipes import RECIPES
from headway.recipes.grammar import sample
from headway.tasks.loading import load
from headway.tasks.masked import MaskedLoss
from small_runs import answered, call, carried_out, check_resumed
from small_world import surroundings

pytestmark = pytest.mark.usefixtures("own_cache")
SMALL = (
    "engine.device=cpu", "engine.steps=8", "engine.batch=256", "engine.snapshot=1000", "engine.log=4",
    "engine.checkpoint=3", "model.layers=1", "model.width=32", "model.inner=48", "model.heads=2", "model.max_length=48",
    "data.text.size=300", "data.length=32", "schedule.peak=0.01", "schedule.warmup=2", "validation.every=4",
    "validation.score_every=4",
)  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "my.txt"
    path.write_text("".join(f"{sentence.source}.\n" for sentence in sample(200, seed=5)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "bert"
    with surroundings(tmp_path_factory.mktemp("cache")):
        carried_out("bert", out, *SMALL, f"data.train={text}")
    return out


@pytest.mark.parametrize("training", [False, True])
def test_losses_and_gradients_are_those_of_transformers(trained: Path, training: bool, tmp_path: Path) -> None:
    """BertForPreTraining with copied weights and the same gaps: it scores every place, headway only the gaps."""
    export_hf(trained, tmp_path / "hf")
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "hf", **off).train(training)
    loaded = read_model(trained)
    config = replace(loaded.card.config, dropout=0.0, attention_dropout=0.0)
    mine = build("bert", config, loaded.card.sizes, loaded.card.head)
    mine.load_state_dict(loaded.model.state_dict())
    ids_BT, lengths_B = torch.randint(5, 100, (4, 12)), torch.tensor([12, 7, 12, 9])
    types_BT = (torch.arange(12) > 5).long().expand(4, -1)
    places_BP, pairs_B = torch.tensor([[1, 5], [2, 0], [10, 3], [4, 8]]), torch.tensor([0, 1, 1, 0])
    labels_BP = torch.tensor([[7, 9], [11, IGNORED], [6, 5], [30, 31]])
    labels_BT = torch.full((4, 12), -100)
    for row, (places, labels) in enumerate(zip(places_BP.tolist(), labels_BP.tolist(), strict=True)):
        for place, label in zip(places, labels, strict=True):
            if label != IGNORED:
                labels_BT[row, place] = label
    mask_BT = (torch.arange(12) < lengths_B[:, None]).long()
    expected = theirs(
        input_ids=ids_BT, attention_mask=mask_BT, token_type_ids=types_BT, labels=labels_BT, next_sentence_label=pairs_B
    )
    batch = MaskedBatch(TextInputs(ids_BT, lengths_B, types_BT), places_BP, labels_BP, pairs_B)
    terms = MaskedLoss().build(mine).train(training)(batch)
    assert ("right" in terms) != training
    found = sum(weight * value / batch.counts[name] for name, (value, weight) in terms.items())
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, expected.loss, rtol=1e-5, atol=1e-5)
    found.backward()
    expected.loss.backward()
    table = theirs.bert.embeddings.word_embeddings.weight.grad
    torch.testing.assert_close(mine.encoder.embed.table.weight.grad, table, rtol=1e-4, atol=1e-5)


def test_accuracies_count_the_largest_logits() -> None:
    logits = torch.tensor([[0.0, 2.0], [3.0, 1.0], [0.0, 1.0]])
    assert right(logits, torch.tensor([1, 1, IGNORED])) == 1


def test_both_losses_and_accuracies_are_logged_and_printed(trained: Path) -> None:
    events = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    [first, *_] = [event for event in events if event["event"] == "validation"]
    assert {"loss", "accuracy", "next_sentence_loss", "next_sentence_accuracy"} <= first.keys()
    assert "pair" in next(event for event in events if event["event"] == "train")
    score = json.loads((trained / "model" / "headway.json").read_text())["score"]
    assert {"validation loss", "validation accuracy", "validation next sentence accuracy"} <= score.keys()


def test_a_run_that_fails_is_resumed_to_the_bit(
    text: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(out: Path, resume: bool = False) -> None:
        carried_out("bert", out, *SMALL, f"data.train={text}", resume=resume)

    check_resumed(monkeypatch, trained, tmp_path / "again", 6, run)


def test_a_small_encoder_learns_what_stands_in_a_gap(tmp_path: Path) -> None:
    """Every dog barks, every cat purrs."""
    (tmp_path / "pets.txt").write_text("Small dogs barked. Big cats purred. " * 100)
    settings = ("engine.steps=40", "model.dropout=0.0", "model.attention_dropout=0.0", "head=words", "data.length=16")
    carried_out("bert", tmp_path / "run", *SMALL, *settings, f"data.train={tmp_path / 'pets.txt'}")
    [gaps] = load(tmp_path / "run", "cpu").fill(["small dogs [MASK]. big cats purred."])
    assert gaps[0][0].text == "barked"
    report = answered("evaluate", tmp_path / "run", tmp_path / "pets.txt", "--device", "cpu", "--json")
    assert json.loads(report)["accuracy"] > 0.4  # always "." would be 0.25
    said = answered("predict", tmp_path / "run", "small dogs [MASK]. big cats purred.", "--device", "cpu")
    word, share = said.split()
    assert word == "barked" and float(share) == pytest.approx(gaps[0][0].probability, abs=1e-4)


@pytest.mark.parametrize("recipe", ["bert", "roberta"])
def test_transformers_opens_what_was_trained(recipe: str, text: Path, trained: Path, tmp_path: Path) -> None:
    if recipe == "bert":
        run = trained
    else:
        carried_out(recipe, run := tmp_path / "run", *SMALL, "engine.steps=2", f"data.train={text}")
    export_hf(run, tmp_path / "hf")
    kind = {"bert": "BertForPreTraining", "roberta": "RobertaForMaskedLM"}[recipe]
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == [kind]
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    mine = load(run, "cpu")
    sentence = f"the {tokenizer.mask_token} reads a book"
    given = tokenizer(sentence, return_tensors="pt")
    assert given["input_ids"][0].tolist() == mine.tokenizer.inner.encode(sentence).ids
    with torch.no_grad():
        expected = theirs(**given).to_tuple()
        found = mine.model(TextInputs(given["input_ids"]))
    for ours, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-5)


def test_training_continues_from_a_model_on_other_text(text: Path, trained: Path, tmp_path: Path) -> None:
    """With its vocabulary and all its weights; without next sentences the words' own weights are kept."""
    sizes = [setting for setting in SMALL if not setting.startswith(("data.text", "engine.steps"))]
    more = (*sizes, "engine.steps=1", "schedule.peak=0.0", f"data.train={text}", f"init={trained}", "model.dropout=0.0")
    for name, head in (("same", "words-and-pair"), ("words", "words")):
        carried_out("bert", tmp_path / name, *more, f"head={head}")
        before, after = (load_file(run / "model" / "model.safetensors") for run in (trained, tmp_path / name))
        assert all(torch.equal(before[key], weight) for key, weight in after.items())
        assert "head.bias_V" in after and ("head.pair.weight" in after) == (name == "same")
    tokens = [load(run, "cpu").tokenizer.fingerprint for run in (trained, tmp_path / "same")]
    assert tokens[0] == tokens[1]


def test_a_classifier_starts_from_it(trained: Path, tmp_path: Path) -> None:
    rows = [f"{number % 2}\t{'good' if number % 2 else 'bad'} books" for number in range(20)]
    (tmp_path / "a.tsv").write_text("\n".join(rows) + "\n")
    said = call(
        "train", "classify", "--data", tmp_path / "a.tsv", "--valid", tmp_path / "a.tsv", "--init", trained, "--out",
        tmp_path / "run", "--device", "cpu", "--steps", "1", "--set", "engine.frozen=embed,encoder",
    )  # fmt: skip
    assert said[0] == 0 and "new: head.labels.weight, head.labels.bias" in said[2]
    before, after = (load_file(run / "model" / "model.safetensors") for run in (trained, tmp_path / "run"))
    assert all(torch.equal(before[key], after[key]) for key in after if key.startswith("encoder."))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.text.kind=word"], "masked words need data.text.kind=wordpiece"),
        (["data.mask.mask=0.95"], "data.mask.mask and data.mask.random must be"),
        (["head=classes"], "needs a head: set head=words or words-and-pair"),
        (["data.length=4"], "data.length must be at least 8"),
        (["model.max_length=3"], "model.max_length must be at least 8 to hide words in a row, not 3"),
        (["objective=labels"], "set objective=masked-words"),
    ],
)
def test_what_makes_no_sense_is_one_line(text: Path, tmp_path: Path, settings: list[str], said: str) -> None:
    code, _, err = call("train", "bert", "--data", text, "--out", tmp_path / "run", "--set", *SMALL, *settings)
    assert code == 2 and said in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        (" \n\n", "my.txt, line 1: the document is empty: remove it"),
        ("One.", "one sentence has no next one: give more text, or set head=words"),
    ],
)
def test_text_that_is_not_there_is_named(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "my.txt").write_text(content)
    code, _, err = call("train", "bert", "--data", tmp_path / "my.txt", "--out", tmp_path / "run", "--set", *SMALL)
    assert code == 2 and said in err and "Traceback" not in err


def test_recipes_differ_as_the_papers_do() -> None:
    bert, roberta = (RECIPES[name].make() for name in ("bert", "roberta"))
    assert bert.head.pairs and not roberta.head.pairs and roberta.engine.batch > bert.engine.batch
    assert (bert.data.text.kind, roberta.data.text.kind) == ("wordpiece", "bpe")
    shares: Any = bert.data.mask
    assert (shares.chosen, shares.mask, shares.random) == (0.15, 0.8, 0.1)
