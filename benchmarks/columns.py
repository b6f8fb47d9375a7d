"""What the tables of `table.py` show: of each row which keys, under which heading, written how."""

from __future__ import annotations

from formats import Column, code, count, number, rate, share, tenths, times, tiny, two_digits

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
WHISPER: list[Column] = [
    ("who", "Whisper base, 128 tokens", str),
    ("windows", "windows", count),
    ("times_real_time", "times real time", number),
    ("times_transformers", "beside transformers", times),
    ("times_strongest_transformers", "beside its fastest", times),
]
SPEECH: list[Column] = [
    ("model", "model", str),
    ("sequences", "sequences", count),
    ("word_error_rate", "word error rate, %", number),
    ("words_timed", "words timed", count),
    ("starts_within_50_ms", "beginnings within 50 ms", tenths),
    ("ends_within_50_ms", "ends within 50 ms", tenths),
    ("log_mel_from_transformers", "log-mel, from transformers", tiny),
    ("log_mel_from_float64", "from float64", tiny),
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
DECISIONS: list[Column] = [
    ("recipe", "policy", lambda value: code(value) if value else ""), ("wanted", "return wanted", count),
    ("return", "return reached", number), ("spread", "± over seeds", number),
    ("correlation", "correlation of ten returns", number), ("parameters", "parameters", count), ("seconds", "s", rate),
]  # fmt: skip
MEMORY: list[Column] = [
    ("world", "world", code), ("policy", "policy", str), ("success", "success", share), ("return", "return", number),
    ("world_steps", "steps of practice", count), ("parameters", "parameters", count), ("seconds", "s", rate),
]  # fmt: skip
ROBOTS: list[Column] = [
    ("who", "policy", str), ("success", "success", share), ("of_expert", "of the expert's", share),
    *((name, name, share) for name in
      ("reach", "push", "pick-place", "door-open", "drawer-open", "button-press-topdown")),
    ("actions_per_second", "actions/s", rate), ("parameters", "parameters", count), ("seconds", "training, s", rate),
]  # fmt: skip
MIXTURE: list[Column] = [
    ("who", "learns", str), ("cider", "captions, CIDEr", number), ("bleu", "BLEU-4", two_digits),
    ("right", "questions, right", share), ("success", "tasks, success", share), ("of_expert", "of the expert's", share),
    *((name, name, share) for name in
      ("reach", "push", "pick-place", "door-open", "drawer-open", "button-press-topdown")),
    ("parameters", "parameters", count), ("steps", "steps", count),
]  # fmt: skip
HOPPER: list[Column] = [
    ("data", "episodes of", str), ("who", "policy", str), ("return", "return", number),
    ("normalised", "normalised", number), ("spread", "± over seeds", number), ("episodes", "episodes", count),
    ("steps", "steps", count), ("most", "highest return", number),
]  # fmt: skip
MEMORY_SPEED: list[Column] = [
    ("who", "", str), ("steps_per_second", "steps/s", rate), ("times", "times", times),
    ("return", "return", two_digits),
]  # fmt: skip
