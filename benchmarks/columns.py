"""What the tables of `table.py` show: of each row which keys, under which heading, written how."""

from __future__ import annotations

from formats import Column, code, count, minus, number, rate, share, signed, tenths, times, tiny, two_digits

COMPARED: list[Column] = [
    ("what", "", str),
    ("headway", "headway", rate),
    ("peer", "strongest peer", rate),
    ("name", "which is", str),
    ("times", "times", times),
    ("machine", "machine", str),
    ("date", "date", str),
]
SCORES: list[Column] = [
    ("recipe", "recipe", code),
    ("figure", "figure", str),
    ("value", "", str),
    ("mean", "mean (seeds)", str),
    ("validation", "validation", str),
    ("published", "quoted from", str),
    ("parameters", "weights", count),
    ("seconds", "training, s", number),
    ("beside", "other runs beside", count),
    ("machine", "machine", str),
    ("date", "date", str),
]
TRAINING: list[Column] = [
    ("who", "training", str),
    ("target_tokens_per_second", "target tokens/s", count),
    ("times_torch_nn", "beside torch.nn.Transformer", times),
]
CONV_SEQ2SEQ: list[Column] = [
    ("who", "training", str),
    ("target_tokens_per_second", "target tokens/s", count),
    ("times_torch_nn", "beside torch.nn", times),
]
TEXT_CNN: list[Column] = [
    ("data", "data", str),
    ("vectors", "vectors", str),
    ("accuracy", "test accuracy", lambda value: f"{value:.3f}"),
    ("published", "quoted from Kim 2014", lambda value: f"{value:.3f}"),
    ("validation", "validation", lambda value: f"{value:.3f}"),
    ("folds", "folds", count),
    ("seconds_each", "s a training", number),
]
TAGGING: list[Column] = [
    ("data", "data", str),
    ("model", "model", str),
    ("head", "head", str),
    ("figure", "figure", str),
    ("test", "test", lambda value: f"{value:.4f}"),
    ("spread", "± over seeds", lambda value: f"{value:.4f}"),
    ("published", "quoted from Huang et al. 2015", lambda value: f"{value:.4f}"),
    ("validation", "validation", lambda value: f"{value:.4f}"),
    ("parameters", "weights", count),
    ("seconds_each", "s a training", number),
]
CLASSIFIERS: list[Column] = [
    ("data", "data", str),
    ("rung", "recipe", str),
    ("accuracy", "test accuracy", lambda value: f"{value:.3f}"),
    ("spread", "± over seeds", lambda value: f"{value:.3f}"),
    ("seconds", "s a training", number),
    ("parameters", "parameters", count),
]
AWARENESS: list[Column] = [
    ("data", "data", str),
    ("rung", "recipe", str),
    ("changed", "labels changed by shuffling", share),
    ("shuffled", "accuracy on shuffled texts", lambda value: f"{value:.3f}"),
    ("together", "what two distant words do together", share),
    ("left", "a word's vector changes with words before it", share),
    ("right", "with words behind it", share),
]
LAST_WORDS: list[Column] = [
    ("who", "what stands for the text", str),
    ("first_fifth", "gradient in the first fifth", share),
    ("last_fifth", "in the last fifth", share),
    ("accuracy", "validation accuracy", lambda value: f"{value:.3f}"),
]
BEAM: list[Column] = [
    ("who", "beam search", str),
    ("sentences_per_second", "sentences/s", count),
    ("times_marian", "beside Marian", times),
]
DECODING: list[Column] = [
    ("who", "decoding", str),
    ("size", "size", str),
    ("rows", "rows", count),
    ("dtype", "numbers", str),
    ("tokens_per_second", "tokens/s", count),
    ("times_transformers", "beside transformers", times),
]
IMPORTED: list[Column] = [
    ("who", "SmolLM2's shape, one text", str),
    ("dtype", "numbers", str),
    ("threads", "threads", count),
    ("per_second", "tokens/s", number),
    ("per_cpu_second", "tokens per processor second", number),
    ("times_transformers", "beside transformers", times),
]
SERVING: list[Column] = [
    ("who", "512 prompts", str),
    ("tokens_per_second", "tokens/s", count),
    ("seconds", "seconds", number),
    ("floor_seconds", "reading alone, s", number),
]
VERIFYING: list[Column] = [
    ("verified", "checksums compared", str),
    ("load_s", "s to load", number),
    ("first_logits_s", "s to the first logits", number),
]
RECURRENT: list[Column] = [
    ("who", "training an LSTM", str),
    ("size", "size", str),
    ("tokens_per_second", "tokens/s", count),
    ("times_torch_nn", "beside torch.nn", times),
]
G2P: list[Column] = [
    ("recipe", "recipe", str),
    ("language", "language", str),
    ("validation", "word error, validation", number),
    ("test", "word error, test", number),
    ("test tokens", "phoneme error, test", number),
]
RNN_SEQ2SEQ: list[Column] = [
    ("who", "training an encoder-decoder", str),
    ("cell", "cell", str),
    ("form", "attention", str),
    ("milliseconds", "ms a step", number),
    ("times_torch_nn", "beside torch.nn", times),
]
VECTORS: list[Column] = [
    ("who", "skip-gram", str),
    ("seconds", "s by the clock", number),
    ("processor_seconds", "s of the processor", number),
    ("loss", "loss on held-out text", number),
]
SHAKESPEARE: list[Column] = [
    ("who", "Shakespeare letter by letter", str),
    ("steps", "steps", count),
    ("seconds", "seconds", number),
    ("loss", "loss on held-out text", number),
]
GPT: list[Column] = [
    ("who", "training", str),
    ("size", "size", str),
    ("tokens_per_second", "tokens/s", count),
    ("times_nanoGPT", "beside nanoGPT", times),
    ("loss_apart_percent", "loss apart, %", two_digits),
]

SAFETY: list[Column] = [
    ("who", "training", str),
    ("milliseconds", "ms a step", two_digits),
    ("slower_percent", "slower by, %", two_digits),
]

CORPUS: list[Column] = [
    ("phase", "phase", str),
    ("seconds", "seconds", count),
    ("pairs_per_second", "pairs/s", count),
    ("resident_mib", "resident, MiB", count),
]
ENCODING: list[Column] = [
    ("who", "encoding alone", str),
    ("pairs_per_second", "pairs/s", count),
    ("times_encode_batch", "beside encode_batch", times),
]
COUNTING: list[Column] = [
    ("smoothing", "smoothing", str),
    ("order", "n", count),
    ("test", "test perplexity", two_digits),
    ("validation", "validation", two_digits),
    ("published", "published", str),
    ("ngrams", "n-grams", count),
    ("seconds", "counting, s", two_digits),
]
TRANSFER: list[Column] = [
    ("recipe", "recipe", code),
    ("learns", "learns", str),
    ("trained", "weights trained", count),
    ("share", "share", lambda value: f"{100 * value:.2f} %"),
    ("figure", "figure", str),
    ("mean", "mean", lambda value: f"{value:.3f}"),
    ("spread", "± (deviation)", lambda value: f"{value:.3f}"),
    ("steps", "steps", count),
    ("peak", "peak rate", number),
    ("seconds", "seconds", count),
]
PRETRAINING_LABELS = [column for column in TRANSFER if column[0] not in ("trained", "share", "seconds")]
PRETRAINING_WORDS: list[Column] = [
    ("who", "masked words", str),
    ("loss", "loss", lambda value: f"{value:.3f}"),
    ("accuracy", "accuracy", lambda value: f"{value:.3f}"),
    ("next_sentence", "next sentence", lambda value: f"{value:.3f}"),
    ("gaps", "gaps", count),
    ("parameters", "parameters", count),
    ("steps", "steps", count),
    ("seconds", "s", count),
]
PRETRAINING_SPEED: list[Column] = [
    ("who", "a training step", str),
    ("rows", "rows", count),
    ("length", "tokens of each", count),
    ("tokens_per_second", "tokens/s", count),
    ("times_transformers", "beside transformers", lambda value: f"{value:.2f} ×"),
]
SPANS: list[Column] = [
    ("reader", "reader", str),
    *(
        (f"{test} {figure}", f"{shown}, {name}", lambda value: f"{100 * value:.1f}")
        for test, shown in (("test", "SQuAD"), ("xquad en", "XQuAD English"), ("xquad de", "XQuAD German"))
        for figure, name in (("f1", "F1"), ("exact", "exact match"))
    ),
    ("parameters", "weights", count),
    ("seconds_each", "seconds", count),
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
EMBEDDING: list[Column] = [
    ("who", "sentence vectors", str),
    ("sentences_per_second", "sentences/s", count),
    ("times_transformers", "beside transformers", times),
    ("largest_difference", "largest difference of a number", lambda value: f"{value:.0e}" if value else "0"),
]
ENGINES: list[Column] = [
    ("engine", "translating", str),
    ("sentences_per_second", "sentences/s", count),
    ("ratio_to_headway", "beside headway", times),
    ("equal_to_headway", "answers equal", count),
    ("bleu", "BLEU", two_digits),
]
LOADING: list[Column] = [
    ("contestant", "loading", str),
    ("dtype", "numbers", str),
    ("load_s", "seconds", two_digits),
    ("first_logits_s", "to the first logits, s", two_digits),
    ("resident_mib", "peak memory, MiB", count),
    ("weights_mib", "of them weights", count),
]
TRACING: list[Column] = [
    ("work", "work", str),
    ("kept", "kept", str),
    ("ms", "ms", two_digits),
    ("of_plain", "beside nothing kept", times),
    ("of_before", "beside headway without taps", times),
]
BABI: list[Column] = [
    ("task", "task", str),
    ("name", "", str),
    *((part, heading, tenths) for part, heading in (
        ("tasks-1k", "1k, a task at a time"), ("joint-1k", "1k, all at once"),
        ("tasks-10k", "10k, a task at a time"), ("joint-10k", "10k, all at once"),
    )),
]  # fmt: skip
LADDER: list[Column] = [
    ("corpus", "text", str),
    ("recipe", "rung", code),
    ("test", "test perplexity", two_digits),
    ("spread", "± (deviation)", two_digits),
    ("validation", "validation", two_digits),
    ("parameters", "parameters", count),
    ("tokens", "tokens seen", count),
]
ROAD: list[Column] = [
    ("recipe", "recipe", code),
    ("test", "test BLEU", two_digits),
    ("spread", "± (deviation)", two_digits),
    ("validation", "validation", two_digits),
    ("parameters", "parameters", count),
    ("path", "longest path", count),
    ("epochs", "epochs", number),
    ("seconds", "training, s", number),
]
PAIRS: list[Column] = [
    ("who", "recipe", code),
    *(
        (f"{kind}, {figure}", f"{kind}, {figure}", write)
        for kind in ("near", "far", "mirrored")
        for figure, write in (("share", share), ("nats", two_digits))
    ),
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
        ("scaled", "÷ √32", minus),
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
