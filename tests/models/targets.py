"""Targets of an encoder-decoder, read whole, in parts, and padded: the same logits."""

import torch

from headway.batch import TextInputs

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
