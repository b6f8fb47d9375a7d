"""headway evaluate"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from headway.cli.options import (
    BATCH,
    BEAM,
    DEVICE,
    DTYPE,
    LENGTH_PENALTY,
    THREADS,
    check_model,
    check_output,
    search_settings,
    use_threads,
)
from headway.errors import InputError
from headway.plain import json_line

if TYPE_CHECKING:
    from headway.evaluate.bleu import Scores

USE = "headway evaluate MODEL SOURCE REFERENCE"


def evaluate(
    model: str = typer.Argument(None, metavar="MODEL", help="A model folder, or a run's folder."),
    data: list[str] = typer.Argument(
        None,
        metavar="DATA",
        help="SOURCE REFERENCE files, a .tsv or a .jsonl; text for a language model; labelled text.",
    ),
    hypotheses: str = typer.Option(None, metavar="FILE", help="Score this file of translations instead of a model's."),
    references: str = typer.Option(None, metavar="FILE", help="The references of --hypotheses."),
    tokenize: str = typer.Option(
        "13a", metavar="NAME", help="sacreBLEU's tokenisation; none for text that is tokenised."
    ),
    lowercase: bool = typer.Option(False, "--lowercase", help="Score without regard to case."),
    bootstrap: int = typer.Option(1000, metavar="N", help="Resamples for the confidence interval; 0 leaves it out."),
    output: str = typer.Option(None, metavar="FILE", help="Keep the translations in this file."),
    as_json: bool = typer.Option(False, "--json", help="As JSON."),
    stride: int = typer.Option(
        None, min=1, metavar="N", help="Language models: by how many tokens the window moves on (default: its length)."
    ),
    beam: int = BEAM,
    length_penalty: float = LENGTH_PENALTY,
    batch: int = BATCH,
    device: str = DEVICE,
    dtype: str = DTYPE,
    threads: int = THREADS,
) -> None:
    """BLEU and chrF of a translator or of given translations; perplexity of a language model; accuracy of labels."""
    from headway.evaluate.bleu import check_bootstrap, check_tokenizer, score

    use_threads(threads)
    check_tokenizer(tokenize)
    check_bootstrap(bootstrap)
    if (hypotheses is None) != (references is None):
        raise InputError("--hypotheses and --references go together")
    check_output(output, [*(data or []), hypotheses, references])
    settings = search_settings(beam=beam, length_penalty=length_penalty, batch=batch)
    if hypotheses is not None:
        if model is not None:
            raise InputError("give a model with its data, or --hypotheses with --references, not both")
        texts, wanted = _given(hypotheses, references)
    else:
        _check(model, data)
        if _writes(model):
            if settings or output:
                raise InputError("--beam, --length-penalty, --batch and --output are for translators")
            rate = _label_scores if _labels(model) else _perplexity
            print(rate(model, data, stride, device, dtype, as_json))
            return
        texts, wanted = _translated(model, data, device, dtype, settings, output)
    scores = score(texts, wanted, tokenize=tokenize, lowercase=lowercase, bootstrap=bootstrap)
    print(json.dumps(scores.to_dict(), ensure_ascii=False) if as_json else in_words(scores))


def _check(model: str | None, data: list[str] | None) -> None:
    if model is not None:
        check_model(model, USE)
    if model is None or not data:
        raise InputError(f"give a model and its test pairs ({USE}), or a language model and text")


def _writes(model: str) -> bool:
    """Whether it is a language model."""
    from headway.folder import find_model, read_card

    return len(read_card(find_model(model)).vocabularies) == 1


def _labels(model: str) -> bool:
    """Whether it is an encoder, which gives labels."""
    from headway.folder import find_model, read_card

    return read_card(find_model(model)).family == "bert"


def _label_scores(model: str, data: list[str], stride: int | None, device: str, dtype: str, as_json: bool) -> str:
    """How often an encoder gives these texts their own labels."""
    from headway.data.labelled import read_labelled
    from headway.evaluate.labels import score_labels
    from headway.generate.encoder import load

    if stride is not None:
        raise InputError("--stride is for language models")
    found = score_labels(load(model, device, dtype), read_labelled(data)).to_dict()
    if as_json:
        return json_line(found)
    names = {"accuracy": "accuracy", "f1": "macro-F1", "matthews": "Matthews' correlation"}
    rows = [f"{shown:<22}  {found[name]:.4f}" for name, shown in names.items()]
    return "\n".join([*rows, f"{found['texts']:,} texts"])


def _given(hypotheses: str, references: str) -> tuple[list[str], list[str]]:
    from headway.data.readers import lines

    texts, wanted = list(lines(hypotheses)), list(lines(references))
    if len(texts) != len(wanted):
        raise InputError(f"{hypotheses} has {len(texts)} lines, {references} {len(wanted)}: they must match")
    return texts, wanted


def _translated(
    model: str, data: list[str], device: str, dtype: str, settings: dict[str, Any], output: str | None
) -> tuple[list[str], list[str]]:
    """A model's translations, kept in `output` where one is given, and the references."""
    from headway.cli.place import opened
    from headway.cli.translate import one_line
    from headway.data.readers import read_pairs
    from headway.generate.translator import load

    translator = load(model, device, dtype)
    pairs = list(read_pairs(data, translator.card.source, translator.card.target))
    texts = translator.translate([source for source, _ in pairs], **settings)
    if output:
        with opened(output) as out:
            out.writelines(one_line(text) + "\n" for text in texts)
    return texts, [target for _, target in pairs]


def _perplexity(model: str, data: list[str], stride: int | None, device: str, dtype: str, as_json: bool) -> str:
    """How well a language model foretells these documents."""
    from headway.data.catalog import cache_folder
    from headway.data.documents import Documents
    from headway.data.token_store import prepare_documents
    from headway.evaluate.perplexity import score_store
    from headway.folder import find_model, read_card
    from headway.generate.generator import load

    generator = load(model, device, dtype)
    documents = Documents.at(data, lines=read_card(find_model(model)).text.lines)
    store = prepare_documents(documents, generator.tokenizer, cache_folder() / "stores")
    network: Any = generator.model
    found = score_store(network, store, network.context, stride)
    if as_json:
        return json_line(found.values())
    how = f"windows of {found.window} moved on by {found.stride}" if found.window else "read from front to back"
    unknown = f"; {found.unknown:,} tokens are unknown to the model, so the text is not all foretold"
    return "\n".join(
        [
            f"loss per token         {found.per_token:.4f}",
            f"perplexity per token   {found.perplexity:.4f}",
            f"perplexity per word    {found.word_perplexity:,.2f}",
            f"bits per character     {found.bits_per_character:.4f}",
            f"{found.tokens:,} tokens, {how}" + (unknown if found.unknown else ""),
        ]
    )


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
