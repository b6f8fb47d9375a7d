"""One trained translator, several engines: headway, CTranslate2 (float32 and int8) and `transformers`, on the CPU.

All translate the same sentences with the search that the folder asks for (beam, length penalty, end of the search), in
text and out text, tokenizing counted. Each gets the batch size that suits it best of those below, sentences of like
length together. Repeats are interleaved; medians. Told beside the time: how many answers are headway's own to the
letter, and the BLEU of each.

    PYTHONPATH=src python benchmarks/engines.py MODEL SOURCE_FILE REFERENCE_FILE --device cpu
"""

from __future__ import annotations

from measure import arguments, interleaved, median, write

# isort: split
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headway.data.readers import lines
from headway.evaluate.bleu import corpus_bleu
from headway.hub.ctranslate2_engine import load_translator
from headway.hub.ctranslate2_export import export_ctranslate2
from headway.hub.hf_export import export_hf
from headway.tasks.loading import load

SIZES = (16, 32, 64, 128)

Translate = Callable[[list[str], int], list[str]]


def transformers_translate(folder: Path) -> Translate:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def translate(texts: list[str], batch: int) -> list[str]:
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        answers = [""] * len(texts)
        for at in range(0, len(order), batch):
            rows = order[at : at + batch]
            given = tokenizer([texts[i] for i in rows], return_tensors="pt", padding=True)
            with torch.inference_mode():
                found = model.generate(**given)
            for i, text in zip(rows, tokenizer.batch_decode(found, skip_special_tokens=True), strict=True):
                answers[i] = text
        return answers

    return translate


def by_batch(translator: Any) -> Translate:
    def translate(texts: list[str], batch: int) -> list[str]:
        return [best[0].text if best else "" for best in translator.translate_n(texts, batch=batch)]

    return translate


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("reference")
    parser.add_argument("--limit", type=int, default=1000, help="only so many sentences")
    options = parser.parse_args()
    if options.device != "cpu":
        parser.error("CTranslate2 is for the CPU here: pass --device cpu")
    texts = list(lines(options.source))[: options.limit]
    references = list(lines(options.reference))[: options.limit]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        export_hf(options.model, folder / "hf")
        engines: dict[str, Translate] = {
            "headway": by_batch(load(options.model, "cpu")),
            "transformers": transformers_translate(folder / "hf"),
        }
        for precision in ("float32", "int8"):
            export_ctranslate2(options.model, folder / precision, precision)
            engines[f"ctranslate2 {precision}"] = by_batch(load_translator(folder / precision))
        rows = measured(engines, texts, references, options.repeats or 3)
    write("engines", "cpu", rows, options.out, sentences=len(texts))


def measured(
    engines: dict[str, Translate], texts: list[str], references: list[str], repeats: int
) -> list[dict[str, Any]]:
    sample = texts[:: max(1, len(texts) // 200)]
    best = {}
    for name, translate in engines.items():
        tried = {str(size): partial(translate, sample, size) for size in SIZES}
        taken = interleaved(tried, "cpu", warm=0, repeats=2)
        best[name] = int(min(tried, key=lambda size: median(taken[size])))
    answers = {name: translate(texts, best[name]) for name, translate in engines.items()}
    works = {name: partial(translate, texts, best[name]) for name, translate in engines.items()}
    seconds = interleaved(works, "cpu", warm=0, repeats=repeats)
    own = answers["headway"]
    rows = []
    for name, found in answers.items():
        taken = median(seconds[name])
        rows.append({
            "engine": name, "batch": best[name], "seconds": round(taken, 2),
            "sentences_per_second": round(len(texts) / taken, 1),
            "ratio_to_headway": round(median(seconds["headway"]) / taken, 2),
            "equal_to_headway": sum(a == b for a, b in zip(found, own, strict=True)),
            "bleu": round(corpus_bleu(found, references, tokenize="none"), 2),
        })  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
