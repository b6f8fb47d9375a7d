"""From what the taps have seen to a trace: one row of it, with what a reader sees at each place.

T places, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import models
from torch import Tensor, nn

from headway.errors import InputError, refuse
from headway.generate.shown import Shown
from headway.models.configs import SIZES, family_of, sizes_of, tracks_of
from headway.models.encoder_decoder import EncoderDecoder
from headway.nn import tap
from headway.nn.attention import MultiHead
from headway.nn.tap import Choice, Recorder, chosen
from headway.text.codec import SPACE_MARK
from headway.traces import Trace, Track

Sides = Mapping[str, tuple[str, str]]  # a model's `tracks`: from which track each part looks to which
ONE_TEXT: Sides = {"": ("tokens", "tokens")}
TWO_TEXTS = EncoderDecoder.tracks
More = dict[str, tuple[Tensor, tuple[str, ...]]]  # tensors that no tap gives, with their axes
OPEN_SPACE = "␣"
UNTOLD = ("model", "best", "last")  # folder names that do not tell models apart


class Answering(Shown):
    """Abstract. What the page asks of any model that answers, and `headway.load` gives. name: how a reader calls it;
    takes: besides a text nothing ("one"), a second text that is read as one with the first ("pair"), or the text to
    write ("target"); limit: the most tokens (None: any number); tokenizers: of what is read, and of what is written,
    where that is text. task: that opened it from a folder."""

    takes: ClassVar = "one"
    task: Any = None
    limit: Any
    tokenizers: tuple[Any, Any]
    trace: Callable[..., Trace]

    @property
    def vocabulary(self) -> int:
        """Entries of what it writes; 0: it writes no tokens."""
        return len(self.tokenizers[1])

    @property
    def first_question(self) -> str:
        """What the page asks first where nothing is given; "": it waits for a text."""
        return ""

    def places(self, text: str) -> int:
        """How many places the trace of this text has, about."""
        return len(self.tokenizers[0].encode(text)) + 2


def sides(name: str, tracks: Sides) -> tuple[str, str]:
    """The tracks of a tensor (`decoder.3.cross.weights`), by its stack and part, by its stack, or those of the rest."""
    stack, *rest = [word for word in name.split(".") if not word.isdigit()]
    for key in (".".join([stack, *rest[:1]]), stack):
        if key in tracks:
            return tracks[key]
    return tracks[""]


def called(folder: str | Path) -> str:
    """How a reader calls a model: by its folder; where that says nothing (`bert-base/model`) by the one around it."""
    place = Path(folder).absolute()
    return place.parent.name if place.name in UNTOLD and place.parent.name else place.name


def described(model: nn.Module, name: str = "") -> dict[str, Any]:
    """What a trace says of its model."""
    first = next(model.parameters(), None)
    precision = "" if first is None else str(first.dtype).removeprefix("torch.")
    family, size = family_of(model), sizes_of(model)
    return {"family": family, "model": name, "size": size, "computed": precision, "heads": None}


def check_one(text: Any) -> None:
    """A list is for those that answer many: translate, generate, embed, …"""
    refuse(isinstance(text, list | tuple), "trace takes one text, not a list: write text, not [text]")


def checked(model: nn.Module, choice: Choice) -> Choice:
    """The choice, or a line that says what of it the model does not have."""
    size = sizes_of(model)
    layers = max((size[key] for key in SIZES[:3] if key in size), default=None)
    for kind, wanted, there in (("layer", choice.layers, layers), ("head", choice.heads, size.get("heads"))):
        for number in sorted(wanted or ()):
            if there is None:
                raise InputError(f"this model ({family_of(model)}) has no {kind}s to choose from")
            refuse(not 0 <= number < there, f"there is no {kind} {number}: this model has {there}, counted from 0")
    return choice


def trace_of(
    model: Any, recorder: Recorder, tracks: Sequence[Track], *, name: str = "", row: int = 0,
    looking: Sides | None = None, about: dict[str, Any] | None = None, more: More | None = None,
) -> Trace:  # fmt: skip
    """One row of what was recorded, as far as its tracks go: what stands behind them is padding. `more` is
    added where the choice takes it."""
    by_name = {track.name: track for track in tracks}
    tensors, axes = {}, {}
    for tensor_name, tensor in recorder.tensors.items():
        looks, seen = sides(tensor_name, looking or model.tracks)
        named = tuple({"target": looks, "source": seen}.get(axis, axis) for axis in recorder.axes[tensor_name])
        if named[0] == "row":
            tensor, named = tensor[row], named[1:]
        cut = tuple(slice(len(by_name[axis])) if axis in by_name else slice(None) for axis in named)
        tensors[tensor_name], axes[tensor_name] = plain_array(tensor[cut]), named
    for tensor_name, (tensor, named) in (more or {}).items():
        if recorder.choice.takes(tensor_name, None):
            tensors[tensor_name], axes[tensor_name] = plain_array(tensor), named
    if not tensors:
        wanted = ", ".join(recorder.choice.tensors or ()) or "this choice"
        if "weights" in wanted and not any(isinstance(part, MultiHead) for part in model.modules()):
            raise InputError(
                f"this model ({family_of(model)}) has no attention to look at: a trace has its gates and its saliency"
            )
        raise InputError(f"nothing in this model goes by the name of {wanted}: see docs/trace.md for what there is")
    about = described(model, name) | (about or {})
    if recorder.choice.heads is not None:
        about["heads"] = list(recorder.choice.heads)
    return Trace(by_name, tensors, axes, about)


def plain_array(tensor: Tensor) -> NDArray[Any]:
    """On the host, at least float32."""
    if tensor.is_floating_point():
        tensor = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def token_track(
    name: str, tokenizer: Any, ids: Sequence[int], special: Sequence[bool], text: str | None = None,
    spans: Sequence[tuple[int, int]] | None = None,
) -> Track:  # fmt: skip
    """Tokens as a reader wants them. `special`: which of them no text has."""
    spelled, owner = tokenizer.words(ids)
    own = sorted({word for word, is_special in zip(owner, special, strict=True) if not is_special})
    number = {word: at for at, word in enumerate(own)}
    if spans is None and text is not None:
        spans = _spans(tokenizer, text, ids, special)
    return Track(
        name, "tokens", tuple(text_labels(tokenizer, ids)), tuple(map(int, ids)),
        tuple(-1 if is_special else number[word] for word, is_special in zip(owner, special, strict=True)),
        tuple(spelled[word] for word in own), tuple(at for at, is_special in enumerate(special) if is_special),
        None if spans is None else tuple((int(a), int(b)) for a, b in spans), text,
    )  # fmt: skip


def labels(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Each token by itself, without the marks of its vocabulary; one that is nothing but spaces shows them."""
    return _without_marks(tokenizer, [tokenizer.labels([i])[0] for i in ids])


def text_labels(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The same of the tokens of a text: a character that several of them share is shown whole."""
    return _without_marks(tokenizer, tokenizer.labels(ids))


def _without_marks(tokenizer: Any, tokens: list[str]) -> list[str]:
    if isinstance(tokenizer.inner.model, models.WordPiece):
        tokens = [token.removeprefix("##") or token for token in tokens]
    return [token.strip(SPACE_MARK).replace(SPACE_MARK, " ") or OPEN_SPACE * len(token) for token in tokens]


def _spans(
    tokenizer: Any, text: str, ids: Sequence[int], special: Sequence[bool]
) -> list[tuple[int, int]] | None:  # fmt: skip
    """Where each token stands in the text; None where the text is cut in another way than these tokens."""
    found = tokenizer.inner.encode(text, add_special_tokens=False)
    if found.ids != [i for i, is_special in zip(ids, special, strict=True) if not is_special]:
        return None
    places = iter(found.offsets)
    return [(0, 0) if is_special else trimmed(text, *next(places)) for is_special in special]


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without the space that a token may begin with."""
    kept = text[start:end].lstrip()
    return (end - len(kept), end) if kept else (start, end)


def nexts(
    logits_TV: Tensor, tokenizer: Any, taken: Sequence[int | None], top: int
) -> tuple[dict[str, Any], More]:  # fmt: skip
    """For a trace: the `top` entries that may stand at (or behind) each place, with the log-probability of the one that
    does (None: there is none); and all log-probabilities of the last place."""
    logp_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32)).log_softmax(-1)
    logp_TV = logp_TV[:, : len(tokenizer)]
    best_TK, id_TK = logp_TV.topk(min(top, logp_TV.shape[1]))
    spelled = np.array(labels(tokenizer, id_TK.flatten().tolist()), dtype=object).reshape(id_TK.shape)
    shown = {
        "ids": id_TK.tolist(),
        "labels": spelled.tolist(),
        "logp": [[round(value, 5) for value in row] for row in best_TK.tolist()],
        "taken": [None if i is None else round(float(logp_TV[at, i]), 5) for at, i in enumerate(taken)],
    }
    return {"next": shown}, {"next": (logp_TV[-1], ("vocabulary",))}


class Recording:
    """What happened inside of `with headway.trace(model) as t:`; of calls that were alike, the last."""

    def __init__(self, recorder: Recorder, model: nn.Module) -> None:
        """`tensors`: all rows of a batch, by `stack.layer.site.tensor`."""
        self.recorder, self.model = recorder, model
        self.tensors, self.axes = recorder.tensors, recorder.axes

    def __repr__(self) -> str:
        lines = [f"  {name}  {', '.join(self.axes[name])}  {tuple(kept.shape)}" for name, kept in self.tensors.items()]
        return "\n".join([f"Recording of {family_of(self.model)}: {len(lines)} tensors; .row() is a trace", *lines])

    def row(self, row: int = 0, **lengths: int) -> Trace:
        """The trace of one row. `source=7`: how long its source is, without padding; likewise `target`, `tokens`."""
        crossed = any(".cross." in name for name in self.tensors)
        looking = tracks_of(self.model) or (TWO_TEXTS if crossed else ONE_TEXT)
        sizes: dict[str, int] = {}
        for name, tensor in self.tensors.items():
            for axis, track in zip(("target", "source"), sides(name, looking), strict=True):
                if axis in self.axes[name]:
                    size = tensor.shape[self.axes[name].index(axis)]
                    if sizes.setdefault(track, size) != size:
                        raise InputError(
                            f"'{name}' has {size} places where others have {sizes[track]}: this was read step by step; "
                            "record a text that is read at once, or look at `tensors`"
                        )
        if unknown := lengths.keys() - sizes.keys():
            raise InputError(f"there is no track '{min(unknown)}'; there is: {', '.join(sizes) or 'none'}")
        tracks = [Track.numbered(track, min(lengths.get(track, size), size)) for track, size in sizes.items()]
        return trace_of(self.model, self.recorder, tracks, row=row, looking=looking)


@contextmanager
def trace(
    model: Any, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None,
    tensors: Sequence[str] | str | None = None,
) -> Iterator[Recording]:  # fmt: skip
    """Records what happens inside a module, or inside what `headway.load` gives, for the calls made inside.

    `layers` and `heads` are numbers, `tensors` patterns of names (`weights`, `decoder.*.cross.*`): what is not asked
    for is never kept. For one text with its tokens, `translator.trace(text)` is the shorter way.
    """
    inner = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(inner, nn.Module):
        raise InputError(f"trace looks into a model, not into {type(model).__name__}: give what headway.load gives")
    with tap.record(inner, checked(inner, chosen(layers, heads, tensors))) as recorder:
        yield Recording(recorder, inner)
