"""The keys of rotary positions in a config.json: `rope_parameters`, or what older files have in its place."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headway.errors import InputError, nearest, refuse
from headway.hub import config_keys
from headway.hub.config_keys import Field, Fields, Keys, NoCounterpart, flag, number, size
from headway.models.decoder_parts import Turned
from headway.models.rotary_scaling import Dynamic, Linear, Llama3, Scaling, Unscaled, Yarn

LENGTH = "max_position_embeddings"
THETA, SHARE, FIRST = "rope_theta", "partial_rotary_factor", "original_max_position_embeddings"


def _stretch(keys: Keys) -> Any:
    stretch, near, far = (keys.number(key) for key in ("attention_factor", "mscale", "mscale_all_dim"))
    if stretch is None and near and far:
        gain = Yarn(YARN["factor"].read(keys)).gain - 1
        stretch = (near * gain + 1) / (far * gain + 1)
    return stretch


FIRST_LENGTH = size(FIRST, lambda keys: keys.facts[LENGTH])
YARN = {
    "factor": number("factor", lambda keys: keys.facts[LENGTH] / FIRST_LENGTH.read(keys)),
    "length": FIRST_LENGTH,
    "fast": number("beta_fast", 32.0),
    "slow": number("beta_slow", 1.0),
    "whole": flag("truncate", True),
    "stretch": Field(_stretch, number("attention_factor").write),
}
LLAMA3 = {
    "factor": number("factor", 8.0),
    "length": FIRST_LENGTH,
    "low": number("low_freq_factor", 1.0),
    "high": number("high_freq_factor", 4.0),
}
FACTOR = {"factor": number("factor", 1.0)}
SCALINGS: dict[str, tuple[Scaling, Fields]] = {
    part.name: (part, fields)
    for part, fields in (
        (Unscaled(), {}), (Linear(), FACTOR), (Dynamic(), FACTOR), (Llama3(), LLAMA3), (Yarn(), YARN),
    )
}  # fmt: skip


def rotary_keys(keys: Keys, theta: str = THETA, share: str = SHARE) -> Keys:
    """rope_parameters, or older files' keys at the top; `theta`, `share`: what two of those are called."""
    given = keys.take("rope_parameters", None, dict)
    older = keys.take("rope_scaling", None, dict)
    refuse(given and older and given != older, f"{keys.where}: rope_parameters and rope_scaling differ")
    inner = dict(given or older or {})
    for key, top in ((THETA, theta), (SHARE, share), (FIRST, FIRST)):
        if keys.take(top) is not None:
            inner.setdefault(key, keys.take(top))
    return Keys(inner, f"{keys.where}: rope_parameters")


def scaling_in(inner: Keys, length: int, kinds: Collection[str] = SCALINGS) -> Scaling:
    """`kinds`: those that the family has."""
    kind = inner.take("rope_type") or inner.take("type") or "default"
    inner.used.update(("type", THETA, SHARE, LENGTH))
    inner.facts[LENGTH] = length
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{inner.where}: headway has no rotary scaling '{kind}' here{nearest(str(kind), kinds)}")
    if kind == "default":
        inner.used.add(FIRST)
    scaling = config_keys.read_fields(*SCALINGS[kind], inner)
    inner.done()
    return scaling


def scaling_out(scaling: Scaling, base: float) -> dict[str, Any]:
    said = config_keys.write_fields(scaling, SCALINGS[scaling.name][1])
    return {"rope_type": scaling.name, THETA: base} | said


def head_width_in(keys: Keys) -> int:
    return int(keys.take("head_dim", 0, int)) or keys.size("hidden_size") // keys.size("num_attention_heads")


def turned(
    base: float = 10_000.0, share: float | None = None, neighbours: bool = False, kinds: Collection[str] = SCALINGS,
    keys_above: tuple[str, str] = (THETA, SHARE),
) -> Field:  # fmt: skip
    """Rotary positions. `base`, `share`: where the file says nothing; no share: all of a head is turned."""

    def read(keys: Keys) -> Turned:
        inner = rotary_keys(keys, *keys_above)
        if share is None:
            inner.must(SHARE, 1.0, 1)
        width = head_width_in(keys)
        count = int(width * inner.number(SHARE, share or 1.0))
        refuse(not 0 < count <= width, f"{inner.where}: {SHARE} turns {count} of {width} numbers of a head")
        theta = inner.number(THETA, base)
        return Turned(theta, count % width, neighbours, scaling_in(inner, keys.size(LENGTH), kinds))

    def write(position: Any, config: Any) -> dict[str, Any]:
        if not isinstance(position, Turned) or position.neighbours != neighbours or position.scaling.name not in kinds:
            raise NoCounterpart
        part = share_of(position, config)
        if share is None and part != 1.0:
            raise NoCounterpart
        said = {SHARE: part} if share is not None else {}
        return {"rope_parameters": scaling_out(position.scaling, position.base) | said}

    return Field(read, write)


def share_of(position: Turned, config: Any) -> float:
    """The share of a head that gives the number of turned ones, rounded down."""
    width = config.head_width or config.width // config.heads
    count = position.turned or width
    return count / width if int(width * (count / width)) == count else (count + 0.5) / width
