"""The recurrent encoder-decoder: as torch.nn and plain loops have it, whole, in steps, padded and in a search."""

import itertools
from dataclasses import replace

import pytest
import torch
from rnn_pairs import (
    ATTENTIVE,
    CONVOLVED,
    CPU,
    EACH,
    LENGTHS,
    SMALL,
    build,
    context,
    each_config,
    hand_logits,
    hand_started,
    pairs,
    score,
    torch_encoder,
)
from targets import (
    check_fixed_room,
    check_greedy,
    check_padded_batch,
    check_padded_targets,
    check_read_in_parts,
    check_several_sources,
)
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headway.batch import TextInputs
from headway.errors import InputError
from headway.generate.offline import search_all
from headway.generate.saliency import source_saliency
from headway.generate.search import Search
from headway.models import build as build_model
from headway.models.recurrent import Lstm
from headway.models.transformer import TransformerConfig
from headway.nn import tap
from headway.nn.attention import Additive, attend
from headway.plain import change
from headway.tasks.objective import TokenObjective
from headway.text.tokenizer import END, START


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
def test_a_target_read_in_parts_is_the_target_read_whole(config):
    check_read_in_parts(build(config), *pairs(), LENGTHS)


@each_config
def test_padded_targets_continue_as_each_would_alone(config):
    check_padded_targets(build(config), *pairs(), LENGTHS)


@each_config
def test_a_padded_batch_gives_what_single_rows_give_gradients_too(config):
    check_padded_batch(build(config), *pairs(), LENGTHS)


@each_config
def test_several_sources_in_one_room_step_as_each_would_alone(config):
    check_several_sources(build(config), *pairs(), LENGTHS)


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


def test_a_recurrent_translator_is_captured_not_compiled():
    """Its loops would be written out, and its layers are kernels already."""
    assert TokenObjective(build(SMALL)).small_kernels
    assert not TokenObjective(build_model("transformer", TransformerConfig(), (30, 30))).small_kernels


def exhaustive(model, source, longest, alpha):
    found = []
    for n in range(longest + 1):
        for body in itertools.product([v for v in range(model.vocabulary) if v != END], repeat=n):
            logp = model(torch.tensor([source]), torch.tensor([[START, *body]])).log_softmax(-1)[0]
            total = sum(logp[t, y].item() for t, y in enumerate([*body, END]))
            found.append((total / (n + 1) ** alpha, list(body)))
    return sorted(found, key=lambda item: -item[0])


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, cell=Lstm()), CONVOLVED], ids=["gru", "lstm", "convolved"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@torch.no_grad()
def test_a_wide_beam_is_exhaustive_search(config, alpha):
    model = build(replace(config, decoder_layers=2), 5, sharp=3.0, seed=1)
    source, longest = [4, 3, 4, END], 3
    expected = exhaustive(model, source, longest, alpha)[:6]
    search = Search(beam=64, length_penalty=alpha, best=6, finish="bound", max_ratio=0, max_extra=longest)
    (found,) = search_all(model, [source], search, limit=64, device=CPU)
    assert [hypothesis.ids for hypothesis in found] == [ids for _, ids in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected], rel=1e-6)


@pytest.mark.parametrize("kind", ["lstm", "plain", "before", "feeding", "convolved"])
def test_steps_in_a_fixed_room_give_what_each_source_gives_alone(kind):
    check_fixed_room(build((EACH | {"convolved": CONVOLVED})[kind], sharp=4.0))


@pytest.mark.parametrize("captured", [False, True])
def test_greedy_samples_are_a_beam_of_one_and_both_are_the_best_token_each_time(captured):
    check_greedy(build(EACH["lstm"], sharp=4.0), captured)


@pytest.mark.parametrize("kind", ["plain", "before"])
def test_saliency_of_the_source_is_the_gradient_of_each_word_written(kind):
    model = build(EACH[kind])
    source, read, taken = [4, 5, 4, 2], [1, 7, 8], [7, 8, 2]
    found = source_saliency(model, source, read, taken)
    rows = model.embed_source.table.weight.detach()[source]
    with torch.no_grad():
        for s, t in ((0, 0), (2, 1), (3, 2)):
            slopes = []
            for unit in range(rows.shape[1]):
                said = [log_p(model, rows, read, taken, s, unit, step)[t] for step in (1e-6, -1e-6)]
                slopes.append((said[0] - said[1]) / 2e-6)
            torch.testing.assert_close(found[t, s], (torch.stack(slopes) * rows[s]).norm(), rtol=1e-5, atol=1e-9)


def log_p(model, rows, read, taken, place, unit, step):
    """Of each word written, with one number of one source vector moved a little."""
    moved = rows.clone()
    moved[place, unit] += step
    table = nn.Embedding.from_pretrained(moved)
    kept, model.embed_source.table = model.embed_source.table, table
    state = model.start(TextInputs(torch.arange(len(rows))[None]), 1, CPU)
    model.embed_source.table = kept
    logits = model.logits(torch.tensor([read]), state)[0][0]
    return logits.log_softmax(-1).gather(1, torch.tensor(taken)[:, None])[:, 0]
