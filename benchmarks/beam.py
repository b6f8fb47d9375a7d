"""Beam search speed: a trained headway translator beside Hugging Face's Marian of the same shape.

headway translates the sentences to their natural end. Marian has random weights and the same vocabulary; each
of its batches (the same sentences, in the same order by length) is made to run to the longest output that
headway wrote in that batch, which is when a trained Marian would stop. Both get the batch size that suits them
best. Repeats are interleaved; medians.

    PYTHONPATH=src python benchmarks/beam.py MODEL SOURCE_FILE --device cuda
"""

from __future__ import annotations

from measure import arguments, interleaved, median, write

# isort: split
from collections.abc import Callable
from typing import Any

import torch

from headway.data.readers import lines
from headway.generate.offline import search_all
from headway.tasks.loading import load
from headway.text.tokenizer import END

SIZES = {"cpu": [32, 64, 128], "cuda": [256, 512, 1000]}


def marian(translator: Any, device: torch.device) -> Any:
    from transformers import MarianConfig, MarianMTModel

    config, vocabulary = translator.card.config, translator.card.sizes[1]
    settings = MarianConfig(
        vocab_size=vocabulary, d_model=config.width, encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers, encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads, encoder_ffn_dim=config.inner, decoder_ffn_dim=config.inner,
        pad_token_id=1, eos_token_id=0, decoder_start_token_id=1, max_position_embeddings=config.max_length,
    )  # fmt: skip
    model = MarianMTModel._from_config(settings, attn_implementation="sdpa")
    model.generation_config.eos_token_id = None
    model.generation_config.forced_eos_token_id = None
    dtype = next(translator.model.parameters()).dtype
    return model.to(device, dtype).eval()


def marian_work(
    model: Any, sources: list[list[int]], lengths: list[int], batch: int, device: torch.device
) -> Callable[[], None]:
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    batches = [order[at : at + batch] for at in range(0, len(order), batch)]

    def work() -> None:
        for rows in batches:
            width = max(len(sources[i]) for i in rows)
            ids = torch.tensor([sources[i] + [1] * (width - len(sources[i])) for i in rows], device=device)
            steps = max(lengths[i] for i in rows) + 1
            with torch.inference_mode():
                model.generate(
                    ids, attention_mask=(ids != 1).long(), num_beams=5,
                    max_new_tokens=steps, min_new_tokens=steps, do_sample=False,
                )  # fmt: skip

    return work


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("--limit", type=int, help="only so many sentences")
    options = parser.parse_args()
    translator = load(options.model, options.device)
    device = translator.device
    texts = list(lines(options.source))[: options.limit]
    sources = [[*ids, END] for ids in translator.source_tokenizer.encode_batch(texts)]

    def headway(batch: int) -> list[int]:
        found = search_all(
            translator.model, sources, translator.search, limit=translator.limit, device=device,
            stepper=translator.stepper, batch=batch,
        )  # fmt: skip
        return [len(hypotheses[0].ids) for hypotheses in found]

    lengths = headway(64)
    peer = marian(translator, device)
    works: dict[str, Callable[[], Any]] = {}
    for size in SIZES[options.device]:
        works[f"headway, batch {size}"] = lambda size=size: headway(size)
        works[f"transformers Marian, batch {size}"] = marian_work(peer, sources, lengths, size, device)
    times = interleaved(works, options.device, 1, options.repeats or (5 if options.device == "cuda" else 3))
    best = {
        who: min((name for name in times if name.startswith(who)), key=lambda name: median(times[name]))
        for who in ("headway", "transformers Marian")
    }
    slow = median(times[best["transformers Marian"]])
    rows = [
        {
            "who": best[who],
            "sentences_per_second": round(len(sources) / median(times[best[who]]), 1),
            "target_tokens_per_second": round(sum(lengths) / median(times[best[who]])),
            "times_marian": round(slow / median(times[best[who]]), 2),
        }
        for who in best
    ]
    every = {name: round(len(sources) / median(values), 1) for name, values in times.items()}
    case = {"beam": 5, "sentences": len(sources), "mean_output_tokens": round(sum(lengths) / len(lengths), 1)}
    write(f"beam-{options.device}", options.device, rows, options.out, case=case, sentences_per_second=every)


if __name__ == "__main__":
    main()
