"""An encoder-decoder's sources and targets, whole, in parts, padded, in one room and in a search: the same answers."""

import pytest
import torch
from rooms import joined

from headway.batch import TextInputs, TextRow
from headway.generate.offline import generate_all, search_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.generate.search import Search
from headway.text.tokenizer import END, START
from uncaptured import Uncaptured

CPU = torch.device("cpu")


@torch.no_grad()
def check_read_in_parts(model, source, target, lengths):
    whole = model(source, target, lengths)
    for cuts in ((1, 2, 3, 4), (3,)):
        state, found = model.start(TextInputs(source, lengths), len(source), CPU), []
        for part in target.tensor_split(cuts, dim=1):
            logits, state = model.logits(part, state)
            found.append(logits)
        torch.testing.assert_close(torch.cat(found, 1), whole)


@torch.no_grad()
def check_padded_targets(model, source, target, lengths):
    """Rows whose targets were read to different lengths continue as each would alone."""
    read = torch.tensor([5, 2, 0])
    _, state = model.read(target, model.start(TextInputs(source, lengths), 3, CPU), lengths_R=read)
    together, _ = model.logits(target[:, :2], state)
    for row, length in enumerate(read.tolist()):
        alone = torch.cat([target[row, :length], target[row, :2]])[None]
        expected = model(source[row : row + 1, : lengths[row]], alone)[0, length:]
        torch.testing.assert_close(together[row], expected)


def check_padded_batch(model, source, target, lengths):
    """What padding holds must not matter, to values or to weights."""
    model(source, target, lengths).square().sum().backward()
    together = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    for row, length in enumerate(lengths.tolist()):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(model(source, target, lengths)[row], alone[0])
        alone.square().sum().backward()
    torch.testing.assert_close({name: weight.grad for name, weight in model.named_parameters()}, together)


@torch.no_grad()
def check_several_sources(model, source, target, lengths):
    """In one room each steps as it would alone."""
    states = []
    for row, length in enumerate(lengths.tolist()):
        state = model.start(TextInputs(source[row : row + 1, :length], lengths[row : row + 1]), 1, CPU, room=8)
        state.widen(2)
        states.append(model.read(target[[row, row], :2], state)[1])
    logits, _ = model.logits(target.repeat_interleave(2, 0)[:, 2:], joined(states, 8, 6))
    torch.testing.assert_close(logits[::2], model(source, target, lengths)[:, 2:])
    torch.testing.assert_close(logits[::2], logits[1::2])


def sources(count=14):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (count,), generator=generator).tolist()
    return [[*torch.randint(4, 30, (n,), generator=generator).tolist(), END] for n in lengths]


def check_fixed_room(model):
    search = Search(beam=3, best=2, max_ratio=3, max_extra=9)
    alone = [search_all(model, [source], search, limit=64, device=CPU)[0] for source in sources()]
    for stepper, batch in ((None, 5), (Uncaptured(model), 14), (Uncaptured(model), 6)):
        together = search_all(model, sources(), search, limit=64, device=CPU, stepper=stepper, batch=batch)
        for a, b in zip(alone, together, strict=True):
            assert [h.ids for h in a] == [h.ids for h in b]
            assert [h.score for h in a] == pytest.approx([h.score for h in b], rel=1e-6)


@torch.no_grad()
def check_greedy(model, captured):
    """Greedy samples are a beam of one, and both are the best token each time."""
    greedy = Sampling(0)
    given = [Request([START], greedy, 12, frozenset({END}), inputs=TextRow(source)) for source in sources(6)]
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
