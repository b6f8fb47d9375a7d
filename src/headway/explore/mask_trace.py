"""Deck D's mask as a trace: how counting becomes attention, on the same page as any other model.

H one head, T words of a beginning, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from headway.errors import nearest, refuse
from headway.models.skips import SkipPairs, as_attention, learn_scores, mask_of
from headway.nn.attention import attend, dot
from headway.traces import Trace, Track

SITE = "mask.0.attention"
SENTENCES = (
    "check the program log and find out whether it ran please",
    "check the battery log and find out whether it ran down please",
)
PROGRAM_CASE = "check the program log and find out whether it ran"
BOUNDARY = 0
WORDS = sorted({word for text in SENTENCES for word in text.split()})  # their ids stand behind that of the boundary


def mask_trace(beginning: str = PROGRAM_CASE) -> Trace:
    """softmax(QKᵀ)V of every word over those before it: queries and values are one-hots, the keys are columns of the
    masks that were learned from the deck's two sentences, so that each word pulls its own mask out."""
    words = beginning.split()
    for word in words:
        refuse(word not in WORDS, f"the deck's sentences have no word '{word}'{nearest(word, WORDS)}")
    refuse(len(words) < 2, "a word looks at those before it: give a beginning of two words or more")
    ids, *texts = ([WORDS.index(word) + 1 for word in text.split()] for text in (beginning, *SENTENCES))
    stream = [BOUNDARY, *(i for text in texts for i in (*text, BOUNDARY))]
    pairs = SkipPairs.count(stream, len(WORDS) + 1, BOUNDARY)
    mask_VV = mask_of(pairs, learn_scores(pairs, stream))
    _, keys_11TV, values_11TV = as_attention([*ids, ids[-1]], mask_VV)
    queries_11TV = F.one_hot(torch.tensor(ids), len(mask_VV)).double()[None, None]
    visible_TT = torch.ones(len(ids), len(ids), dtype=torch.bool).tril(-1)
    mixed_11TV, weights_11TT = attend(queries_11TV, keys_11TV, values_11TV, visible_TT, score=dot)
    tensors = {
        "weights": weights_11TT[0], "scores": dot(queries_11TV, keys_11TV)[0], "queries": queries_11TV[0],
        "keys": keys_11TV[0], "values": values_11TV[0], "mixed": mixed_11TV[0],
    }  # fmt: skip
    squares = ("weights", "scores")
    axes: dict[str, tuple[str, ...]] = {
        f"{SITE}.{end}": ("head", "words", "words" if end in squares else "key_unit") for end in tensors
    }
    arrays = {f"{SITE}.{end}": tensor.float().numpy() for end, tensor in tensors.items()}
    arrays[f"{SITE}.mask"], axes[f"{SITE}.mask"] = visible_TT.numpy(), ("words", "words")
    track = Track("words", "tokens", tuple(words), tuple(ids), text=beginning)
    size = {"layers": 1, "heads": 1, "width": len(mask_VV)}
    return Trace({"words": track}, arrays, axes, {"family": "skip pairs", "model": "deck D's mask", "size": size})
