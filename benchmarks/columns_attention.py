"""The columns of tables about what attention does in a model."""

from __future__ import annotations

from formats import Column, count, minus, number, share, signed, tenths, times, tiny, two_digits

BIG_BIRD: list[Column] = [
    ("what", "", str),
    ("who", "", str),
    ("length", "tokens of a text", count),
    ("milliseconds", "ms", number),
    ("times_dense", "times as fast as dense", times),
    ("mebibytes", "peak memory, MiB", count),
]
ALIGNMENT: list[Column] = [
    ("what", "", str),
    ("layer", "layer", count),
    ("head", "head", count),
    ("reading", "reading", str),
    ("pairs", "pairs", count),
    *((name, name, lambda value: f"{value:.3f}") for name in ("AER", "precision", "recall")),
]
ANTECEDENTS: list[Column] = [
    ("site", "site", str),
    ("what", "", str),
    ("layer", "layer", count),
    ("head", "head", count),
    ("links", "pronouns", count),
    ("right", "right", share),
]
LAYERS: list[Column] = [
    ("layer", "layer", str),
    ("of the layer", "reach of the layer", lambda value: f"{value:.1f}"),
    ("through all layers", "through all layers", lambda value: f"{value:.1f}"),
    ("self", "rollout: self", two_digits),
    ("first", "first place", two_digits),
    ("within a text", "cosine within a text", lambda value: f"{value:.3f}"),
    ("between texts", "between texts", lambda value: f"{value:.3f}"),
]
OFTEN = 100  # pairs of a relation that is told

LOOKING: dict[str, list[Column]] = {
    "overall": [
        ("model", "all relations", str),
        ("accuracy", "best head of each", share),
        ("by offset", "best offset of each", share),
        ("pairs", "pairs", count),
        ("ahead", "relations where the head is better", count),
        ("relations", "of", count),
    ],
    "heads": [
        ("model", "model", str),
        ("layer", "layer", str),
        *((name, name, share) for name in ("next", "previous", "first", "separator", "self")),
        ("entropy", "entropy, nats", two_digits),
        ("distance", "distance, tokens", two_digits),
    ],
    "pronoun": [
        ("model", "model", str),
        ("who", "chosen by", str),
        ("right", "right name over wrong", share),
        ("mention", "most seen mention is right", share),
        ("pronouns", "pronouns", count),
    ],
    "importance": [
        ("head", "head silenced", str),
        ("change", "loss added, nats a token", lambda value: f"{value:.3f}"),
        ("error", "± (standard error)", lambda value: f"{value:.3f}"),
    ],
    "lens": [
        ("layer", "layer", str),
        ("first", "already says the answer", share),
        ("rank", "median rank of the answer", count),
        ("log p of the text", "log p of the text, nats a token", two_digits),
    ],
    "contexts": [
        ("model", "model", str),
        ("layer", "layer", str),
        ("within", "one sense", two_digits),
        ("across", "different senses", two_digits),
        ("any two", "any two tokens", two_digits),
        ("nearest", "nearest is of its sense", share),
    ],
}
WORKED: dict[str, list[Column]] = {
    "step": [
        ("key", "key", str),
        ("k", "k", str),
        ("product", "q·k", minus),
        ("scaled", "÷ √d", minus),
        ("visible", "visible", str),
        ("weight", "softmax", lambda value: f"{value:.3f}"),
        ("v", "v", str),
        ("weighted", "softmax · v", str),
    ],
    "elsewhere": [
        ("text", "sentence", str),
        ("first", "looks most at", str),
        ("weight", "weight", two_digits),
        ("second", "then at", str),
        ("second weight", "weight", two_digits),
    ],
    "steps apart": [("of", "largest difference of", str), ("apart", "", tiny)],
    "variance": [
        ("width", "d", count),
        ("variance", "variance of q·k", number),
        ("scaled variance", "of q·k / √d", number),
        ("entropy", "entropy without √d", two_digits),
        ("scaled entropy", "with", two_digits),
        ("largest", "largest weight without", two_digits),
        ("scaled largest", "with", two_digits),
    ],
    "heads variance": [
        ("model", "model", str),
        ("heads", "heads", count),
        ("head width", "d", count),
        ("variance", "variance of q·k, median head", number),
        ("least", "least", number),
        ("most", "most", number),
        ("scaled variance", "with √d, median", two_digits),
        ("entropy", "entropy without √d, median", two_digits),
        ("scaled entropy", "with", two_digits),
    ],
    "position": [
        ("distance", "distance", count),
        *((name, name, lambda value: f"{value:.3f}") for name in ("sinusoidal", "learned (MiniLM)", "rotary")),
        ("first slope", "linear bias, head 0", minus),
        ("last slope", "head 7", lambda value: f"{value:.3f}".replace("-", "−")),
        ("bucket", "relative bias: number", count),
    ],
    "order": [("model", "model", str), ("change", "change", str), ("apart", "largest difference", tiny)],
    "sentences": [
        ("first", "", str),
        ("second", "", str),
        ("with positions", "cosine", lambda value: f"{value:.3f}"),
        ("without", "without positions", lambda value: f"{value:.3f}"),
    ],
    "it": [
        ("who", "heads", str),
        ("heads", "of", count),
        ("first both", "animal in both", count),
        ("second both", "street in both", count),
        ("right", "switch rightly", count),
        ("wrong", "switch wrongly", count),
        ("mean right", "of 8 sentences, a head switches rightly", two_digits),
        ("mean wrong", "wrongly", two_digits),
        ("best right", "best head", count),
    ],
    "it head": [
        ("sentence", "sentence", str),
        ("first", "first ending: first noun / second", str),
        ("second", "second ending", str),
        ("tilt", "first noun's share falls by", signed),
        ("switches", "switches", str),
    ],
    "roles": [
        ("width", "width", count),
        ("reader", "reader", str),
        ("weights", "weights", count),
        *((name, name, tenths) for name in ("who", "did what", "to whom", "all three")),
        ("lowest", "lowest seed", tenths),
        ("highest", "highest", tenths),
    ],
    "role heads": [
        ("width", "width", count),
        ("reader", "reader", str),
        *((f"best head: {name}", name, share) for name in ("who", "did what", "to whom")),
        ("by word", "stays with the noun", share),
        ("all three", "all three right", tenths),
        ("placeless", "no places in the values", tenths),
    ],
}
TRACING: list[Column] = [
    ("work", "work", str),
    ("kept", "kept", str),
    ("ms", "ms", two_digits),
    ("of_plain", "beside nothing kept", times),
    ("of_before", "beside headway without taps", times),
]
