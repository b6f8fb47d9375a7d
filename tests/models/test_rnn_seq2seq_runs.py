"""A run of a recurrent encoder-decoder trains, resumes, predicts, is evaluated, compared and explored as any other."""

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest
import torch
from rnn_pairs import CPU

from headway.batch import TextInputs
from headway.cli.app import main
from headway.errors import InputError
from headway.nn import tap
from headway.tasks.loading import load
from headway.text.tokenizer import START
from small_runs import PAIR_SETTINGS, answered, check_resumed, of_pairs
from small_world import surroundings, write_pairs


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    root = tmp_path_factory.mktemp("text")
    with surroundings(root / "cache"):
        write_pairs(root, 150, 10, 10)
        yield root


def trained(text, out, *settings, **how):
    return of_pairs("translate-rnn", text, out, "search.beam=2", *settings, **how)


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    return trained(text, tmp_path_factory.mktemp("run"), "engine.steps=24")


@pytest.mark.parametrize("cell", ["gru", pytest.param("lstm", marks=pytest.mark.long)])
def test_a_run_that_fails_and_is_resumed_ends_as_one_that_never_did(text, run, cell, tmp_path, monkeypatch):
    settings = ("engine.steps=24", f"model.cell={cell}")
    expected = run if cell == "gru" else trained(text, tmp_path / "undisturbed", *settings)
    check_resumed(
        monkeypatch, expected, tmp_path / "failed", 15, lambda out, **how: trained(text, out, *settings, **how)
    )


def losses(run):
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_the_loss_falls(run):
    assert losses(run)[-1] < 0.9 * losses(run)[0]


def test_a_trained_model_answers_is_evaluated_and_samples(text, run):
    sentences = (text / "test.en").read_text(encoding="utf-8").splitlines()[:3]
    model = load(run, "cpu")
    answers = answered("predict", run, "--text", *sentences, "--device", "cpu").splitlines()
    assert answers == [" ".join(one.split()) for one in model.translate(sentences)]
    assert model.sample(sentences, temperature=0, max_new=9) == model.sample(
        sentences, temperature=0, max_new=9, batch=1
    )
    report = json.loads(answered("evaluate", run, text / "test.en", text / "test.fr", "--device", "cpu", "--json"))
    assert 0 <= report["bleu"] <= 100


def test_its_attention_can_be_read_and_its_page_written(text, run, tmp_path):
    sentence = (text / "test.en").read_text(encoding="utf-8").splitlines()[0]
    trace = load(run, "cpu").trace(sentence)
    assert ("decoder", "cross") in trace.sites()
    (weights,) = trace.attention("decoder", "cross")
    assert weights.shape == (1, len(trace.tracks["target"]), len(trace.tracks["source"]))
    assert weights.sum(-1) == pytest.approx(1.0, abs=1e-5)
    answered("explore", run, "--text", sentence, "--html", tmp_path / "page.html", "--device", "cpu")
    assert "data-packed" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_attention_of_a_beams_hypothesis_is_that_of_its_own_steps(run, text):
    """What the weights beside a translation say is what each step of the search looked at."""
    sentence = (text / "test.en").read_text(encoding="utf-8").splitlines()[0]
    model = load(run, "cpu")
    [[found]] = model.translate_n([sentence], attention=True)
    source = torch.tensor([model.framed(model.encode([sentence])[0])])
    with torch.inference_mode():
        state, rows = model.model.start(TextInputs(source), 1, CPU), []
        for y in [START, *(model.target_tokenizer.inner.token_to_id(token) for token in raw_tokens(model, sentence))]:
            with tap.record(model.model) as seen:
                _, state = model.model.logits(torch.tensor([[y]]), state)
            rows.append(seen.tensors["decoder.0.cross.weights"][0, 0, 0])
    torch.testing.assert_close(torch.from_numpy(found.attention.weights_LHTS[0, 0]), torch.stack(rows))


def raw_tokens(model, sentence):
    """Of the best hypothesis, as the vocabulary spells them."""
    [[best]] = model.searched([model.framed(model.encode([sentence])[0])], model.search)
    return [model.target_tokenizer.inner.id_to_token(i) for i in best.ids]


@pytest.fixture(scope="module")
def plain(text, tmp_path_factory):
    settings = ("attention=none", "cell=lstm", "start=copied", "direction=backwards")
    place = tmp_path_factory.mktemp("plain")
    return trained(text, place, "engine.steps=6", *(f"model.{setting}" for setting in settings))


def test_a_model_without_attention_has_gates_and_saliency_and_refuses_the_rest(text, plain, tmp_path):
    sentence = (text / "test.en").read_text(encoding="utf-8").splitlines()[0]
    model = load(plain, "cpu")
    trace = model.trace(sentence)
    assert not trace.sites() and "encoder.0.backwards.forget" in trace.tensors and "decoder.0.cell" in trace.tensors
    assert trace.tensors["saliency"].shape == (len(trace.tracks["target"]), len(trace.tracks["source"]))
    with pytest.raises(InputError, match=r"this model \(rnn-seq2seq\) has no attention to look at"):
        model.translate_n([sentence], attention=True)
    gold = tmp_path / "gold"
    gold.write_text("0-0\n" * 10, encoding="utf-8")
    told = refused("analyse", plain, text / "test.en", text / "test.fr", "--what", "alignment", "--set", f"gold={gold}")
    assert told.count("\n") == 1 and "has no attention to look at" in told
    answered("explore", plain, "--text", sentence, "--html", tmp_path / "page.html", "--device", "cpu")


def refused(*arguments):
    err = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    assert left.value.code == 2
    return err.getvalue()


@pytest.mark.long
def test_it_is_compared_with_the_transformer(text, tmp_path):
    own = [one for one in PAIR_SETTINGS if not one.startswith(("validation.every", "validation.score"))]
    settings = ["engine.steps=10", *own, "search.beam=2"]
    files = [option for part, name in (("train", "data"), ("valid", "valid"), ("test", "test"))
             for option in (f"--{name}", text / f"{part}.en", text / f"{part}.fr")]  # fmt: skip
    both = ["translate", "translate-rnn"]
    called = ["compare", *both, *files, "--out", tmp_path / "out", "--device", "cpu", "--json", "--set", *settings]
    results = json.loads(answered(*called, "model.encoder_layers=1", "model.decoder_layers=1"))
    assert [entry["name"] for entry in results["runs"]] == both
    assert (tmp_path / "out" / "comparison.png").stat().st_size > 5_000
