"""headway evaluate"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from headway.cli import options
from headway.cli.options import argument, flag, option
from headway.errors import InputError, refuse
from headway.plain import json_line

DEFAULTS = {"tokenize": "13a", "lowercase": False, "bootstrap": 1000, "stride": None}
USE = "headway evaluate MODEL SOURCE REFERENCE"


def evaluate(
    model: str = argument("MODEL", "A model folder, or a run's folder.", None),
    data: list[str] = argument(
        "DATA", "SOURCE REFERENCE files, a .tsv or a .jsonl; text for a language model; labelled text; questions.", None
    ),
    hypotheses: str = option(None, "FILE", "Score this file of translations instead of a model's."),
    references: str = option(None, "FILE", "The references of --hypotheses."),
    tokenize: str = option("13a", "NAME", "sacreBLEU's tokenisation; none for text that is tokenised."),
    lowercase: bool = flag("--lowercase", "Score without regard to case."),
    bootstrap: int = option(1000, "N", "Resamples for the confidence interval; 0 leaves it out."),
    output: str = option(None, "FILE", "Keep the translations in this file."),
    text_column: list[str] = options.TEXT_COLUMN,
    label_column: str = options.LABEL_COLUMN,
    no_answer: float = options.NO_ANSWER,
    max_answer_tokens: int = options.MAX_ANSWER_TOKENS,
    as_json: bool = options.AS_JSON,
    stride: int = option(
        None, "N", "Language models: by how many tokens the window moves on (default: its length).", min=1
    ),
    beam_size: int = options.BEAM_SIZE,
    length_penalty: float = options.LENGTH_PENALTY,
    batch_size: int = options.BATCH_SIZE,
    device: str = options.DEVICE,
    dtype: str = options.DTYPE,
    threads: int = options.THREADS,
) -> None:
    """BLEU and chrF of a translator or of given translations; perplexity of a language model; accuracy of labels;
    exact match and F1 of answers."""
    from headway.evaluate.bleu import check_bootstrap, check_tokenizer, score

    check_tokenizer(tokenize)
    check_bootstrap(bootstrap)
    refuse((hypotheses is None) != (references is None), "--hypotheses and --references go together")
    options.check_output(output, [*(data or []), hypotheses, references])
    if hypotheses is not None:
        refuse(model is not None, "give a model with its data, or --hypotheses with --references, not both")
        texts, wanted = _given(hypotheses, references)
        scores = score(texts, wanted, tokenize=tokenize, lowercase=lowercase, bootstrap=bootstrap)
        print(json.dumps(scores.to_dict(), ensure_ascii=False) if as_json else "\n".join(scores.lines()))
        return
    if model is not None:
        options.check_model(model, USE)
    refuse(model is None or not data, f"give a model and its test pairs ({USE}), or a language model and text")
    from headway.tasks.loading import load, task_of

    how: dict[str, Any] = {"tokenize": tokenize, "lowercase": lowercase, "bootstrap": bootstrap, "stride": stride}
    given = {name: value for name, value in how.items() if value != DEFAULTS[name]}
    given |= {"text_column": tuple(text_column)} if text_column else {}
    given |= options.given(
        label_column=label_column, beam_size=beam_size, length_penalty=length_penalty, batch_size=batch_size,
        no_answer=no_answer, max_answer_tokens=max_answer_tokens,
    )  # fmt: skip
    keep = {"keep": partial(_keep, output)} if output else {}
    report = task_of(model).evaluate(load(model, device, dtype), data, given | keep)
    print(json_line(report.values) if as_json else "\n".join(report.lines))


def _keep(output: str, texts: list[str]) -> None:
    from headway.cli.place import opened
    from headway.cli.translate import one_line

    with opened(output) as out:
        out.writelines(one_line(text) + "\n" for text in texts)


def _given(hypotheses: str, references: str) -> tuple[list[str], list[str]]:
    from headway.data.readers import lines

    texts, wanted = list(lines(hypotheses)), list(lines(references))
    if len(texts) != len(wanted):
        raise InputError(f"{hypotheses} has {len(texts)} lines, {references} {len(wanted)}: they must match")
    return texts, wanted
