"""The recurrent encoder-decoder: as torch.nn and plain loops have it, the same whole, in steps, padded and in a search;
and a run of it that trains, resumes, predicts, is evaluated, compared and explored as any other."""

import itertools
import json
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
from headway.models.rnn_seq2seq import Dot, Multiplicative, NoAttention, RnnSeq2Seq, RnnSeq2SeqConfig, ScaledDot
from headway.nn import tap
from headway.nn.attention import Additive, attend
from headway.nn.recurrent import GRUCell, LSTMCell, RNNCell
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
PLAIN = replace(SMALL, attention=NoAttention(), direction="backwards", start="copied")
EACH = {
    "gru": SMALL,
    "lstm": replace(SMALL, cell=Lstm(), encoder_layers=2, decoder_layers=2, embeddings="separate"),
    "rnn": replace(SMALL, cell=Rnn(), decoder_layers=2, embeddings="tied"),
    "plain": replace(PLAIN, cell=Lstm(), encoder_layers=2, decoder_layers=2),
    "plain-gru": replace(PLAIN, direction="both", embeddings="separate", embedding=7, bias=True),
    "plain-rnn": replace(PLAIN, cell=Rnn(), direction="forwards"),
    "one-way": replace(SMALL, cell=Lstm(), direction="forwards", attention=Dot()),
    "reversed": replace(SMALL, direction="backwards", attention=Multiplicative(), bias=True),
    "before": replace(SMALL, cell=Lstm(), decoder_layers=2, form="before"),
    "before-scaled": replace(SMALL, form="before", attention=ScaledDot(), embeddings="separate", embedding=8),
    "feeding": replace(SMALL, cell=Lstm(), decoder_layers=2, form="feeding", attention=Multiplicative()),
    "feeding-dot": replace(SMALL, form="feeding", attention=Dot(), encoder_layers=2),
    "scaled": replace(SMALL, cell=Lstm(), attention=ScaledDot()),
}
ATTENTIVE = {name: config for name, config in EACH.items() if "plain" not in name}
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


def torch_encoder(model):
    config = model.config
    kind = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}[config.cell.name]
    both = [part.cell for layer in model.encoder.layers for part in (layer.forwards, layer.backwards)]
    how = {"batch_first": True, "bidirectional": True, "dtype": torch.float64}
    return copied(kind(config.narrow, config.width // 2, config.encoder_layers, **how), both)


def score(cross, kind, d_D, h_D):
    """Of one query and one key, as the papers write it."""
    if kind == "additive":
        return cross.score.v.weight[0] @ torch.tanh(cross.query.weight @ d_D + cross.key_value.weight @ h_D)
    if kind == "dot":
        return d_D @ h_D
    if kind == "multiplicative":
        return d_D @ cross.key_value.weight @ h_D
    return (cross.query.weight @ d_D) @ (cross.key_value.weight @ h_D) / len(d_D) ** 0.5


def context(cross, kind, d_D, h_SD):
    """Σ_s a_s h_s, number by number."""
    powers = [score(cross, kind, d_D, h_D).exp() for h_D in h_SD]
    return sum(power / sum(powers) * h_D for power, h_D in zip(powers, h_SD, strict=True))


def torch_cell(cell):
    """torch's cell with the same weights."""
    kind = {LSTMCell: nn.LSTMCell, GRUCell: nn.GRUCell, RNNCell: nn.RNNCell}[type(cell)]
    made = kind(cell.from_input.in_features, cell.width).double()
    with torch.no_grad():
        made.weight_ih.copy_(cell.from_input.weight)
        made.weight_hh.copy_(cell.from_state.weight)
        made.bias_ih.copy_(cell.from_input.bias)
        made.bias_hh.copy_(torch.zeros(()) if cell.from_state.bias is None else cell.from_state.bias)
    return made


def run_cell(cell, x_D, state):
    """The next state, as a tuple, of a single row."""
    given = state if len(state) > 1 else state[0]
    found = cell(x_D[None], tuple(part[None] for part in given) if len(state) > 1 else given[None])
    return tuple(part[0] for part in found) if len(state) > 1 else (found[0],)


def hand_encoded(model, ids):
    """h of each token, and the last state of each layer, by torch's cells step by step."""
    x, last = [row * model.config.narrow**0.5 for row in model.embed_source.table.weight[ids]], []
    for layer in model.encoder.layers:
        sides, ends = [], []
        for direction in model.config.directions:
            cell = torch_cell(getattr(layer, direction).cell)
            state = tuple(torch.zeros(cell.hidden_size).double() for _ in getattr(layer, direction).cell.parts)
            outputs = []
            for x_D in x if direction == "forwards" else x[::-1]:
                state = run_cell(cell, x_D, state)
                outputs.append(state[0])
            sides.append(outputs if direction == "forwards" else outputs[::-1])
            ends.append(state)
        x = [torch.cat(parts) for parts in zip(*sides, strict=True)]
        last.append(tuple(torch.cat(parts) for parts in zip(*ends, strict=True)))
    return torch.stack(x), last


def hand_started(model, h_SD, last):
    config = model.config
    if config.start == "copied":
        return list(last)
    seen = h_SD[-1] if config.direction == "forwards" else h_SD[0]
    mapped = torch.tanh(model.first.weight @ seen[-model.first.in_features :] + model.first.bias)
    given = iter(mapped.split(config.width))
    return [tuple(next(given) for _ in layer.cell.parts) for layer in model.decoder.layers]


def hand_logits(model, source, target):
    """The whole model for one pair, word by word."""
    config, kind = model.config, model.config.attention.name
    h_SD, last = hand_encoded(model, source)
    states, top, rows = hand_started(model, h_SD, last), model.decoder.layers[-1], []
    cells = [torch_cell(layer.cell) for layer in model.decoder.layers]
    fed = torch.zeros(config.width).double()
    for y in target:
        x = model.embed_target.table.weight[y] * config.narrow**0.5
        if config.form == "before":
            c = context(top.cross, kind, states[-1][0], h_SD)
            x = torch.cat([x, c])
        if config.form == "feeding":
            x = torch.cat([x, fed])
        for number, cell in enumerate(cells):
            states[number] = run_cell(cell, x, states[number])
            x = states[number][0]
        if kind != "none":
            c = c if config.form == "before" else context(top.cross, kind, x, h_SD)
            x = fed = torch.tanh(top.cross.output.weight @ c + top.combine.weight @ x + top.combine.bias)
        rows.append(model.head.weight @ (torch.cat([x, x.new_ones(1)]) if config.bias else x))
    return torch.stack(rows)


@each_config
@torch.no_grad()
def test_the_model_is_torchs_fused_encoder_packed_and_a_hand_written_decoder(config):
    model, (source, target) = build(config), pairs()
    found = model.encode(TextInputs(source, LENGTHS)).x_BTD
    if config.direction == "both":
        packed = pack_padded_sequence(model.embed_source(source), LENGTHS, batch_first=True, enforce_sorted=False)
        h_BSD, _ = pad_packed_sequence(torch_encoder(model)(packed)[0], batch_first=True)
        for row, length in enumerate(LENGTHS.tolist()):
            torch.testing.assert_close(found[row, :length], h_BSD[row, :length])
    logits = model(source, target, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(logits[row], hand_logits(model, source[row, :length], target[row]))


@pytest.mark.parametrize("form", ["before", "feeding"])
def test_gradients_are_those_of_the_hand_written_loop(form):
    model, (source, target) = build(replace(SMALL, form=form, cell=Lstm(), decoder_layers=2)), pairs()
    weights = [model.decoder.layers[0].cell.from_input.weight, model.decoder.layers[-1].cross.query.weight,
               model.first.weight, model.embed_source.table.weight]  # fmt: skip
    found = torch.autograd.grad(model(source[:1], target[:1]).square().sum(), weights)
    config, kind = model.config, model.config.attention.name
    h_SD, top, fed = model.encode(TextInputs(source[:1])).x_BTD[0], model.decoder.layers[-1], torch.zeros(12).double()
    states, total = hand_started(model, h_SD, []), 0.0
    for y in target[0]:
        x = model.embed_target.table.weight[y] * config.narrow**0.5
        c = context(top.cross, kind, states[-1][0], h_SD) if form == "before" else fed
        x = torch.cat([x, c])
        for number, layer in enumerate(model.decoder.layers):
            gates = layer.cell.from_input(x) + layer.cell.from_state(states[number][0])
            i, f, g, o = gates.chunk(4)
            cell = f.sigmoid() * states[number][1] + i.sigmoid() * g.tanh()
            states[number] = (o.sigmoid() * cell.tanh(), cell)
            x = states[number][0]
        c = c if form == "before" else context(top.cross, kind, x, h_SD)
        fed = torch.tanh(top.cross.output.weight @ c + top.combine(x))
        total = total + (model.head.weight @ fed).square().sum()
    for mine, its in zip(found, torch.autograd.grad(total, weights), strict=True):
        torch.testing.assert_close(mine, its)


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
def test_a_trace_changes_nothing_and_has_the_gates_at_their_tokens(config):
    model, (source, target) = build(config), pairs()
    expected = model(source, target, LENGTHS)
    with tap.record(model) as seen:
        torch.testing.assert_close(model(source, target, LENGTHS), expected)
    whole = model.encode(TextInputs(source, LENGTHS)).x_BTD.chunk(len(config.directions), -1)
    own = (torch.arange(6) < LENGTHS[:, None])[..., None]
    for part, direction in zip(whole, config.directions, strict=True):  # of the last layer, at their tokens
        hidden = seen.tensors[f"encoder.{config.encoder_layers - 1}.{direction}.hidden"]
        torch.testing.assert_close(hidden.masked_fill(~own, 0), part.masked_fill(~own, 0))
    for layer in range(config.decoder_layers):
        for gate in model.decoder.layers[layer].cell.gates if config.cell.name != "rnn" else ["hidden"]:
            assert seen.tensors[f"decoder.{layer}.{gate}"].shape == (3, 5, 12)


@pytest.mark.parametrize("config", ATTENTIVE.values(), ids=ATTENTIVE)
@torch.no_grad()
def test_cross_weights_are_those_of_the_score_over_the_sources_own_tokens(config):
    model, (source, target) = build(config), pairs()
    with tap.record(model) as seen:
        model(source, target, LENGTHS)
    top = config.decoder_layers - 1
    weights = seen.tensors[f"decoder.{top}.cross.weights"]
    own = torch.arange(6) < LENGTHS[:, None, None, None]
    torch.testing.assert_close(weights.masked_fill(~own, 0).sum(-1), torch.ones(3, 1, 5).double())
    assert not weights.masked_fill(own, 0).any()
    assert seen.tensors[f"decoder.{top}.attended"].shape == (3, 5, 12)
    h_SD = model.encode(TextInputs(source, LENGTHS)).x_BTD[0]
    d_TD = seen.tensors[f"decoder.{top}.hidden"][0]
    first = model.start(TextInputs(source, LENGTHS), 3, CPU)["layers"][-1].tensors[0][0]
    queries = torch.cat([first[None], d_TD[:-1]]) if config.form == "before" else d_TD
    cross = model.decoder.layers[-1].cross
    scores = [[score(cross, config.attention.name, d, h) for h in h_SD] for d in queries]
    torch.testing.assert_close(weights[0, 0], torch.tensor(scores).double().softmax(-1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["width=5"], r"model\.width 5 is not even"),
        (["attention=none", "form=before"], r"model\.form=before says where the attention stands"),
        (["start=copied", "decoder_layers=2"], r"1 and 2 layers do not fit"),
        (["embedding=6"], r"set model\.embeddings=separate"),
        (["embedding=-1"], r"model\.embedding must be at least 0"),
        (["attention=doot"], r"there is no 'doot'; did you mean 'dot'"),
    ],
)
def test_what_does_not_fit_is_refused(settings, message):
    with pytest.raises(InputError, match=message) as refused:
        change(SMALL, settings)
    assert "\n" not in str(refused.value)


def test_dropout_is_drawn_in_training_only():
    model, (source, target) = build(SMALL), pairs()
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))


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
