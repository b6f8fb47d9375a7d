"""Decoding speed of GPT: headway beside Hugging Face's GPT-2 with the same weights, greedy, 32 tokens read.

Both write the same number of tokens; that these are the same is checked in float64 on a small size first. Repeats
are interleaved; medians. On a GPU transformers has two rows: as it comes, and with a static cache, which it compiles,
its fastest way. `floor` is what reading every weight once a step would take at the machine's own bandwidth,
measured beside (a copy on a GPU, a product with a large matrix on a CPU). On a GPU: bfloat16, 256 new tokens, for all
ways to take steps. On a CPU: float32, then bfloat16, 64 new tokens; beside float32 also CTranslate2, where it is
installed, in float32 and int8, as `headway generate --engine ctranslate2` has it.

    PYTHONPATH=src python benchmarks/decoding.py --device cuda
    PYTHONPATH=src python benchmarks/decoding.py --device cpu --size 124M --batch 1 --new 64
    PYTHONPATH=src python benchmarks/decoding.py --device cuda --profile graphs    where the time of a step goes
"""

from __future__ import annotations

from measure import arguments, interleaved, median, write

# isort: split
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from headway.device import DTYPES
from headway.folder import Loaded, text_card, with_tokenizers
from headway.generate.offline import generate_all
from headway.generate.request import Request
from headway.generate.sampling import Sampling
from headway.generate.stepper import stepper_for
from headway.hub.ctranslate2_export import write_ctranslate2
from headway.hub.families.ctranslate2_parts import entries
from headway.models import parts
from headway.models.gpt import GPT, SIZES, GPTConfig
from headway.nn.weights import lay_out
from headway.text.tokenizer import TextOptions, Tokenizer

READ, VOCABULARY = 32, 50_257
# (size, rows, number format, ways of headway's to take steps)
CASES: dict[str, list[tuple[str, int, str, list[str]]]] = {
    "cpu": [("124M", 1, "float32", ["plain"]), ("124M", 1, "bfloat16", ["plain"])],
    "cuda": [
        ("124M", 1, "bfloat16", ["plain", "graphs", "compile"]),
        ("1.5B", 1, "bfloat16", ["graphs"]),
        ("124M", 64, "bfloat16", ["plain", "graphs", "compile"]),
    ],
}
FAST = "headway --engine ctranslate2"
STATIC = "transformers, static cache, compiled"  # `generate` compiles such a model by itself


def config_of(size: str) -> GPTConfig:
    return replace(SIZES[size], feed_forward=parts.Gelu(approximate="tanh"))


def model_of(size: str, dtype: str, device: str) -> GPT:
    torch.manual_seed(0)
    with torch.device(device):  # where drawing 1.5 billion numbers takes no minute
        return GPT(config_of(size), VOCABULARY).to(DTYPES[dtype]).eval()


def twin(model: GPT) -> Any:
    """Hugging Face's GPT-2 with this model's weights; its layers are transposed."""
    import transformers

    config = model.config
    settings = transformers.GPT2Config(
        vocab_size=model.vocabulary, n_positions=config.max_length, n_embd=config.width, n_layer=config.layers,
        n_head=config.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    weight = next(model.parameters())
    # Their own first values would be drawn for minutes, and then written over.
    with torch.device("meta"):
        peer = transformers.GPT2LMHeadModel._from_config(settings, attn_implementation="sdpa")
    peer = peer.to_empty(device=weight.device).to(weight.dtype).eval()
    peer.tie_weights()
    core = peer.transformer
    with torch.no_grad():
        core.wte.weight.copy_(model.embed.table.weight[: model.vocabulary])
        core.wpe.weight.copy_(model.embed.position.table.weight)
        for block, other in zip(model.decoder.layers, core.h, strict=True):
            _copy(other.ln_1, block.around_attention.before)
            _copy(other.attn.c_attn, block.attention.qkv, turned=True)
            _copy(other.attn.c_proj, block.attention.output, turned=True)
            _copy(other.ln_2, block.around_feed_forward.before)
            _copy(other.mlp.c_fc, block.feed_forward.expand, turned=True)
            _copy(other.mlp.c_proj, block.feed_forward.contract, turned=True)
        _copy(core.ln_f, model.decoder.final)
        for name, buffer in peer.named_buffers():
            if "attn.bias" in name:
                buffer.copy_(torch.ones_like(buffer).tril())
    peer.generation_config.eos_token_id, peer.generation_config.pad_token_id = None, 0
    return peer


def _copy(theirs: Any, mine: Any, turned: bool = False) -> None:
    theirs.weight.copy_(mine.weight.T if turned else mine.weight)
    theirs.bias.copy_(mine.bias)


def prompts(rows: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, VOCABULARY, (rows, READ), generator=generator).tolist()


def hugging_face(peer: Any, texts: list[list[int]], new: int, **how: Any) -> Callable[[], list[list[int]]]:
    ids = torch.tensor(texts, device=next(peer.parameters()).device)
    mask = torch.ones_like(ids)

    def work() -> list[list[int]]:
        with torch.inference_mode():
            found = peer.generate(
                ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False, **how
            )
        return found[:, READ:].tolist()

    return work


def headway(model: GPT, texts: list[list[int]], new: int, speed: Any) -> Callable[[], list[list[int]]]:
    device = next(model.parameters()).device
    asked = [Request(ids, Sampling(0), max_new=new, stops=frozenset()) for ids in texts]
    stepper = stepper_for(model, device, speed)

    def work() -> list[list[int]]:
        found = generate_all(
            model, asked, context=model.config.max_length, device=device, batch=len(asked), stepper=stepper
        )
        return [samples[0].ids for samples in found]

    return work


def ctranslate2(model: GPT, texts: list[list[int]], new: int, precision: str) -> Callable[[], list[list[int]]]:
    """Its files are written and read before the clock starts."""
    from ctranslate2 import Generator

    text = TextOptions(size=300, min_count=1)
    tokenizer = Tokenizer.train(["a b"], text)  # names for a few ids; the others get one from `entries`
    card = text_card("gpt", model.config, (model.vocabulary,), text)
    with tempfile.TemporaryDirectory() as folder:
        write_ctranslate2(Path(folder), Loaded(model, card, with_tokenizers(card, tokenizer)), precision)
        engine = Generator(folder, compute_type=precision, inter_threads=1, intra_threads=torch.get_num_threads())
    names = entries(tokenizer, model.vocabulary)
    asked = [[names[i] for i in ids] for ids in texts]

    def work() -> list[list[int]]:
        found = engine.generate_batch(
            asked, max_length=new, min_length=new, sampling_topk=1, include_prompt_in_result=False
        )
        return [result.sequences_ids[0] for result in found]

    return work


def check_tokens(device: str) -> None:
    """In float64 both write the same tokens, whichever way steps are taken; CTranslate2 in float32, which it has."""
    torch.manual_seed(1)
    small = replace(config_of("124M"), layers=2, width=64, heads=4)
    model = GPT(small, VOCABULARY).double().to(device).eval()
    texts = prompts(3)
    expected = hugging_face(twin(model), texts, 24)()
    for speed in ["plain"] if device == "cpu" else ["plain", "graphs"]:
        if headway(model, texts, 24, speed)() != expected:
            raise SystemExit(f"headway ({speed}) and Hugging Face write different tokens: nothing was measured")
    if fast_is_there(device) and ctranslate2(model, texts, 24, "float32")() != expected:
        raise SystemExit("CTranslate2 and Hugging Face write different tokens: nothing was measured")


def fast_is_there(device: str) -> bool:
    return device == "cpu" and find_spec("ctranslate2") is not None


def bandwidth(device: str) -> float:
    """Bytes a second that weights can be read with."""
    if device == "cuda":
        x = torch.empty(2**31, dtype=torch.bfloat16, device=device).normal_()
        y = torch.empty_like(x)
        time = median(interleaved({"": lambda: y.copy_(x)}, device, 3, 10)[""])
        return 2 * x.nbytes / time
    w, x = torch.randn(160_000, 768), torch.randn(1, 768)
    return w.nbytes / median(interleaved({"": lambda: torch.nn.functional.linear(x, w)}, device, 2, 10)[""])


def measured(
    size: str, rows: int, dtype: str, speeds: list[str], new: int, device: str, rate: float, repeats: int
) -> list[dict[str, Any]]:
    model = model_of(size, dtype, device)
    texts = prompts(rows)
    works: dict[str, Callable[[], Any]] = {"transformers": hugging_face(twin(model), texts, new)}
    if device == "cuda":
        works[STATIC] = hugging_face(twin(model), texts, new, cache_implementation="static")
    kinds = dict.fromkeys(works, dtype)
    if device == "cpu" and dtype == "float32":
        for precision in ("float32", "int8") if fast_is_there(device) else ():
            works[f"{FAST}, {precision}"] = ctranslate2(model, texts, new, precision)
            kinds[f"{FAST}, {precision}"] = precision
        lay_out(model, "one")
    works |= {f"headway {speed}": headway(model, texts, new, speed) for speed in speeds}
    times = interleaved(works, device, 1, repeats)
    first = median(times["transformers"])
    weights = sum(weight.nbytes for name, weight in model.named_parameters() if "position" not in name)
    return [
        {
            "who": name.partition(",")[0] if name.startswith(FAST) else name,
            "size": size,
            "rows": rows,
            "dtype": kinds.get(name, dtype),
            "tokens_per_second": round(rows * new / median(values), 1),
            "microseconds_a_step": round(median(values) / new * 1e6, 1),
            "times_transformers": round(first / median(values), 2),
            "floor_microseconds": round(weights * (0.25 if kinds.get(name) == "int8" else 1) / rate * 1e6, 1),
        }
        for name, values in times.items()
    ]


def profile(size: str, rows: int, dtype: str, new: int, device: str, speed: str) -> None:
    work = headway(model_of(size, dtype, device), prompts(rows), new, speed)
    work(), work()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as seen:
        work()
    key = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
    print(f"{size}, {rows} rows, {dtype}, {speed}, {new} new tokens")
    print(seen.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=70))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", choices=SIZES, help="only this size")
    parser.add_argument("--batch", type=int, help="only so many rows")
    parser.add_argument("--new", type=int, help="tokens to write")
    parser.add_argument("--ways", nargs="+", help="headway's ways to take steps: plain, graphs, compile")
    parser.add_argument("--profile", metavar="WAY", help="no measurement: name the kernels of plain, graphs or compile")
    options = parser.parse_args()
    device, cases = options.device, CASES[options.device]
    new = options.new or (256 if device == "cuda" else 64)
    if options.size or options.batch:
        given = [(options.size or size, options.batch or rows, *rest) for size, rows, *rest in cases]
        cases = list({case[:3]: case for case in given}.values())
    if options.profile:
        for size, rows, dtype, _ in cases:
            profile(size, rows, dtype, new, device, options.profile)
        return
    check_tokens(device)
    rate = bandwidth(device)
    rows = []
    for size, batch, dtype, speeds in cases:
        repeats = options.repeats or (5 if device == "cuda" else 9)
        speeds = options.ways or speeds
        found = measured(size, batch, dtype, speeds, new, device, rate, repeats)
        print(*found, sep="\n", flush=True)
        rows += found
        if device == "cuda":
            torch.cuda.empty_cache()
    case = {"read": READ, "new": new, "gigabytes_per_second": round(rate / 1e9, 1)}
    write(f"decoding-{device}", device, rows, options.out, case=case)


if __name__ == "__main__":
    main()
