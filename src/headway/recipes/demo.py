"""The demo: a grammar's sentences, a small Transformer, its score, its heads and its pictures."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from headway.durations import spoken
from headway.evaluate.alignment import AttendedPair, alignment_error, best_head, random_links, write_links
from headway.evaluate.bleu import score
from headway.explore.picture import alignment_picture, alignment_text, heads_picture
from headway.generate.attention import merge_words
from headway.generate.translator import Translator
from headway.recipes.grammar import Sentence, antecedent, splits, words
from headway.recipes.recipe import RECIPES
from headway.tasks.loading import load
from headway.train.job import train as train_run
from headway.train.log import Log
from headway.train.run import write_run

SHOWN = (
    "He drives the car",
    "The old woman does not like the red cars.",
    "Does the girl see the black cat?",
    "The car is old but it is red.",
)


def run_demo(out: Path, log: Log, device: str, steps: int | None = None, resume: bool = False) -> str:
    """Train, or resume, and judge; returns the report that is printed and kept as `report.txt`."""
    train, valid, test = splits()
    files = {"train": train, "valid": valid, "test": test}
    data = {name: (f"{out / 'data' / name}.en", f"{out / 'data' / name}.fr") for name in files}
    engine = {"device": device} | ({} if steps is None else {"steps": steps})
    run = RECIPES["demo"].make(data=data, engine=engine)
    write_run(run, out / "run.json")  # first: a folder without it would be nobody's
    for name, part in files.items():
        _write(out / "data" / name, part)
    outcome = train_run(run, out, log, resume=resume)
    translator = load(out / "model", device)
    # How this headway is called from here: by its name where the shell finds it, else by its path.
    command = "headway" if shutil.which("headway") else sys.argv[0]
    paragraphs = [
        f"A Transformer of {sum(p.numel() for p in translator.model.parameters()):,} parameters, "
        f"trained on {len(train):,} sentence pairs in {spoken(outcome.scores['training seconds'])} "
        f"({spoken(outcome.seconds)} with vocabulary and scoring).",
        _scores(translator, test),
        _heads(translator, valid, test, out),
        _examples(translator),
        f"model: {out / 'model'}\npictures: {out / 'alignment.png'}, {out / 'heads.png'}\n"
        f"try: echo 'The small dog sleeps in the garden.' | {command} translate {out}",
        f"look inside, in the browser: {command} explore {out} --text 'He drives the car'",
    ]
    report = "\n\n".join(paragraphs)
    (out / "report.txt").write_text(report + "\n", encoding="utf-8")
    return report


def _write(place: Path, part: Sequence[Sentence]) -> None:
    """Both languages and what the grammar knows of them, a line a sentence."""
    place.parent.mkdir(parents=True, exist_ok=True)
    texts = {
        "en": (s.source for s in part),
        "fr": (s.target for s in part),
        "gold": (write_links(s.sure, s.possible) for s in part),
        "antecedents": ("-".join(map(str, antecedent(s.source) or ())) for s in part),
    }
    for ending, lines in texts.items():
        place.with_suffix(f".{ending}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _scores(translator: Translator, test: Sequence[Sentence]) -> str:
    found = score(translator.translate([s.source for s in test]), [s.target for s in test])
    return (
        f"On {len(test)} sentences never seen in training:\n"
        f"  BLEU         {found.bleu:6.2f}   {found.bleu_signature}\n"
        f"  exact match  {100 * found.exact_match:6.1f} %"
    )


def attended(translator: Translator, sentence: Sentence) -> AttendedPair:
    """The cross-attention along the gold translation, with the grammar's own words and links."""
    texts = (sentence.source, sentence.target)
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    ids = [tokenizer.encode(text) for tokenizer, text in zip(tokenizers, texts, strict=True)]
    tokens = [tokenizer.tokens(some) for tokenizer, some in zip(tokenizers, ids, strict=True)]
    source, target = ([*owners(some, words(text)), -1] for some, text in zip(tokens, texts, strict=True))
    seen = translator.attention(*ids)
    return AttendedPair(seen.weights_LHTS, target, source, set(sentence.sure), set(sentence.possible))


def owners(tokens: Sequence[str], text_words: Sequence[str]) -> list[int]:
    """The index of the word of each token, by counting letters: neither has spaces."""
    letter_owner = [number for number, word in enumerate(text_words) for _ in word]
    owner, at = [], 0
    for token in tokens:
        owner.append(letter_owner[min(at, len(letter_owner) - 1)])
        at += len(token.replace("▁", ""))
    return owner


def _heads(translator: Translator, valid: Sequence[Sentence], test: Sequence[Sentence], out: Path) -> str:
    """The head that aligns best on validation sentences, judged on test sentences beside a random one."""
    best = best_head([attended(translator, s) for s in valid[:200]], [attended(translator, s) for s in test])
    sizes = [(len(words(s.source)), len(words(s.target))) for s in test]
    gold = [set(s.sure) for s in test], [set(s.possible) for s in test]
    random = alignment_error(random_links(sizes, seed=0), *gold)
    longest = max((s for s in test if len(words(s.source)) <= 12), key=lambda s: len(words(s.source)))
    pair, (layer, head) = attended(translator, longest), (best.layer, best.head)
    source, target = words(longest.source), words(longest.target)
    by_word = merge_words(pair.weights_LHTS, pair.target_words, pair.source_words)
    alignment_picture(
        by_word[layer, head], source, target, out / "alignment.png",
        title=f"Layer {layer}, head {head}: which English word each French word came from",
        gold=longest.sure, possible=longest.possible,
    )  # fmt: skip
    heads_picture(by_word, source, target, out / "heads.png", title="Every head on one sentence", best=(layer, head))
    return (
        "Word alignment read off the cross-attention (error rate, lower is better):\n"
        f"  best head    {best.reported.aer:6.3f}   layer {layer}, head {head}, chosen on validation pairs\n"
        f"  random       {random.aer:6.3f}\n\n" + alignment_text(by_word[layer, head], source, target)
    )


def _examples(translator: Translator) -> str:
    found = translator.translate(list(SHOWN))
    width = max(map(len, SHOWN))
    return "\n".join(f"  {source:<{width}}  →  {text}" for source, text in zip(SHOWN, found, strict=True))
