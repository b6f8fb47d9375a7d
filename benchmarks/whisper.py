"""Transcription speed of Whisper: headway beside transformers with the same weights, greedy, exactly 128 tokens of each
window of 30 s.

The shape is Whisper base with random weights. A repeat goes from spectrograms to tokens: the encoder, keys and values
of the source, and every step. That all write the same tokens is checked in float32 on a small size first. Repeats are
interleaved; medians. On a GPU: bfloat16, 1 and 16 windows; transformers has three rows: as it comes, with a static
cache, which `generate` compiles by itself, and with a static cache and the whole forward pass compiled and captured;
headway has two: its own kernels, which it takes by itself, and steps through torch.compile.
On a CPU: float32, 1 and 4 windows, beside CTranslate2, which faster-whisper runs on, in float32 and int8, where it is
installed.

    PYTHONPATH=src python benchmarks/whisper.py --device cuda
    PYTHONPATH=src python benchmarks/whisper.py --device cuda --profile 1       the kernels of a repeat
"""

from __future__ import annotations

from measure import arguments, interleaved, median, write

# isort: split
import gc
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor

from headway.card import Card, Loaded
from headway.data.augment import ImageInputs
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.generate.speech import Speaking
from headway.generate.speech_rules import HeardRow, Ruled, Rules
from headway.generate.stepper import stepper_for
from headway.hub.ctranslate2_export import write_ctranslate2
from headway.hub.families.whisper import WHISPER
from headway.hub.hf_folder import InMemory
from headway.hub.reading import load_foreign
from headway.models.whisper import SIZES, Whisper, WhisperConfig
from headway.nn.weights import lay_out
from headway.plain import to_plain
from headway.processors.sound import SoundConfig
from headway.processors.text import TextConfig, TextProcessor
from headway.text.foreign import ForeignTokenizer
from headway.text.tokenizer import Symbols

NEW, SECONDS, VOCABULARY, START = 128, 30.0, 51_865, 50_258
CASES = {"cuda": [1, 16], "cpu": [1, 4]}
PLAIN, STATIC = "transformers", "transformers, static cache"
CAPTURED = "transformers, static cache, forward compiled"
COMPILED = "headway, steps compiled"


class Given(InMemory):
    """The weights of a model of transformers."""

    def __init__(self, model: Any) -> None:
        self.where, self.tensors = Path("transformers"), dict(model.state_dict())


def peer_of(config: WhisperConfig, device: str, dtype: torch.dtype) -> Any:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    end = START - 1
    theirs = transformers.WhisperConfig(
        **WHISPER.config_out(config, (1, VOCABULARY)), pad_token_id=end, bos_token_id=end, eos_token_id=end,
        decoder_start_token_id=START, begin_suppress_tokens=None, suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration._from_config(theirs, attn_implementation="sdpa")
    with torch.no_grad():  # so that texts differ
        for name, weight in model.named_parameters():
            if weight.requires_grad and "norm" not in name:
                weight.add_(torch.randn_like(weight) * 0.05)
    model.generation_config.begin_suppress_tokens = model.generation_config.suppress_tokens = None
    return model.to(device, dtype).eval()


def twin(peer: Any, config: WhisperConfig) -> Whisper:
    weight = next(peer.parameters())
    model = Whisper(config, 1, VOCABULARY).to(weight.device, weight.dtype).eval()
    load_foreign(model, WHISPER.table(dict(model.named_parameters()), config, (1, VOCABULARY)), Given(peer))
    return model


def heard(config: WhisperConfig, windows: int, device: str, dtype: torch.dtype) -> Tensor:
    """Spectrograms (windows, bands, frames)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(windows, *config.size, generator=generator).to(device, dtype)


def theirs(peer: Any, values: Tensor, new: int = NEW, **how: Any) -> Callable[[], list[list[int]]]:
    def work() -> list[list[int]]:
        with torch.inference_mode():
            found = peer.generate(values, max_new_tokens=new, min_new_tokens=new, do_sample=False, **how)
        return [row[-new:] for row in found.tolist()]

    return work


def ours(model: Whisper, values: Tensor, new: int = NEW, speed: Any = "auto") -> Callable[[], list[list[int]]]:
    """The end is no stop: all write as many tokens."""
    ruled = Ruled(model, Rules(START, START - 1, 1)).eval()
    stepper = stepper_for(ruled, values.device, speed)

    def work() -> list[list[int]]:
        with torch.inference_mode():
            x_BSD = model.encode(ImageInputs(values[:, None])).x_BTD
        asked = [Request([START], Sampling(0), max_new=new, stops=frozenset(), inputs=HeardRow(x_SD)) for x_SD in x_BSD]
        found = generate_all(ruled, asked, context=model.config.max_length, device=values.device, stepper=stepper)
        return [samples[0].ids for samples in found]

    return work


def tokenizer() -> ForeignTokenizer:
    """Names for the ids of a Whisper of many languages."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    languages = [f"<|{first}{second}|>" for first in letters for second in letters][:99]
    named = ["translate", "transcribe", "startoflm", "startofprev", "nocaptions", "notimestamps"]
    specials = ["<|endoftext|>", "<|startoftranscript|>", *languages, *(f"<|{name}|>" for name in named)]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(START - 1)}, "t0"))
    inner.add_special_tokens([*specials, *(f"<|{at * 0.02:.2f}|>" for at in range(1501))])
    return ForeignTokenizer(inner)


def ctranslate2(model: Whisper, values: Tensor, precision: str) -> Callable[[], Any]:
    """As faster-whisper calls it, with the end suppressed; its files are written and read before the clock starts."""
    import ctranslate2 as library
    import numpy as np

    named, sound = tokenizer(), SoundConfig()
    text = TextConfig(VOCABULARY, symbols=Symbols(START, START - 1), foreign=True)
    card = Card("whisper", model.config, "transcription", {"sound": sound, "text": text})
    card.search = to_plain(Speaking())
    with tempfile.TemporaryDirectory() as folder:
        processors = {"sound": sound.open(Path(folder)), "text": TextProcessor(text, named)}
        write_ctranslate2(Path(folder), Loaded(model, card, processors), precision)
        engine = library.models.Whisper(folder, compute_type=precision, intra_threads=torch.get_num_threads())
    given = library.StorageView.from_array(np.ascontiguousarray(values.float().numpy()))
    never = [START - 1, START + 105]  # the end, and <|notimestamps|>, which would change its rules

    def work() -> list[list[int]]:
        prompts = [[START, START + 1, START + 101, START + 105]] * len(values)
        found = engine.generate(
            engine.encode(given), prompts, beam_size=1, max_length=2 * NEW, suppress_tokens=never, suppress_blank=False
        )
        assert all(len(one.sequences_ids[0]) == NEW for one in found)
        return [one.sequences_ids[0] for one in found]

    return work


def check_tokens(device: str) -> None:
    """In float32 both write the same tokens."""
    torch.manual_seed(1)
    small = replace(SIZES["tiny"], encoder_layers=1, decoder_layers=2, places=100, width=64, inner=128, heads=4)
    peer = peer_of(small, device, torch.float32)
    values = heard(small, 3, device, torch.float32)
    expected = theirs(peer, values, 24)()
    for speed in ["plain"] if device == "cpu" else ["plain", "graphs"]:
        if ours(twin(peer, small), values, 24, speed)() != expected:
            raise SystemExit(f"headway ({speed}) and transformers write different tokens: nothing was measured")


def works_of(windows: int, device: str) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    config, dtype = SIZES["base"], torch.bfloat16 if device == "cuda" else torch.float32
    peer, values = peer_of(config, device, dtype), heard(SIZES["base"], windows, device, dtype)
    works: dict[str, Callable[[], Any]] = {PLAIN: theirs(peer, values)}
    if device == "cuda":
        works[STATIC] = theirs(peer, values, cache_implementation="static")
    model = twin(peer, config)
    if device == "cpu":
        for precision in ("float32", "int8") if find_spec("ctranslate2") else ():
            works[f"CTranslate2 (faster-whisper), {precision}"] = ctranslate2(model, values, precision)
        lay_out(model, "many")
    works["headway"] = ours(model, values)
    if device == "cuda":
        works[COMPILED] = ours(model, values, speed="compile")
        captured = peer_of(config, device, dtype)  # last: where its capture fails, no other can follow
        captured.load_state_dict(peer.state_dict())
        captured.forward = torch.compile(captured.forward, mode="reduce-overhead", fullgraph=True)
        works[CAPTURED] = theirs(captured, values, cache_implementation="static")
    return works


def that_run(works: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """Without those that fail on this machine: a version of transformers may not compile its own model."""
    kept = {}
    for name, work in works.items():
        try:
            work()
            kept[name] = work
        except Exception as error:  # whatever a compiler raises
            if name in (PLAIN, "headway"):
                raise
            print(f"{name} left out: {type(error).__name__}: {str(error)[:300]}", flush=True)
    return kept


def measured(windows: int, device: str, repeats: int) -> list[dict[str, Any]]:
    works = that_run(works_of(windows, device))
    times = interleaved(works, device, 2 if device == "cuda" else 0, repeats)
    strongest = min(median(values) for name, values in times.items() if name.startswith(PLAIN))
    return [
        {
            "who": name,
            "windows": windows,
            "tokens": NEW,
            "seconds": round(median(values), 4),
            "times_real_time": round(windows * SECONDS / median(values), 1),
            "times_transformers": round(median(times[PLAIN]) / median(values), 2),
            "times_strongest_transformers": round(strongest / median(values), 2),
        }
        for name, values in times.items()
    ]


def profile(windows: int, device: str) -> None:
    work = works_of(windows, device)["headway"]
    work(), work()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as seen:
        work()
    key = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
    print(seen.key_averages().table(sort_by=key, row_limit=30, max_name_column_width=70))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--windows", type=int, nargs="+", help="only so many windows")
    parser.add_argument("--profile", type=int, metavar="WINDOWS", help="no measurement: name the kernels of a repeat")
    options = parser.parse_args()
    device, rows = options.device, []
    if options.profile:
        profile(options.profile, device)
        return
    check_tokens(device)
    for windows in options.windows or CASES[device]:
        found = measured(windows, device, options.repeats or (7 if device == "cuda" else 3))
        print(*found, sep="\n", flush=True)
        rows += found
        gc.collect()
    precision = "bfloat16" if device == "cuda" else "float32"
    write(f"whisper-{device}", device, rows, options.out, shape="base", dtype=precision)


if __name__ == "__main__":
    main()
