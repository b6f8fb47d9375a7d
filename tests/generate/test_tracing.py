"""Traces of texts: the doors of translators, generators and encoders, beams and their trees, saliency."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import headway
from encoder_folders import their_inputs, write_encoder
from headway.batch import TextInputs
from headway.errors import InputError
from headway.generate.generator import Generator
from headway.generate.tracing import called
from headway.models.gpt import GPT, GPTConfig
from headway.models.neural_ngram import NeuralNGram, NeuralNGramConfig
from headway.models.ngram import NGram, NGramConfig
from headway.models.recurrent import Gru, Recurrent, RecurrentConfig
from headway.models.rung import RUNGS, Rung
from headway.models.transformer import Transformer, TransformerConfig
from headway.nn import tap
from headway.text.tokenizer import TextOptions, Tokenizer
from headway.traces import Trace

FOLDER = Path(__file__).parents[1] / "folders" / "format-1"
TEXT = "He drives the car"
TOKENIZER = Tokenizer.train(["the cat sat on the mat, the dog did not sit"] * 3, TextOptions(size=290, exact=True))
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def translator():
    return headway.load(FOLDER, "cpu")


def generator(model, context: int = 32) -> Generator:
    for weight in model.parameters():
        if weight.is_floating_point() and weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    return Generator(model.double().eval(), TOKENIZER, context=context, device=CPU)


def test_a_translation_is_traced_along_the_hypothesis_that_the_search_chose(translator):
    [[best, *_]] = translator.translate_n([TEXT], beam=3, attention=True)
    trace = translator.trace(TEXT, beam=3)
    source, target = trace.tracks["source"], trace.tracks["target"]
    assert source.spelled == tuple(TEXT.split()) and source.labels[-1] == "</s>" and source.specials == (8,)
    assert target.text == best.text and target.labels[0] == "<s>" and target.specials == (0,)
    assert [source.text[a:b] for a, b in source.spans][5] == source.labels[5] == "the"
    np.testing.assert_allclose(trace.attention(), best.attention.weights_LHTS, atol=1e-6)
    assert trace.sites() == [("encoder", "attention"), ("decoder", "attention"), ("decoder", "cross")]
    # What came next at each place is what the search scored.
    np.testing.assert_allclose(trace.about["next"]["taken"], best.token_scores, atol=1e-4)
    assert trace.about["family"] == "transformer" and trace.about["model"] == "format-1"
    np.testing.assert_allclose(np.exp(trace["next"]).sum(), 1, atol=1e-4)


def test_a_target_of_ones_own_is_traced_without_a_search(translator):
    trace = translator.trace(TEXT, "Il conduit la voiture", tensors="cross.weights")
    assert trace.tracks["target"].text == "Il conduit la voiture" and "beam" not in trace.about
    assert list(trace) == ["decoder.0.cross.weights"]
    with pytest.raises(InputError, match="a target was given: there is no search, and 'beam' has no meaning"):
        translator.trace(TEXT, "Il conduit", beam=2)


@pytest.mark.parametrize("beam", [1, 4])
def test_the_tree_of_a_search_holds_the_chosen_way_and_the_others(translator, beam):
    [found] = translator.translate_n([TEXT], beam=beam, best=beam, length_penalty=0.7)
    nodes = translator.trace(TEXT, beam=beam, length_penalty=0.7, tensors="next").about["beam"]["nodes"]
    assert nodes[0]["parent"] == -1 and all(node["parent"] < at for at, node in enumerate(nodes))
    for step in range(1, 4):
        assert sum(node["step"] == step and not node["finished"] for node in nodes) == beam
    # Every hypothesis that the search gives out is a way to an end, and its score and log-probabilities are there.
    ends = {}
    for at, node in enumerate(nodes):
        if node["finished"]:
            way = [at]
            while nodes[way[0]]["parent"] > 0:
                way.insert(0, nodes[way[0]]["parent"])
            ends[at] = way
    for hypothesis in found:
        [way] = [
            way
            for way in ends.values()
            if len(way) == len(hypothesis.token_scores)
            and np.allclose([nodes[at]["logp"] for at in way], hypothesis.token_scores, atol=1e-4)
        ]
        assert math.isclose(nodes[way[-1]]["score"], hypothesis.score, abs_tol=1e-4)
        if hypothesis is found[0]:
            assert {at for at, node in enumerate(nodes) if node["chosen"]} == {0, *way}
    assert all(nodes[node["parent"]]["kept"] for node in nodes[1:])


def test_a_source_in_a_crowd_has_the_same_tree_as_alone(translator):
    """Slots are moved while others leave: the branches of each follow its own."""
    from headway.generate.offline import search_all
    from headway.generate.search import Search

    texts = [TEXT, "She sings", "The cat does not sleep in the garden", "A dog"]
    sources = [translator.framed(ids) for ids in translator.encode(texts)]
    how = {"limit": translator.limit, "device": CPU, "symbols": translator.symbols}
    together: dict = {}
    search_all(translator.model, sources, Search(beam=3), branches=together, **how)
    for number, source in enumerate(sources):
        alone: dict = {}
        search_all(translator.model, [source], Search(beam=3), branches=alone, **how)
        assert len(alone[0]) == len(together[number])
        for one, other in zip(alone[0], together[number], strict=True):
            # What has no chance (−∞) has any token.
            there = [total > -math.inf for total in one[2]]
            assert [t for t, is_there in zip(one[0], there, strict=True) if is_there] == [
                t for t, is_there in zip(other[0], there, strict=True) if is_there
            ]
            np.testing.assert_allclose(one[2], other[2], atol=1e-4)


def test_a_language_model_is_traced_with_what_may_come_next():
    model = generator(GPT(GPTConfig(2, 12, heads=3, max_length=32), len(TOKENIZER)))
    text = "the cat did not\n sit"
    trace = model.trace(text, top=3)
    track = trace.tracks["tokens"]
    assert "".join(track.labels) == "thecatdidnot\\nsit" and track.text == text
    assert [text[a:b] for a, b in track.spans][:2] == ["the", "cat"] and track.words[:3] == (0, 1, 2)
    with torch.no_grad():
        logits, _ = model.model(torch.tensor([list(track.ids)]))
    np.testing.assert_allclose(trace["logits"], logits[0], atol=1e-10)
    share = logits[0].softmax(-1)
    told = trace.about["next"]
    assert told["ids"] == share.topk(3).indices.tolist() and told["taken"][-1] is None
    assert math.isclose(told["taken"][0], float(share[0, track.ids[1]].log()), abs_tol=1e-4)
    np.testing.assert_allclose(trace["next"], share[-1].log(), atol=1e-10)
    assert "saliency" not in trace and "saliency" in model.trace(text, tensors="saliency")


def test_tokens_that_share_a_character_show_it_whole():
    trace = generator(GPT(GPTConfig(1, 12, heads=3, max_length=32), len(TOKENIZER))).trace("the 语", tensors="weights")
    assert trace.tracks["tokens"].labels[-3:] == ("语₁", "语₂", "语₃")
    assert trace.tracks["tokens"].spelled == ("the", "语")


def test_2000_tokens_of_one_head_stay_within_a_stated_size(tmp_path: Path):
    """A byte for each pair of tokens, and at most 256 for all that is said of a token."""
    places = 2000
    model = generator(GPT(GPTConfig(2, 12, heads=3, max_length=places), len(TOKENIZER)), places)
    trace = model.trace("the" + " cat" * (places - 1), layers=[1], heads=[2], tensors="weights")
    assert trace.attention().shape == (1, 1, places, places) and len(trace.about["next"]["ids"]) == places
    size = trace.save(tmp_path / "long.safetensors", "uint8").stat().st_size
    assert places**2 < size <= places**2 + 256 * places


@pytest.mark.parametrize("task", ["ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "Model"])
def test_an_imported_bert_shows_what_transformers_shows(tmp_path: Path, task):
    theirs = write_encoder(tmp_path / "bert", task, attn_implementation="eager")
    encoder = headway.load(tmp_path / "bert", "cpu")
    for given in (("the cats sat on a mat.",), ("how old are you?", "the dogs ran")):
        inputs = their_inputs(tmp_path / "bert", [given if len(given) > 1 else given[0]])
        with torch.no_grad():
            expected = theirs(**inputs, output_attentions=True, output_hidden_states=True)
        trace = encoder.trace(*given)
        assert trace.tracks["tokens"].ids == tuple(inputs["input_ids"][0].tolist())
        np.testing.assert_allclose(trace.attention(), torch.cat(expected.attentions), atol=2e-5)
        hidden = torch.cat(expected.hidden_states).numpy()
        np.testing.assert_allclose(trace["embed.hidden"], hidden[0], atol=2e-5)
        np.testing.assert_allclose(trace.stacked("encoder", "hidden"), hidden[1:], atol=2e-5)
        if "logits" in expected:
            np.testing.assert_allclose(trace["logits"], expected.logits[0], atol=5e-5)
        assert ("next" in trace) == (task == "ForMaskedLM")


def test_the_rows_of_a_padded_batch_show_what_transformers_shows(tmp_path: Path):
    theirs = write_encoder(tmp_path / "bert", "Model", attn_implementation="eager")
    model = headway.load(tmp_path / "bert", "cpu").model
    inputs = their_inputs(tmp_path / "bert", ["the cats sat on a mat.", "a dog"])
    lengths = inputs["attention_mask"].sum(1)
    with torch.no_grad():
        expected = theirs(**inputs, output_attentions=True, output_hidden_states=True)
        with headway.trace(model, tensors=["weights", "hidden", "mask"]) as t:
            model(TextInputs(inputs["input_ids"], lengths))
    assert lengths.tolist() == [10, 4]
    for row, length in enumerate(lengths.tolist()):
        trace = t.row(row, tokens=length)
        weights = np.stack([layer[row, :, :length, :length] for layer in expected.attentions])
        hidden = np.stack([layer[row, :length] for layer in expected.hidden_states[1:]])
        np.testing.assert_allclose(trace.attention(), weights, atol=2e-5)
        np.testing.assert_allclose(trace.stacked("encoder", "hidden"), hidden, atol=2e-5)
        assert trace["encoder.0.attention.mask"].all()
    assert not t.tensors["encoder.0.attention.mask"][1, :, 4:].any()


def test_the_tokens_of_a_pair_know_their_text_and_their_words(tmp_path: Path):
    write_encoder(tmp_path / "bert", "Model")
    track = headway.load(tmp_path / "bert", "cpu").trace("how old are you?", "the dogs ran", tensors="weights")
    tokens = track.tracks["tokens"]
    assert tokens.labels == ("[CLS]", "how", "old", "are", "you", "?", "[SEP]", "the", "dog", "s", "ran", "[SEP]")
    assert tokens.specials == (0, 6, 11) and tokens.words == (-1, 0, 1, 2, 3, 4, -1, 5, 6, 6, 7, -1)
    gap = headway.load(tmp_path / "bert", "cpu").trace("the [MASK] sat", tensors="weights").tracks["tokens"]
    assert gap.labels == ("[CLS]", "the", "[MASK]", "sat", "[SEP]") and gap.specials == (0, 4)
    assert tokens.spelled == ("how", "old", "are", "you", "?", "the", "dogs", "ran")
    for at, (start, end) in enumerate(tokens.spans):
        assert tokens.text[start:end] == ("" if at in tokens.specials else tokens.labels[at])


WITHOUT = {
    "lstm": lambda v: Recurrent(RecurrentConfig(width=7, layers=2), v),
    "gru": lambda v: Recurrent(RecurrentConfig(Gru(), width=7, layers=1, tied=True), v),
    "bag": lambda v: Rung(RUNGS["bow"], v),
    "neural n-gram": lambda v: NeuralNGram(NeuralNGramConfig(order=3, width=6, hidden=6, tied=True), v),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_models_without_attention_give_the_saliency_of_finite_differences(name):
    """‖∂ log p / ∂e_s ⊙ e_s‖, each derivative by moving one number of one token's vector a little either way."""
    torch.manual_seed(0)
    model = generator(WITHOUT[name](len(TOKENIZER)))
    text = "the cat sat, cat sat"
    trace = model.trace(text)
    ids = trace.tracks["tokens"].ids
    assert len(set(ids)) < len(ids), "a word that comes twice has a column for each time"
    table = next(part for part in model.model.modules() if isinstance(part, torch.nn.Embedding))
    vectors = table.weight.detach()[list(ids)]

    def said(changed: torch.Tensor) -> torch.Tensor:
        def look_up(_, given, output):
            # As the model calls it: one row for each token, or for each that is seen from there.
            found = output.clone()
            for at, moved in enumerate(changed):
                if found.dim() == 3:
                    found[0, at] = moved
                else:
                    for place in range(at, min(at + found.shape[2], found.shape[1])):
                        found[0, place, found.shape[2] - 1 - (place - at)] = moved
            return found

        handle = table.register_forward_hook(look_up)
        logp = model.model(torch.tensor([ids]))[0][0].log_softmax(-1).detach()
        handle.remove()
        taken = torch.tensor([*ids[1:], int(logp[-1].argmax())])
        return logp[torch.arange(len(ids)), taken]

    expected, step = np.zeros((len(ids), len(ids))), 1e-6
    for s in range(len(ids)):
        slopes = []
        for unit in range(vectors.shape[1]):
            more, less = vectors.clone(), vectors.clone()
            more[s, unit] += step
            less[s, unit] -= step
            slopes.append((said(more) - said(less)) / (2 * step) * vectors[s, unit])
        expected[:, s] = torch.stack(slopes).norm(dim=0)
    np.testing.assert_allclose(trace["saliency"], expected, atol=1e-6)
    assert (np.triu(trace["saliency"], 1) == 0).all() and expected.max() > 1e-3
    with torch.inference_mode():
        np.testing.assert_array_equal(model.trace(text)["saliency"], trace["saliency"])


def test_gates_come_through_the_same_door():
    trace = generator(Recurrent(RecurrentConfig(width=7, layers=2), len(TOKENIZER))).trace("the cat", layers=[1])
    assert {name for name in trace if name.startswith("stack.")} == {
        f"stack.1.{gate}" for gate in ("input", "forget", "candidate", "output", "hidden", "cell")
    }
    c, i, f, g = (trace[f"stack.1.{name}"] for name in ("cell", "input", "forget", "candidate"))
    np.testing.assert_allclose(c[1], f[1] * c[0] + i[1] * g[1], atol=1e-10)


def test_a_module_is_recorded_and_its_rows_are_cut_out(tmp_path: Path):
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(2, 2, 12, 20, 3, max_length=16), 19, 19).double().eval()
    source, target, lengths = torch.randint(4, 19, (2, 6)), torch.randint(4, 19, (2, 5)), torch.tensor([6, 3])
    with headway.trace(model, tensors=["weights", "hidden"]) as t:
        model(source, target, lengths)
    short = t.row(1, source=3)
    assert short["decoder.1.cross.weights"].shape == (3, 5, 3)
    np.testing.assert_allclose(short.attention().sum(-1), 1)
    with headway.trace(model) as alone:
        model(source[1:, :3], target[1:])
    for name in short:
        np.testing.assert_allclose(short[name], alone.row()[name], atol=1e-12, err_msg=name)
    back = Trace.load(short.save(tmp_path / "row", "float32"))
    np.testing.assert_allclose(back.attention(), short.attention(), atol=1e-6)
    with pytest.raises(InputError, match="no track 'tokens'; there is: source, target"):
        t.row(0, tokens=3)
    assert not tap.recording()


def test_steps_are_no_text_that_is_read_at_once():
    model = GPT(GPTConfig(1, 12, heads=3, max_length=16), 19).eval()
    with headway.trace(model) as t, torch.no_grad():
        _, state = model(torch.randint(19, (1, 4)), model.start(None, 1, CPU))
        model(torch.randint(19, (1, 1)), state)
    assert t.tensors["decoder.0.attention.weights"].shape == (1, 3, 1, 5)
    with pytest.raises(InputError, match="read step by step"):
        t.row()


def test_a_model_goes_by_a_name_that_tells_it_from_others(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given, told in {
        "runs/mine": "mine", "bert-base/model": "bert-base", "bert-base/model/": "bert-base", "runs/mine/best": "mine",
        "/model": "model", ".": tmp_path.name, "model": tmp_path.name,
    }.items():  # fmt: skip
        assert called(given) == told
    write_encoder(tmp_path / "small-bert" / "model", "Model")
    assert headway.load(tmp_path / "small-bert" / "model", "cpu").trace("a cat").about["model"] == "small-bert"


def test_what_cannot_be_traced_is_one_clear_line(translator, tmp_path: Path):
    write_encoder(tmp_path / "bert", "Model")
    encoder = headway.load(tmp_path / "bert", "cpu")
    model = generator(GPT(GPTConfig(2, 12, heads=3, max_length=32), len(TOKENIZER)))
    counts = NGram.count(NGramConfig(2), 9, np.array([2, 5, 6, 7, 5, 6, 2]))
    nothing = "there is nothing to trace: give a text that is not empty"
    many = "trace takes one text, not a list: write text, not \\[text\\]$"
    for work, said in {
        lambda: translator.trace([TEXT]): many,
        lambda: translator.trace(TEXT, ["Il conduit"]): many,
        lambda: model.trace(["a cat"]): many,
        lambda: encoder.trace(["a cat"]): many,
        lambda: encoder.trace("a cat", ["a dog"]): many,
        lambda: translator.trace(TEXT, ""): nothing,
        lambda: translator.trace(TEXT, " "): nothing,
        lambda: translator.trace("  "): nothing,
        lambda: model.trace(""): nothing,
        lambda: encoder.trace(""): nothing,
        lambda: encoder.trace("a cat", ""): nothing,
        lambda: translator.trace("car " * 400): r"sentence 1 has \d+ tokens, this model takes at most \d+: split it",
        lambda: translator.trace("car", "car " * 400): "the target has .* tokens, this model takes at most",
        lambda: model.trace("cat " * 50): r"the text has \d+ tokens, this model reads at most 32: shorten it",
        lambda: encoder.trace("cat " * 50): "text 1 has 52 tokens, this model takes at most 24: shorten it$",
        lambda: model.trace("a cat", layers=[2]): "there is no layer 2: this model has 2, counted from 0",
        lambda: model.trace("a cat", heads=[5]): "there is no head 5: this model has 3, counted from 0",
        lambda: model.trace("a cat", tensors="wieghts"): "nothing in this model goes by the name of wieghts",
        lambda: Generator(counts, TOKENIZER, context=9, device=CPU).trace("a"): r"a model that counts \(ngram\)",
        lambda: headway.trace("model").__enter__(): "trace looks into a model, not into str",
    }.items():
        with pytest.raises(InputError, match=said) as caught:
            work()
        assert "\n" not in str(caught.value)
    assert not tap.recording()
