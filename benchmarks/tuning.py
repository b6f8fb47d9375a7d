"""Post-training of small language models on people's preferences (Bai et al. 2022, helpful sets): before, tuned, DPO.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/tuning.py NAME=MODEL... --judge BERT --device cuda --parts train
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/tuning.py NAME=MODEL... --judge BERT --device cuda --parts ask
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/tuning.py NAME=MODEL... --parts check

`train`: each model learns the chosen answers of two sets (helpful-online, helpful-rejection-sampled), then prefers them
to the rejected ones; an encoder learns to judge answers from the same pairs. `ask`: on the third set (helpful-base),
which nothing was trained on: the perplexity of chosen answers; the share of pairs in which the chosen answer is the
likelier one (by sum, and by the mean of its tokens), or has gained more than the rejected one beside the tuned model
(what DPO learns), with 95 % intervals, beside `longer`, the share of pairs whose chosen answer has more characters; the
KL divergence of answers that are drawn from the last model to the tuned one, in nats an answer; and how often the judge
prefers the last model's answer to the tuned one's, and the best of eight to one. Answers to IFEval's prompts are kept
in --runs. `check`: how many of its instructions the answers follow, by lm-eval's own program (lm_eval[ifeval]).
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import json
import lzma
import math
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scores import trained
from side_by_side import side_by_side, training_options

from headway.batch import IGNORED, TokenBatch
from headway.data.catalog import find
from headway.data.conversations import Preference, read_preferences
from headway.data.exchanges import Exchange, exchanges, padded
from headway.generate.generator import Generator, best
from headway.nn.loss import log_likelihoods
from headway.tasks.loading import load
from headway.text.chat import TURNS, Chat, asked_text

LEARNED = ("hh_rlhf/helpful-online.test.jsonl.xz", "hh_rlhf/helpful-rejection-sampled.test.jsonl.xz")
HELD = "hh_rlhf/helpful-base.test.jsonl.xz"
STAGES = ("before", "tuned", "preferred")
PROMPTS, SAMPLES, NEW, ROWS = 200, 8, 96, 16


def place(options: Namespace, name: str, stage: str) -> Path:
    return Path(options.of[name]) if stage == "before" else options.runs / f"{name}-{stage}"


def train(options: Namespace) -> None:
    data = [f"data.train={','.join(LEARNED)}", "data.broken=skip", f"engine.device={options.device}", *options.settings]

    def one(name: str) -> None:
        if name == "judge":
            trained("reward", "judge", options.runs, data, init=options.judge)
            return
        for recipe, stage, start in (("tune", "tuned", "before"), ("prefer", "preferred", "tuned")):
            trained(recipe, f"{name}-{stage}", options.runs, data, init=str(place(options, name, start)))

    side_by_side(one, [*options.of, *(["judge"] if options.judge else [])], options.parallel)


@torch.no_grad()
def likelihoods(model: Generator, found: Sequence[Exchange]) -> np.ndarray[Any, Any]:
    """(N, 2): log-probability of each answer, and how many tokens it has."""
    order = sorted(range(len(found)), key=lambda at: len(found[at].ids))
    sums, network = np.zeros((len(found), 2)), model.model
    for start in range(0, len(order), ROWS):
        some = order[start : start + ROWS]
        batch: TokenBatch = padded([found[at] for at in some], max(len(found[at].ids) for at in some))
        batch = batch.map(lambda tensor: tensor.to(model.device))
        hidden = network.read(batch.ids_BT)[0].flatten(0, 1)
        weight = network.output_weight[: network.vocabulary]
        sums[some, 0] = log_likelihoods(hidden, weight, batch.labels_BT, IGNORED).double().cpu()
        sums[some, 1] = (batch.labels_BT != IGNORED).sum(1).cpu()
    return sums


def held_out(model: Generator) -> tuple[list[Preference], list[list[Exchange]]]:
    """The pairs that fit into the model, and the exchanges of their chosen and of their rejected answers."""
    values = read_preferences([find(HELD)], "skip", print)
    chat = model.tokenizer.chat or Chat(TURNS, {})
    both = [
        exchanges(model.tokenizer, chat, [one.answered(getattr(one, side)) for one in values], last=True)
        for side in ("chosen", "rejected")
    ]
    fits = [at for at in range(len(values)) if max(len(side[at].ids) for side in both) <= model.context]
    return [values[at] for at in fits], [[side[at] for at in fits] for side in both]


def share(right: np.ndarray[Any, Any]) -> list[float]:
    """A share with its 95 % interval (Wilson 1927)."""
    count, p, z = len(right), float(np.mean(right)), 1.96
    middle = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return [round(p, 4), round(middle - half, 4), round(middle + half, 4)]


def of_stages(options: Namespace, name: str) -> list[dict[str, Any]]:
    rows, seen = list[dict[str, Any]](), dict[str, Any]()
    for stage in STAGES:
        model: Generator = load(place(options, name, stage), options.device)
        values, both = held_out(model)
        chosen, rejected = (likelihoods(model, side) for side in both)
        seen[stage] = chosen[:, 0] - rejected[:, 0]
        row = {
            "model": name, "stage": stage, "pairs": len(values),
            "perplexity": round(math.exp(-chosen[:, 0].sum() / chosen[:, 1].sum()), 3),
            "likelier": share(chosen[:, 0] > rejected[:, 0]),
            "likelier_by_token": share(chosen[:, 0] / chosen[:, 1] > rejected[:, 0] / rejected[:, 1]),
            "longer": share(np.array([len(one.chosen) > len(one.rejected) for one in values])),
        }  # fmt: skip
        if stage == "preferred":
            row["gained"] = share(seen["preferred"] > seen["tuned"])
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows + answers(options, name)


def answers(options: Namespace, name: str) -> list[dict[str, Any]]:
    """What is drawn from the last two models, and what the judge makes of it."""
    tuned, last = (load(place(options, name, stage), options.device) for stage in STAGES[1:])
    values, _ = held_out(tuned)
    prompts = [list(one.prompt) for one in values[:PROMPTS] if len(tuned.ids(one.prompt)) + NEW < tuned.context]
    how: dict[str, Any] = {"max_new": NEW, "seed": 1}
    drawn = {"tuned": tuned.generate_n(prompts, samples=SAMPLES, **how), "preferred": last.generate_n(prompts, **how)}
    asked = [last.ids(prompt) for prompt in prompts]
    written = [[*ids, *passages[0].written.ids] for ids, passages in zip(asked, drawn["preferred"], strict=True)]
    found = [
        Exchange(ids[:-1], [IGNORED] * (len(before) - 1) + ids[len(before) :])
        for before, ids in zip(asked, written, strict=True)
        if len(ids) > len(before)
    ]
    apart = likelihoods(last, found)[:, 0] - likelihoods(tuned, found)[:, 0]
    error = float(np.std(apart) / math.sqrt(len(apart)))
    length = float(np.mean([sum(label != IGNORED for label in one.labels) for one in found]))
    row: dict[str, Any] = {"model": name, "stage": "drawn", "kl": round(float(np.mean(apart)), 3)}
    row |= {"kl_error": round(error, 3), "tokens": round(length, 1)}
    texts = [(passages[0].text, drawn["tuned"][at][0].text) for at, passages in enumerate(drawn["preferred"])]
    if options.judge:
        judge = load(options.runs / "judge", options.device)
        chosen = [best(some, prompt, judge).text for prompt, some in zip(prompts, drawn["tuned"], strict=True)]
        picked = [(one, drawn["tuned"][at][0].text) for at, one in enumerate(chosen)]
        row["judge_prefers_preferred"] = preferred(judge, prompts, texts)
        row["judge_prefers_best_of_8"] = preferred(judge, prompts, picked)
    row["examples"] = [
        {"prompt": prompt[-1]["content"][:200], "tuned": other[:300], "preferred": one[:300]}
        for prompt, (one, other) in list(zip(prompts, texts, strict=True))[:5]
    ]
    return [row]


def preferred(judge: Any, prompts: list[Any], pairs: list[tuple[str, str]]) -> list[float]:
    said = [
        (asked_text(prompt), pair) for prompt, pair in zip(prompts, pairs, strict=True) if all(map(str.strip, pair))
    ]
    return share(np.array([shares[0] > shares[1] for shares in judge.choose(said, truncate=True)]))


def instructions() -> list[dict[str, Any]]:
    with lzma.open(find("ifeval/input_data.jsonl.xz"), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def ask(options: Namespace) -> None:
    rows = [row for name in options.of for row in of_stages(options, name)]
    (options.runs / "asked.json").write_text(json.dumps(rows))
    prompts = [[{"role": "user", "content": one["prompt"]}] for one in instructions()]
    for name in options.of:
        for stage in STAGES[1:]:
            model: Generator = load(place(options, name, stage), options.device)
            short = [prompt for prompt in prompts if len(model.ids(prompt)) + 8 < model.context]
            written = iter(model.generate(short, max_new=512, temperature=0))
            told = [next(written) if prompt in short else "" for prompt in prompts]
            (options.runs / f"{name}-{stage}-ifeval.json").write_text(json.dumps(told))


def check(options: Namespace) -> None:
    """Strict, by instruction and by prompt."""
    from lm_eval.tasks.ifeval.utils import InputExample, test_instruction_following_strict  # type: ignore

    rows = json.loads((options.runs / "asked.json").read_text())
    judge = options.runs / "judge" / "model" / "headway.json"
    if judge.exists():
        rows.append({"model": "judge", "stage": "learned"} | json.loads(judge.read_text())["score"])
    for name in options.of:
        for stage in STAGES[1:]:
            told = json.loads((options.runs / f"{name}-{stage}-ifeval.json").read_text())
            found = [
                test_instruction_following_strict(
                    InputExample(one["key"], one["instruction_id_list"], one["prompt"], one["kwargs"]), answer
                )
                for one, answer in zip(instructions(), told, strict=True)
            ]
            followed = [right for one in found for right in one.follow_instruction_list]
            prompts = [one.follow_all_instructions for one in found]
            shares = {"instructions": share(np.array(followed)), "prompts": share(np.array(prompts))}
            rows.append({"model": name, "stage": stage, "ifeval": shares})
    write("tuning", "cpu", rows, options.out, case={"held_out": "helpful-base", "sampled": PROMPTS})


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL", help="language models to start from")
    parser.add_argument("--judge", help="an encoder to start the judge from")
    parser.add_argument("--parts", nargs="+", choices=("train", "ask", "check"), default=["train", "ask", "check"])
    options = training_options(parser, "tuning", seeds=1)
    options.of = dict(pair.split("=", 1) for pair in options.models)
    for part in options.parts:
        {"train": train, "ask": ask, "check": check}[part](options)


if __name__ == "__main__":
    main()
