"""headway predict"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from headway.cli.options import (
    DEVICE,
    DTYPE,
    MAX_ANSWER_TOKENS,
    MODEL,
    NO_ANSWER,
    TEXT_COLUMN,
    TEXTS,
    THREADS,
    TRUNCATE,
    argument,
    check_model,
    flag,
    option,
)
from headway.cli.texts import questions_of, texts_of
from headway.errors import refuse
from headway.plain import json_line


def predict(
    model: str = MODEL,
    inputs: list[str] = argument(
        "INPUT...", "A text a line (.gz, .zst, .xz too), or a .csv or .jsonl of texts; else stdin.", None
    ),
    text: list[str] = TEXTS,
    pairs: bool = flag("--pairs", "Each line is a pair of texts with a tab between them."),
    every: bool = flag("--all", "Every label with its probability, not the first alone."),
    text_column: list[str] = TEXT_COLUMN,
    context: str = option(
        None, "FILE", "Of a model that finds answers: the text to find them in; INPUT or --text are then questions."
    ),
    question: str = option(None, "TEXT", "Of a model that answers about pictures: what is asked of each."),
    no_answer: float = NO_ANSWER,
    max_answer_tokens: int = MAX_ANSWER_TOKENS,
    truncate: bool = TRUNCATE,
    max_new_tokens: int = option(None, "N", "Of a model that writes: the most tokens.", min=1),
    beam_size: int = option(None, "N", "Of a translator: hypotheses that are kept.", min=1),
    seed: int = option(None, "N", "Of a model that samples: the random generator's seed.", min=0),
    language: str = option(None, "CODE", "Of a model of speech: what is spoken (default: detected)."),
    translate: bool = flag("--translate", "Of a model of speech: the text in English."),
    prompt: str = option(None, "TEXT", "Of a model of speech: names as they are spelled, or the text before."),
    no_previous_text: bool = flag(
        "--no-previous-text", "Of a model of speech: each window is heard without the text of those before it."
    ),
    words: bool = flag("--words", "Of a model of speech: when each word is said, a line a word."),
    srt: bool = flag("--srt", "Of a model of speech: subtitles as SubRip."),
    vtt: bool = flag("--vtt", "Of a model of speech: subtitles as WebVTT."),
    live: bool = flag("--live", "Of a model of speech: from stdin, samples of 16 bits, as they come."),
    conll: bool = flag("--conll", "Of a tagger: a word and its tag a line, an empty line behind each sentence."),
    tag_scheme: str = option(None, "NAME", "Of a tagger of entities: bio or bioes (default: bio)."),
    draw: str = option(
        None,
        "FILE",
        "Of a model that says what is in a picture: write the picture with boxes and masks here; of several "
        "pictures into this folder.",
    ),
    as_json: bool = flag("--json", "A JSON object a line."),
    engine: str = option("headway", "NAME", "Of a model of speech: headway, or ctranslate2 for fast use on a CPU."),
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """What the model's task answers: labels, tags, words for gaps, vectors, a translation, a continuation, an answer to
    a question in the text behind a tab or in --context, one of several choices behind tabs. One line for each input, in
    order; an empty line gives an empty one."""
    from headway.tasks.loading import load, task_of

    check_model(model, "headway predict MODEL FILE")
    task = task_of(model)
    options: dict[str, Any] = {
        "pairs": pairs, "all": every, "truncate": truncate, "max_new_tokens": max_new_tokens, "beam_size": beam_size,
        "seed": seed, "conll": conll, "tag_scheme": tag_scheme, "language": language, "translate": translate,
        "prompt": prompt, "no_previous_text": no_previous_text, "words": words, "srt": srt, "vtt": vtt, "live": live,
        "draw": draw, "context": context, "question": question, "no_answer": no_answer,
        "max_answer_tokens": max_answer_tokens,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if context is not None:
        inputs, text = [], [*questions_of(inputs or []), *text]
    refuse(live and (inputs or text), "--live reads stdin: leave the recordings out")
    values: list[Any] = [_heard()] if live else task.read(inputs or [], text, texts_of, text_column)
    places = iter(drawn_places(draw, values) if draw is not None else ())
    refuse(engine not in ("headway", "ctranslate2"), f"there is no engine '{engine}': write headway or ctranslate2")
    refuse(engine != "headway" and task.fast is None, f"--engine {engine} has no meaning for the task '{task.name}'")
    opened = load(model, device, dtype) if task.fast is None or engine == "headway" else task.fast(model, device, dtype)
    for found in task.answer(opened, values, given):
        print(json_line(found.values) if as_json else found.line)
        if found.drawn is not None:
            found.drawn.save(next(places))


def _heard() -> Any:
    """What comes on standard input: raw samples."""
    from headway.data.sound_files import pcm

    return pcm(sys.stdin.buffer)


def drawn_places(draw: str, values: list[Any]) -> list[Path]:
    """Where the drawn pictures go: one to the file itself, several into a folder, each by the name of its picture."""
    place = Path(draw)
    if len(values) > 1 or place.is_dir():
        names = [f"{Path(str(value)).stem}.png" for value in values]
        refuse(len(set(names)) < len(names), "two pictures have the same name: draw them one at a time")
        refuse(place.exists() and not place.is_dir(), f"{draw} is a file: give a folder for several pictures")
        place.mkdir(parents=True, exist_ok=True)
        return [place / name for name in names]
    known = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
    refuse(place.suffix.lower() not in known, f"--draw writes a picture ({', '.join(known)}), not {draw}")
    refuse(not place.absolute().parent.is_dir(), f"there is no folder {place.absolute().parent}")
    refuse(str(values[0]) == draw, f"--draw {draw} would replace the picture that is read: give another name")
    return [place]
