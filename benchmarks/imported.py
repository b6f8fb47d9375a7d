"""Decoding an imported Llama's shape on a CPU: headway beside transformers, one row, greedy.

SmolLM2-135M's shape (30 layers, width 576, 9 heads that share 3 keys, vocabulary 49,152), weights drawn at random, in
float32; on two threads also in bfloat16 where the processor computes with it, and by CTranslate2, headway's other
engine, in float32 and int8. Each repeat runs all in turn, in processes of their own; medians. `per_second` is by the
clock, `per_cpu_second` by the time of all processors.

    PYTHONPATH=src python benchmarks/imported.py --device cpu
"""

from __future__ import annotations

from measure import arguments, median, write

# isort: split
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.device import has_bfloat16

NEW, PROMPT, VOCABULARY = 24, 32, 49_152
ENGINE = "headway --engine ctranslate2"
# Who, and with which numbers; the others need two threads' time only.
WHO = (("headway", "float32"), ("transformers", "float32"))
BFLOAT16 = (("headway", "bfloat16"), ("transformers", "bfloat16"))
MORE = ((ENGINE, "float32"), (ENGINE, "int8"))


def llama(dtype: str) -> Any:
    import torch

    from headway.models.llama import Llama, LlamaConfig

    model = Llama(LlamaConfig(30, 576, 1536, 9, 3, tied=True, max_length=8192), VOCABULARY)
    return model.to(getattr(torch, dtype)).eval()


def headway(dtype: str) -> Callable[[], Any]:
    import torch

    from headway.generate.offline import generate_all
    from headway.generate.request import Request
    from headway.generate.sampling import Sampling
    from headway.generate.stepper import stepper_for
    from headway.nn.weights import lay_out

    model, device = llama(dtype), torch.device("cpu")
    lay_out(model, "one")
    stepper = stepper_for(model, device)
    asked = [Request(list(range(3, 3 + PROMPT)), Sampling(0), max_new=NEW, stops=frozenset())]
    return lambda: generate_all(model, asked, context=8192, device=device, batch=1, stepper=stepper)


def ctranslate2(dtype: str) -> Callable[[], Any]:
    import tempfile

    import torch
    from ctranslate2 import Generator

    from headway.folder import Loaded, text_card, with_tokenizers
    from headway.hub.ctranslate2_export import write_ctranslate2
    from headway.hub.families.ctranslate2_parts import entries
    from headway.text.tokenizer import TextOptions, Tokenizer

    model, text = llama("float32"), TextOptions(size=300, min_count=1)
    tokenizer = Tokenizer.train(["a b"], text)  # names for a few ids; the others get one from `entries`
    card = text_card("llama", model.config, (model.vocabulary,), text)
    with tempfile.TemporaryDirectory() as folder:
        write_ctranslate2(Path(folder), Loaded(model, card, with_tokenizers(card, tokenizer)), dtype)
        engine = Generator(folder, compute_type=dtype, inter_threads=1, intra_threads=torch.get_num_threads())
    prompt = [entries(tokenizer, model.vocabulary)[3 : 3 + PROMPT]]
    how = {"max_length": NEW, "min_length": NEW, "sampling_topk": 1, "include_prompt_in_result": False}
    return lambda: engine.generate_batch(prompt, **how)


def transformers(dtype: str) -> Callable[[], Any]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True, max_position_embeddings=8192,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    ids = torch.arange(3, 3 + PROMPT)[None]
    how = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    return lambda: model.generate(ids, **how)


def serve(who: str, dtype: str, threads: int) -> None:
    """Time one call for each line."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    work = {"headway": headway, "transformers": transformers, ENGINE: ctranslate2}[who](dtype)
    work()
    for _ in sys.stdin:
        start, used = time.perf_counter(), time.process_time()
        work()
        print("took", time.perf_counter() - start, time.process_time() - used, flush=True)


class Peer:
    def __init__(self, who: str, dtype: str, threads: int) -> None:
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import imported; "
        code += f"imported.serve({who!r}, {dtype!r}, {threads})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self) -> tuple[float, float]:
        """Seconds by the clock, and of all processors."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        while line and not line.startswith("took"):
            line = self.process.stdout.readline()
        wall, used = map(float, line.split()[1:])
        return wall, used


def main() -> None:
    parser = arguments(__doc__)
    options = parser.parse_args()
    repeats, rows = options.repeats or 7, []
    bfloat16 = BFLOAT16 if has_bfloat16() else ()
    for threads, whose in ((2, (*WHO, *bfloat16, *MORE)), (1, WHO)):
        peers = {who: Peer(*who, threads) for who in whose}
        times: dict[tuple[str, str], list[tuple[float, float]]] = {who: [] for who in whose}
        for repeat in range(repeats):
            for who in sorted(whose, reverse=bool(repeat % 2)):
                times[who].append(peers[who]())
        for peer in peers.values():
            peer.process.kill()
            peer.process.wait()
        found = {who: [NEW / median(column) for column in zip(*times[who], strict=True)] for who in whose}
        first = found["transformers", "float32"]
        for who in whose:
            row = {"who": who[0], "dtype": who[1], "threads": threads, "per_second": round(found[who][0], 2),
                   "per_cpu_second": round(found[who][1], 2),
                   "times_transformers": round(found[who][0] / first[0], 3),
                   "times_transformers_per_cpu_second": round(found[who][1] / first[1], 3)}  # fmt: skip
            print(row, flush=True)
            rows.append(row)
    write("imported-cpu", "cpu", rows, options.out, repeats=repeats)


if __name__ == "__main__":
    main()
