"""headway evaluate"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from headway.cli.options import (
    BATCH,
    BEAM,
    DEVICE,
    DTYPE,
    LENGTH_PENALTY,
    THREADS,
    check_model,
    search_settings,
    use_threads,
)
from headway.errors import InputError

if TYPE_CHECKING:
    from headway.evaluate.bleu import Scores

USE = "headway evaluate MODEL SOURCE REFERENCE"


def evaluate(
    model: str = typer.Argument(None, metavar="MODEL", help="A model folder, or a run's folder."),
    data: list[str] = typer.Argument(None, metavar="DATA", help="SOURCE REFERENCE files, a .tsv or a .jsonl."),
    hypotheses: str = typer.Option(None, metavar="FILE", help="Score this file of translations instead of a model's."),
    references: str = typer.Option(None, metavar="FILE", help="The references of --hypotheses."),
    tokenize: str = typer.Option(
        "13a", metavar="NAME", help="sacreBLEU's tokenisation; none for text that is tokenised."
    ),
    lowercase: bool = typer.Option(False, "--lowercase", help="Score without regard to case."),
    bootstrap: int = typer.Option(1000, metavar="N", help="Resamples for the confidence interval; 0 leaves it out."),
    output: str = typer.Option(None, metavar="FILE", help="Keep the translations in this file."),
    as_json: bool = typer.Option(False, "--json", help="As JSON."),
    beam: int = BEAM,
    length_penalty: float = LENGTH_PENALTY,
    batch: int = BATCH,
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """BLEU with its signature and confidence interval, and chrF, of a model or of given translations."""
    from headway.data.readers import lines, read_pairs
    from headway.evaluate.bleu import check_bootstrap, check_tokenizer, score

    use_threads(threads)
    check_tokenizer(tokenize)
    check_bootstrap(bootstrap)
    if (hypotheses is None) != (references is None):
        raise InputError("--hypotheses and --references go together")
    if hypotheses is not None:
        if model is not None:
            raise InputError("give a model with its data, or --hypotheses with --references, not both")
        texts, wanted = list(lines(hypotheses)), list(lines(references))
        if len(texts) != len(wanted):
            raise InputError(f"{hypotheses} has {len(texts)} lines, {references} {len(wanted)}: they must match")
    else:
        if model is None:
            raise InputError(f"give a model and its test pairs: {USE}")
        check_model(model, USE)
        if not data:
            raise InputError(f"give a model and its test pairs: {USE}")
        from headway.cli.place import opened
        from headway.cli.translate import one_line
        from headway.generate.translator import load

        translator = load(model, device, dtype)
        pairs = list(read_pairs(data, translator.card.source, translator.card.target))
        settings = search_settings(beam=beam, length_penalty=length_penalty, batch=batch)
        texts = translator.translate([source for source, _ in pairs], **settings)
        wanted = [target for _, target in pairs]
        if output:
            with opened(output) as out:
                out.writelines(one_line(text) + "\n" for text in texts)
    scores = score(texts, wanted, tokenize=tokenize, lowercase=lowercase, bootstrap=bootstrap)
    print(json.dumps(scores.to_dict(), ensure_ascii=False) if as_json else in_words(scores))


def in_words(scores: Scores) -> str:
    def interval(ends: tuple[float, float] | None) -> str:
        return f"  (95 %: {ends[0]:.2f} to {ends[1]:.2f})" if ends else ""

    count = "1 sentence" if scores.sentences == 1 else f"{scores.sentences:,} sentences"
    return "\n".join(
        [
            f"BLEU  {scores.bleu:.2f}{interval(scores.bleu_interval)}   {scores.bleu_signature}",
            f"chrF  {scores.chrf:.2f}{interval(scores.chrf_interval)}   {scores.chrf_signature}",
            f"exact match {100 * scores.exact_match:.1f} %, {count}",
        ]
    )
