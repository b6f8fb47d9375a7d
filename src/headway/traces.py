"""A trace: the values inside a model while it read one text, as named tensors, and its file.

Tensors are named `stack.layer.site.tensor` (`decoder.3.cross.weights`); each axis is a track (the tokens of the text,
of the translation: what a reader sees at each place) or one of `head`, `unit`, `key_unit`, `vocabulary`, `label`.
Analyses, pictures and the page read traces; none of them depends on a model family.

On disk: one safetensors file, with all that is no tensor as JSON in its header.

L layers, H heads, T target places, S source places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from headway.atomic import written
from headway.errors import InputError, nearest
from headway.nn.tap import chosen
from headway.notebook import facts_table, heat_table, shortened
from headway.outside import parsed

FORMAT = 1
HEADER = "headway.trace"  # the key of the JSON in the file's header
LARGEST = 65504.0  # that float16 holds
Precision = Literal["float16", "float32", "uint8"]
PRECISIONS = ("float16", "float32", "uint8")
LAYERED = re.compile(r"^(.+?)\.(\d+)\.(.+)$")

Array = NDArray[Any]


@dataclass(frozen=True)
class Track:
    """Places that a model reads or writes, in order.

    name: `tokens`, `source`, `target`. kind: what the places are. labels: what a reader sees at each. ids: their
    entries in the vocabulary. words: for each place the number of its word in `spelled`, −1 for none; None: there are
    no words. specials: which places no text has (a beginning, an end, a separator). spans: where each place stands in
    `text`, (0, 0) for a special; None: it is not known.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    ids: tuple[int, ...] = ()
    words: tuple[int, ...] | None = None
    spelled: tuple[str, ...] = ()
    specials: tuple[int, ...] = ()
    spans: tuple[tuple[int, int], ...] | None = None
    text: str | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def ordinary(self) -> list[int]:
        """The places that are no special."""
        return [t for t in range(len(self)) if t not in self.specials]

    @classmethod
    def numbered(cls, name: str, length: int) -> Track:
        """Places of which only the number is known."""
        return cls(name, "places", tuple(map(str, range(length))))


@dataclass(frozen=True)
class Trace:
    """Tensors of one text, with the tracks that they lie along.

    about: plain JSON: `family`, `model`, `layers`, `heads` (the numbers of those that were kept), and where there is
    one `beam` (the tree of a search) and `next` (what may stand at each place).
    """

    tracks: dict[str, Track]
    tensors: dict[str, Array]
    axes: dict[str, tuple[str, ...]]
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, tensor in self.tensors.items():
            axes = self.axes[name]
            sizes = [len(self.tracks[axis]) if axis in self.tracks else None for axis in axes]
            same = len(axes) == tensor.ndim
            if not same or any(size not in (None, length) for size, length in zip(sizes, tensor.shape, strict=True)):
                raise ValueError(f"'{name}' of shape {tensor.shape} does not fit its axes {axes}: {sizes}")

    def __repr__(self) -> str:
        lines = [f"  {name:<9}  {value}" for name, value in self.facts().items()]
        return "\n".join([f"Trace of {self.about.get('model') or 'a model'}", *lines])

    def _repr_html_(self) -> str:
        """The text of each track, and where the mean head of one layer looked."""
        shown = facts_table(f"Trace of {self.about.get('model') or 'a model'}", self.facts())
        if not self.sites():
            return shown
        (stack, site), weights_LHTS = self.sites()[-1], self.attention()
        at = max(0, len(weights_LHTS) - 2)  # the layer before the last aligns best in most translators
        number = self.layers(stack, f"{site}.weights")[at]
        *_, looks, seen = self.axes[f"{stack}.{number}.{site}.weights"]
        rows, columns = (self.tracks[axis].labels for axis in (looks, seen))
        caption = f"{stack}.{number}.{site}, mean of {weights_LHTS.shape[1]} heads: {looks} looks at {seen}"
        return shown + heat_table(weights_LHTS[at].mean(0), rows, columns, caption)

    def facts(self) -> dict[str, str]:
        """By name: family, the text of each track, the sites of attention, the tensors."""
        tracks = {
            name: f"{len(track)} {track.kind}" + (f": {shortened(track.text)}" if track.text else "")
            for name, track in self.tracks.items()
        }
        counts = {pair: len(self.layers(pair[0], f"{pair[1]}.weights")) for pair in self.sites()}
        sites = ", ".join(f"{stack}.{site} (layers: {count})" for (stack, site), count in counts.items())
        found = {"family": str(self.about.get("family", ""))} | tracks
        found["attention"] = f"{sites}: trace.attention(stack, site)" if sites else ""
        found["tensors"] = f"{len(self)}, as trace['{next(iter(self), '')}']"
        return {name: value for name, value in found.items() if value}

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __getitem__(self, name: str) -> Array:
        """A tensor to compute with, never in half precision."""
        if name not in self.tensors:
            raise InputError(f"this trace has no tensor '{name}'{nearest(name, self.tensors)}")
        tensor = self.tensors[name]
        return tensor.astype(np.float32) if tensor.dtype == np.float16 else tensor

    def sites(self, tensor: str = "weights") -> list[tuple[str, str]]:
        """(stack, site) of all attention that was kept: ("encoder", "attention"), ("decoder", "cross"), …"""
        found = (LAYERED.match(name) for name in self.tensors)
        pairs = ((hit[1], hit[3]) for hit in found if hit)
        ends = f".{tensor}"
        return list(dict.fromkeys((stack, rest.removesuffix(ends)) for stack, rest in pairs if rest.endswith(ends)))

    def layers(self, stack: str, tensor: str) -> list[int]:
        """The numbers of the layers of which `stack.layer.tensor` was kept: `trace.layers("decoder", "hidden")`."""
        found = (LAYERED.match(name) for name in self.tensors)
        return sorted(int(hit[2]) for hit in found if hit and hit[1] == stack and hit[3] == tensor)

    def stacked(self, stack: str, tensor: str) -> Array:
        """One tensor of every layer that was kept, layers first: `trace.stacked("decoder", "hidden")` is (L, T, D)."""
        numbers = self.layers(stack, tensor)
        if not numbers:
            raise InputError(f"this trace has no tensor '{stack}.0.{tensor}'{nearest(tensor, self.tensors)}")
        return np.stack([self[f"{stack}.{number}.{tensor}"] for number in numbers])

    def attention(self, stack: str | None = None, site: str | None = None) -> Array:
        """(L, H, T, S): row t of a head is where it looked from place t. Without a choice the last site there is: the
        cross-attention of a translator, the one site of other models."""
        there = [pair for pair in self.sites() if stack in (None, pair[0]) and site in (None, pair[1])]
        if not there:
            known = ", ".join(".".join(pair) for pair in self.sites()) or "none"
            raise InputError(f"this trace has no attention weights at {stack or '*'}.{site or '*'}; there is: {known}")
        return self.stacked(there[-1][0], f"{there[-1][1]}.weights")

    def only(
        self, layers: Iterable[int] | None = None, heads: Iterable[int] | None = None,
        tensors: Iterable[str] | str | None = None,
    ) -> Trace:  # fmt: skip
        """A smaller one: these layers and heads by their numbers in the model, tensors by patterns of their names."""
        choice = chosen(layers, heads, tensors)
        kept, about = {}, dict(self.about)
        known = self.about.get("heads")
        for name, tensor in self.tensors.items():
            hit = LAYERED.match(name)
            if not choice.takes(name, int(hit[2]) if hit else None):
                continue
            if choice.heads is not None and "head" in self.axes[name]:
                at = self.axes[name].index("head")
                numbers = list(known) if known is not None else list(range(tensor.shape[at]))
                if missing := [head for head in choice.heads if head not in numbers]:
                    raise InputError(f"this trace has no head {missing[0]}; there is: {', '.join(map(str, numbers))}")
                tensor = tensor.take([numbers.index(head) for head in choice.heads], axis=at)
                about["heads"] = list(choice.heads)
            kept[name] = tensor
        return Trace(self.tracks, kept, {name: self.axes[name] for name in kept}, about)

    def save(self, path: str | Path, precision: Precision = "float16") -> Path:
        """One file, written whole or not at all. `uint8` is for attention weights, 1/255 of the largest of their row a
        step; the other tensors are then float16. Integers stay what they are."""
        path = Path(path)
        data = self.to_bytes(precision)
        with written(path) as new:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(data)
        return path

    def to_bytes(self, precision: Precision = "float16") -> bytes:
        """What `save` would write."""
        if precision not in PRECISIONS:
            raise InputError(f"there is no precision '{precision}' for a trace: write {', '.join(PRECISIONS)}")
        stored, scales = {}, {}
        for name, tensor in self.tensors.items():
            if precision == "uint8" and name.endswith("weights"):
                scales[name] = name.removesuffix("weights") + "scale"
                stored[name], stored[scales[name]] = _in_steps(tensor)
            else:
                stored[name] = _packed(tensor, precision)
        header = {
            "format": FORMAT, "precision": precision, "tracks": [asdict(track) for track in self.tracks.values()],
            "axes": {name: list(self.axes[name]) for name in self.tensors}, "scales": scales, "about": self.about,
        }  # fmt: skip
        return to_safetensors(stored, {HEADER: json.dumps(header, ensure_ascii=False)})

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """The trace in a file; `about["stored"]` is the precision that it has there."""
        header, tensors = _read(Path(path))
        try:
            tracks = [_track(plain) for plain in header["tracks"]]
            for name, scale in header["scales"].items():
                if tensors[scale].shape != tensors[name].shape[:-1]:  # else they would be stretched to fit, to any size
                    raise ValueError(f"'{scale}' has no scale for each row of '{name}'")
                tensors[name] = tensors[name].astype(np.float32) * tensors[scale][..., None]
            axes = {name: tuple(header["axes"][name]) for name in header["axes"]}
            ordered = {name: tensors[name] for name in axes}  # the file has them by the alphabet
            about = header["about"] | {"stored": header["precision"]}
            return cls({track.name: track for track in tracks}, ordered, axes, about)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise InputError(f"{path} is broken: its header does not fit ({reason}); write it again") from error


def log_softmax(logits: Array) -> Array:
    """Along the last axis."""
    least = logits - logits.max(-1, keepdims=True)
    return least - np.log(np.exp(least).sum(-1, keepdims=True))


def _packed(tensor: Array, precision: Precision) -> Array:
    """As it is stored."""
    if tensor.dtype.kind in "biu":
        return np.ascontiguousarray(tensor)
    # A number that half precision does not hold would become infinite.
    wide = precision == "float32" or bool(np.abs(tensor).max(initial=0.0) > LARGEST)
    return np.ascontiguousarray(tensor.astype(np.float32 if wide else np.float16))


def _in_steps(weights: Array) -> tuple[Array, Array]:
    """Whole steps, and the size of a step of each row. With one size for all rows, set by a
    first row that has a 1, an even row of a long text would become zeros."""
    step = (weights.max(-1, initial=0.0) / 255).astype(np.float32)
    step = np.where(step > 0, step, np.float32(1))
    return np.rint(weights.astype(np.float32) / step[..., None]).astype(np.uint8), step


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    try:
        with safe_open(path, "numpy") as file:
            text = (file.metadata() or {}).get(HEADER)
            if text is None:
                raise InputError(f"{path} is no trace: a safetensors file without headway's header")
            header = parsed(text, f"the header of {path}", finite=False)
            version = header.get("format")
            if not isinstance(version, int) or version > FORMAT:
                raise InputError(
                    f"{path} has trace format {version}, this headway reads up to {FORMAT}: upgrade headway"
                )
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no dict)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError) as error:
        if path.is_file() and not _begins_as_one(path):
            raise InputError(f"{path} is no trace: those are safetensors files, as trace.save writes them") from error
        raise InputError(f"{path} is broken ({error}): it was cut short or changed, or is no trace") from error


def _begins_as_one(path: Path) -> bool:
    """A safetensors file begins with the length of its header in eight bytes, then comes JSON."""
    try:
        with path.open("rb") as file:
            return file.read(9)[8:] == b"{"
    except OSError:  # what cannot be read may be one
        return True


def _track(plain: dict[str, Any]) -> Track:
    return Track(**{f.name: _tuples(plain[f.name]) for f in fields(Track) if f.name in plain})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value
