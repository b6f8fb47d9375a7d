"""headway translate"""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli import options
from headway.cli.options import argument, flag, option
from headway.cli.texts import lines_of, name_of
from headway.errors import InputError

if TYPE_CHECKING:
    from headway.generate.translator import Translation

CHUNK = 4096  # lines in memory at a time: sorted by length, translated, written in order


def translate(
    model: str = options.MODEL,
    file: str = argument("FILE", "Text, a sentence a line (.gz, .zst, .xz too); - is stdin.", "-"),
    output: str = option(None, "FILE", "Write to this file instead of standard output."),
    beam_size: int = options.BEAM_SIZE,
    length_penalty: float = options.LENGTH_PENALTY,
    best: int = option(None, "N", "N translations of each line, up to the beam: score, tab, text."),
    max_ratio: float = option(None, "X", "Longest output: max-ratio · source + max-extra tokens."),
    max_extra: int = option(None, "N", "See --max-ratio."),
    min_length: int = option(None, "N", "The fewest tokens of an output."),
    as_json: bool = flag("--json", "A JSON object a line: text, score, tokens and their scores."),
    attention: bool = flag("--attention", "The source words that each output word looked at; with --json, the weights "
                           "of all layers and heads."),
    picture: str = option(None, "FOLDER", "Folder for an alignment picture of each line."),
    batch_size: int = options.BATCH_SIZE,
    engine: str = options.ENGINE,
    device: str = options.DEVICE,
    dtype: str = options.DTYPE,
    threads: int = options.THREADS,
) -> None:  # fmt: skip
    """Translate text, line by line: stdin or a file to stdout, order and empty lines kept."""
    from headway.cli.place import opened
    from headway.explore.picture import alignment_picture

    options.check_model(model, "headway translate MODEL FILE")
    options.check_output(output, [file])
    if picture is not None and Path(picture).is_file():
        raise InputError(f"{picture} is a file: --picture takes a folder for the pictures")
    settings = options.given(
        beam=beam_size, length_penalty=length_penalty, best=best, max_ratio=max_ratio, max_extra=max_extra,
        min_length=min_length, batch=batch_size,
    )  # fmt: skip
    settings["attention"] = attention or picture is not None
    with opened(output) as out:
        translator = _loaded(model, engine, device, dtype)
        number = 0
        typed = file == "-" and sys.stdin.isatty()
        if typed:
            print("headway: type a sentence a line; Ctrl-D ends", file=sys.stderr)
        read = lines_of(file)
        while lines := list(islice(read, 1 if typed else CHUNK)):
            found = _translated(translator, lines, name_of(file), number, **settings)
            for line, translations in zip(lines, found, strict=True):
                number += 1
                print(_answer(line, translations, as_json, attention, best), file=out)
                if picture is not None and translations and (seen := translations[0].attention):
                    path = Path(picture) / f"{number:04}.png"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    alignment_picture(seen.by_word(), seen.source_words, seen.target_words, path)
            out.flush()
            if out is not sys.stdout and sys.stderr.isatty():
                print(f"{number:,} lines translated", file=sys.stderr)


def _loaded(model: str, engine: str, device: str, dtype: str) -> Any:
    if options.check_engine(engine):
        from headway.hub.ctranslate2_engine import load_translator

        return load_translator(model, device, dtype)
    from headway.tasks.loading import load

    return load(model, device, dtype, verb="translate")


def _translated(translator: Any, lines: list[str], name: str, before: int, **how: Any) -> list[list[Translation]]:
    ids = translator.encode(lines)
    for number, tokens in enumerate(ids, before + 1):
        if len(tokens) > translator.source_limit:
            raise InputError(
                f"{name}, line {number} has {len(tokens)} tokens, this model takes at most {translator.source_limit}: "
                "split the line"
            )
    return translator.translate_n(lines, **how)


def _answer(line: str, found: list[Translation], as_json: bool, attention: bool, best: int | None) -> str:
    if as_json:
        rows = [_plain(translation, attention) for translation in found]
        return json.dumps({"source": line, "translations": rows}, ensure_ascii=False)
    if not found:
        return ""
    from headway.explore.picture import alignment_text

    answers = []
    for translation in found if best is not None else found[:1]:
        text = one_line(translation.text)
        answers.append(text if best is None else f"{translation.score:.4f}\t{text}")
        if attention and (seen := translation.attention):
            answers.append(f"{alignment_text(seen.by_word(), seen.source_words, seen.target_words)}\n")
    return "\n".join(answers)


def one_line(text: str) -> str:
    """Without line breaks: a byte-level model can generate one, which would shift all lines after it."""
    return text.replace("\r", " ").replace("\n", " ")


def _plain(translation: Translation, attention: bool) -> dict[str, Any]:
    row = {name: getattr(translation, name) for name in ("text", "score", "tokens", "token_scores")}
    if attention and (seen := translation.attention) is not None:
        words = {name: value for name, value in vars(seen).items() if name != "weights_LHTS"}
        weights = [
            [[[round(float(w), 4) for w in row] for row in head] for head in layer] for layer in seen.weights_LHTS
        ]
        row["attention"] = words | {"weights": weights}
    return row
