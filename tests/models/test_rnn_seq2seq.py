"""The recurrent encoder-decoder: as torch.nn and plain loops have it, the same whole, in steps, padded and in a search;
and a run of it that trains, resumes, predicts, is evaluated, compared and explored as any other."""

import itertools
import json
import math
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO

import pytest
import torch
from rooms import joined
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headway.batch import TextInputs, TextRow
from headway.cli.app import main
from headway.errors import InputError
from headway.generate.offline import generate_all, search_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.generate.search import Search
from headway.generate.stepper import GraphStepper
from headway.models.recurrent import Gru, Lstm, Rnn
from headway.models.rnn_seq2seq import RnnSeq2Seq, RnnSeq2SeqConfig
from headway.nn import tap
from headway.nn.attention import Additive, attend
from headway.plain import change
from headway.recipes import RECIPES
from headway.tasks.loading import load
from headway.text.tokenizer import END, START
from headway.train.job import train
from headway.train.log import Log
from headway.train.loop import Training
from small_world import surroundings, write_pairs

CPU = torch.device("cpu")
SMALL = RnnSeq2SeqConfig(width=12, dropout=0.3, max_length=64)
EACH = {
    "gru": SMALL,
    "lstm": replace(SMALL, cell=Lstm(), encoder_layers=2, decoder_layers=2, embeddings="separate"),
    "rnn": replace(SMALL, cell=Rnn(), decoder_layers=2, embeddings="tied"),
}
each_config = pytest.mark.parametrize("config", EACH.values(), ids=EACH)
LENGTHS = torch.tensor([6, 1, 4])


def build(config, vocabulary=30, sharp=1.0, seed=0):
    torch.manual_seed(seed)
    model = RnnSeq2Seq(config, vocabulary, vocabulary).double().eval()
    with torch.no_grad():
        model.head.weight.mul_(sharp)
    return model


def pairs(vocabulary=30):
    generator = torch.Generator().manual_seed(1)
    return (torch.randint(vocabulary, (3, length), generator=generator) for length in (6, 5))


def copied(oracle, cells):
    """torch's module with the weights of these cells, one for each layer and direction."""
    ends = [name.removeprefix("weight_ih") for name, _ in oracle.named_parameters() if name.startswith("weight_ih")]
    with torch.no_grad():
        for end, cell in zip(ends, cells, strict=True):
            getattr(oracle, f"weight_ih{end}").copy_(cell.from_input.weight)
            getattr(oracle, f"weight_hh{end}").copy_(cell.from_state.weight)
            getattr(oracle, f"bias_ih{end}").copy_(cell.from_input.bias)
            bias = cell.from_state.bias
            getattr(oracle, f"bias_hh{end}").copy_(torch.zeros_like(cell.from_input.bias) if bias is None else bias)
    return oracle


def oracles(model):
    config = model.config
    kind = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}[config.cell.name]
    how = {"batch_first": True, "dtype": torch.float64}
    both = [part.cell for layer in model.encoder.layers for part in (layer.forwards, layer.backwards)]
    encoder = kind(config.width, config.width // 2, config.encoder_layers, bidirectional=True, **how)
    decoder = kind(config.width, config.width, config.decoder_layers, **how)
    return copied(encoder, both), copied(decoder, [layer.cell for layer in model.decoder.layers])


def contexts(cross, d_TD, h_SD):
    """Σ_s a_ts h_s with a_t = softmax_s(vᵀ tanh(W₁d_t + W₂h_s)), number by number."""
    found = []
    for d_D in d_TD:
        scores = [cross.score.v.weight[0] @ torch.tanh(cross.query.weight @ d_D + cross.key_value.weight @ h_D)
                  for h_D in h_SD]  # fmt: skip
        powers = [math.exp(score) for score in scores]
        found.append(sum(power / sum(powers) * h_D for power, h_D in zip(powers, h_SD, strict=True)))
    return torch.stack(found)


@each_config
@torch.no_grad()
def test_the_model_is_torchs_layers_with_a_written_out_attention_between(config):
    model, (source, target) = build(config), pairs()
    encoder, decoder = oracles(model)
    packed = pack_padded_sequence(model.embed_source(source), LENGTHS, batch_first=True, enforce_sorted=False)
    h_BSD, _ = pad_packed_sequence(encoder(packed)[0], batch_first=True)
    found = model.encode(TextInputs(source, LENGTHS)).x_BTD
    layers, width, top = config.decoder_layers, config.width, model.decoder.layers[-1]
    for row, length in enumerate(LENGTHS.tolist()):
        h_SD = h_BSD[row, :length]
        torch.testing.assert_close(found[row, :length], h_SD)
        first = torch.tanh(model.first(h_SD[0, width // 2 :])).view(layers, -1, 1, width).transpose(0, 1)
        states = tuple(part.contiguous() for part in first)
        d_TD = decoder(model.embed_target(target[row : row + 1]), states if len(states) > 1 else states[0])[0][0]
        mixed_TD = contexts(top.cross, d_TD, h_SD)
        logits = torch.tanh(top.cross.output(mixed_TD) + top.combine(d_TD)) @ model.head.weight.T
        torch.testing.assert_close(model(source, target, LENGTHS)[row], logits)


@torch.no_grad()
def test_the_score_is_the_additive_part_with_its_keys_mapped_once():
    model = build(SMALL)
    cross, score = model.decoder.layers[-1].cross, Additive(12, 12, 12).double()
    for mine, its in ((score.query, cross.query), (score.key, cross.key_value), (score.v, cross.score.v)):
        mine.weight.copy_(its.weight)
    d, h = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    memory = cross.remember(h)
    expected, weights = attend(d[:, None], h[:, None], h[:, None], score=score)
    found, same = attend(cross.query(d)[:, None], memory.k_BHSK, memory.v_BHSK, score=cross.score)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(same, weights)


@each_config
@torch.no_grad()
def test_a_target_read_in_parts_is_the_target_read_whole(config):
    model, (source, target) = build(config), pairs()
    whole = model(source, target, LENGTHS)
    for cuts in ((1, 2, 3, 4), (3,)):
        state, parts = model.start(TextInputs(source, LENGTHS), 3, CPU), []
        for part in target.tensor_split(cuts, dim=1):
            logits, state = model.logits(part, state)
            parts.append(logits)
        torch.testing.assert_close(torch.cat(parts, 1), whole)


@each_config
@torch.no_grad()
def test_padded_targets_continue_as_each_would_alone(config):
    model, (source, target) = build(config), pairs()
    lengths = torch.tensor([5, 2, 0])
    _, state = model.read(target, model.start(TextInputs(source, LENGTHS), 3, CPU), lengths_R=lengths)
    together, _ = model.logits(target[:, :2], state)
    for row, length in enumerate(lengths.tolist()):
        alone = torch.cat([target[row, :length], target[row, :2]])[None]
        expected = model(source[row : row + 1, : LENGTHS[row]], alone)[0, length:]
        torch.testing.assert_close(together[row], expected)


@each_config
def test_a_padded_batch_gives_what_single_rows_give_gradients_too(config):
    """What padding holds must not matter, to values or to weights."""
    model, (source, target) = build(config), pairs()
    model(source, target, LENGTHS).square().sum().backward()
    together = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(model(source, target, LENGTHS)[row], alone[0])
        alone.square().sum().backward()
    torch.testing.assert_close({name: weight.grad for name, weight in model.named_parameters()}, together)


@each_config
@torch.no_grad()
def test_several_sources_in_one_room_step_as_each_would_alone(config):
    model, (source, target) = build(config), pairs()
    states = []
    for row, length in enumerate(LENGTHS.tolist()):
        state = model.start(TextInputs(source[row : row + 1, :length], LENGTHS[row : row + 1]), 1, CPU, room=8)
        state.widen(2)
        states.append(model.read(target[[row, row], :2], state)[1])
    logits, _ = model.logits(target.repeat_interleave(2, 0)[:, 2:], joined(states, 8, 6))
    torch.testing.assert_close(logits[::2], model(source, target, LENGTHS)[:, 2:])
    torch.testing.assert_close(logits[::2], logits[1::2])


@each_config
@torch.no_grad()
def test_a_trace_changes_nothing_and_its_cross_weights_are_over_the_sources_own_tokens(config):
    model, (source, target) = build(config), pairs()
    expected = model(source, target, LENGTHS)
    with tap.record(model) as seen:
        torch.testing.assert_close(model(source, target, LENGTHS), expected)
    weights = seen.tensors[f"decoder.{config.decoder_layers - 1}.cross.weights"]
    own = torch.arange(6) < LENGTHS[:, None, None, None]
    torch.testing.assert_close(weights.masked_fill(~own, 0).sum(-1), torch.ones(3, 1, 5).double())
    assert not weights.masked_fill(own, 0).any()
    for half, direction in enumerate(("forwards", "backwards")):  # of the last layer, at the tokens they belong to
        name = f"encoder.{config.encoder_layers - 1}.{direction}.hidden"
        whole = model.encode(TextInputs(source, LENGTHS)).x_BTD.chunk(2, -1)[half]
        torch.testing.assert_close(seen.tensors[name], whole)


def test_dropout_is_drawn_in_training_only():
    model, (source, target) = build(SMALL), pairs()
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))


def test_a_width_that_is_not_even_is_refused():
    with pytest.raises(InputError, match=r"model\.width 5 is not even"):
        change(SMALL, ["width=5"])


def exhaustive(model, source, longest, alpha):
    found = []
    for n in range(longest + 1):
        for body in itertools.product([v for v in range(model.vocabulary) if v != END], repeat=n):
            logp = model(torch.tensor([source]), torch.tensor([[START, *body]])).log_softmax(-1)[0]
            total = sum(logp[t, y].item() for t, y in enumerate([*body, END]))
            found.append((total / (n + 1) ** alpha, list(body)))
    return sorted(found, key=lambda item: -item[0])


@pytest.mark.parametrize("cell", [Gru(), Lstm()])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@torch.no_grad()
def test_a_wide_beam_is_exhaustive_search(cell, alpha):
    model = build(replace(SMALL, cell=cell, decoder_layers=2), 5, sharp=3.0, seed=1)
    source, longest = [4, 3, 4, END], 3
    expected = exhaustive(model, source, longest, alpha)[:6]
    search = Search(beam=64, length_penalty=alpha, best=6, finish="bound", max_ratio=0, max_extra=longest)
    (found,) = search_all(model, [source], search, limit=64, device=CPU)
    assert [hypothesis.ids for hypothesis in found] == [ids for _, ids in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected], rel=1e-6)


def sources(count=14):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (count,), generator=generator).tolist()
    return [[*torch.randint(4, 30, (n,), generator=generator).tolist(), END] for n in lengths]


class Uncaptured(GraphStepper):
    """A stepper of captured steps whose steps are run instead of replayed, so that no GPU is needed."""

    class Replay:
        def __init__(self, step):
            self.replay = step

    def _graph(self, step, restore):
        step()
        restore()
        return self.Replay(step)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_steps_in_a_fixed_room_give_what_each_source_gives_alone(kind):
    model, search = build(EACH[kind], sharp=4.0), Search(beam=3, best=2, max_ratio=3, max_extra=9)
    alone = [search_all(model, [source], search, limit=64, device=CPU)[0] for source in sources()]
    for stepper, batch in ((None, 5), (Uncaptured(model), 14), (Uncaptured(model), 6)):
        together = search_all(model, sources(), search, limit=64, device=CPU, stepper=stepper, batch=batch)
        for a, b in zip(alone, together, strict=True):
            assert [h.ids for h in a] == [h.ids for h in b]
            assert [h.score for h in a] == pytest.approx([h.score for h in b], rel=1e-6)


@pytest.mark.parametrize("captured", [False, True])
@torch.no_grad()
def test_greedy_samples_are_a_beam_of_one_and_both_are_the_best_token_each_time(captured):
    model, greedy = build(EACH["lstm"], sharp=4.0), Sampling(0)
    given = [
        Request([START], greedy, 12, frozenset({END}), inputs=TextRow(source)) for source in sources(6)
    ]  # fmt: skip
    written = generate_all(model, given, context=64, device=CPU, stepper=Uncaptured(model) if captured else None)
    search = Search(beam=1, max_ratio=0, max_extra=12)
    for source, (sample,) in zip(sources(6), written, strict=True):
        ids = [START]
        while len(ids) <= 12 and ids[-1] != END:
            ids.append(int(model(torch.tensor([source]), torch.tensor([ids]))[0, -1].argmax()))
        assert [i for i in sample.ids if i != END] == [i for i in ids[1:] if i != END]
        ((found,),) = search_all(model, [source], search, limit=64, device=CPU)
        if ids[-1] == END:
            assert found.ids == ids[1:-1]


SETTINGS = (
    "engine.batch=512", "engine.snapshot=4", "engine.log=5", "engine.average=3", "engine.checkpoint=6",
    "model.width=16", "model.max_length=64", "model.dropout=0.1", "data.text.size=300", "data.text.min_count=1",
    "schedule.peak=0.01", "schedule.warmup=10", "search.beam=2", "validation.every=8", "validation.score_every=12",
    "validation.sentences=3", "data.source=en", "data.target=fr",
)  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    root = tmp_path_factory.mktemp("text")
    with surroundings(root / "cache"):
        write_pairs(root, 150, 10, 10)
        yield root


def trained(text, out, *settings, resume=False):
    files = [f"data.{part}={text / f'{part}.en'},{text / f'{part}.fr'}" for part in ("train", "valid")]
    run = change(RECIPES["translate-rnn"].make(), ["engine.device=cpu", *SETTINGS, *files, *settings])
    out.mkdir(exist_ok=True)
    log = Log(out, quiet=True)
    try:
        train(run, out, log, resume=resume)
    finally:
        log.close()
    return out


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    return trained(text, tmp_path_factory.mktemp("run"), "engine.steps=24")


def call(*arguments):
    """The command in this process: its standard output."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    assert left.value.code == 0, err.getvalue()
    return out.getvalue()


@pytest.mark.parametrize("cell", ["gru", pytest.param("lstm", marks=pytest.mark.long)])
def test_a_run_that_fails_and_is_resumed_ends_as_one_that_never_did(text, run, cell, tmp_path, monkeypatch):
    settings = ("engine.steps=24", f"model.cell={cell}")
    expected = run if cell == "gru" else trained(text, tmp_path / "undisturbed", *settings)
    advance, failures = Training.advance, {15}

    def fail(training, batch):
        if training.progress.step + 1 in failures:
            failures.clear()
            raise RuntimeError("the power is gone")
        advance(training, batch)

    monkeypatch.setattr(Training, "advance", fail)
    with pytest.raises(RuntimeError, match="power"):
        trained(text, tmp_path / "failed", *settings)
    found = trained(text, tmp_path / "failed", *settings, resume=True)
    weights = load_file(expected / "model" / "model.safetensors")
    torch.testing.assert_close(load_file(found / "model" / "model.safetensors"), weights, rtol=0, atol=0)


def losses(run):
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_the_loss_falls(run):
    assert losses(run)[-1] < 0.9 * losses(run)[0]


def test_a_trained_model_answers_is_evaluated_and_samples(text, run):
    sentences = (text / "test.en").read_text(encoding="utf-8").splitlines()[:3]
    model = load(run, "cpu")
    answers = call("predict", run, "--text", *sentences, "--device", "cpu").splitlines()
    assert answers == [" ".join(one.split()) for one in model.translate(sentences)]
    assert model.sample(sentences, temperature=0, max_new=9) == model.sample(
        sentences, temperature=0, max_new=9, batch=1
    )
    report = json.loads(call("evaluate", run, text / "test.en", text / "test.fr", "--device", "cpu", "--json"))
    assert 0 <= report["bleu"] <= 100


def test_its_attention_can_be_read_and_its_page_written(text, run, tmp_path):
    sentence = (text / "test.en").read_text(encoding="utf-8").splitlines()[0]
    trace = load(run, "cpu").trace(sentence)
    assert ("decoder", "cross") in trace.sites()
    (weights,) = trace.attention("decoder", "cross")
    assert weights.shape == (1, len(trace.tracks["target"]), len(trace.tracks["source"]))
    assert weights.sum(-1) == pytest.approx(1.0, abs=1e-5)
    call("explore", run, "--text", sentence, "--html", tmp_path / "page.html", "--device", "cpu")
    assert "data-packed" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_it_is_compared_with_the_transformer(text, tmp_path):
    settings = ["engine.steps=10", *(s for s in SETTINGS if not s.startswith(("validation.every", "validation.score")))]
    files = [option for part, name in (("train", "data"), ("valid", "valid"), ("test", "test"))
             for option in (f"--{name}", text / f"{part}.en", text / f"{part}.fr")]  # fmt: skip
    both = ["translate", "translate-rnn"]
    called = ["compare", *both, *files, "--out", tmp_path / "out", "--device", "cpu", "--json", "--set", *settings]
    results = json.loads(call(*called, "model.encoder_layers=1", "model.decoder_layers=1"))
    assert [entry["name"] for entry in results["runs"]] == both
    assert (tmp_path / "out" / "comparison.png").stat().st_size > 5_000
