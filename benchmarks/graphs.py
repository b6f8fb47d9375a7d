"""Molecules: a graph Transformer with and without sums over neighbours, GIN, GatedGCN, and a random forest on
fingerprints.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/graphs.py --device cuda --parallel 8 --parts zinc tables folds
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/graphs.py --parts forest

`zinc`: mean absolute error, about 500,000 weights; a record for each recipe. `tables`: ESOL, FreeSolv and
Lipophilicity, ten seeds, each with another random tenth to choose by and another to judge, root mean squared error.
`folds`: MUTAG, ten folds; accuracy on each by the last weights. `forest`: the same sets by scikit-learn's random forest
on Morgan fingerprints (needs RDKit). benchmarks/graph_sets.py packs the sets. Each part has a record of its own.
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import gzip
import json
import os
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scores import trained
from side_by_side import grouped, mean, side_by_side, spread, training_options

ZINC = ("zinc-graph", "zinc-attention", "zinc-gated", "zinc-gin")
TABLES = ("freesolv", "esol", "lipophilicity")
NUMBERS = ("graph", "graph-attention", "graph-gated", "graph-gin")
STEPS = {"freesolv": 1000, "esol": 1500, "lipophilicity": 2000}
CLASSES: dict[str, tuple[str, ...]] = {
    "attention and sums": (),
    "sums (GIN)": (
        "model=message-passing",
        "model.layer=gin",
        "model.layers=4",
        "model.width=32",
        "model.dropout=0.2",
        "head.pooling=sum",
    ),
}
FOLDS, BITS = 10, 2048
FOREST = {"n_estimators": 200, "n_jobs": -1}
LAST = 600  # steps of MUTAG's trainings, whose last weights are taken: 17 graphs are too few to choose by


class Job(NamedTuple):
    data: str
    who: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}-{self.who}-seed-{self.seed}".replace(" ", "-").replace("(", "").replace(")", "")


def rows_of(data: str) -> list[dict[str, Any]]:
    file = Path(os.environ.get("HEADWAY_DATA", "data")) / "graphs" / data / "all.jsonl.gz"
    return [json.loads(line) for line in gzip.open(file)]


def folds_of_mutag() -> list[Any]:
    file = Path(os.environ.get("HEADWAY_DATA", "data")) / "graphs/mutag/folds.json"
    return [np.array(fold) for fold in json.loads(file.read_text())]


def parts_of(count: int, seed: int) -> dict[str, Any]:
    order = np.random.default_rng(seed).permutation(count)
    tenth = count // 10
    return {"test": order[:tenth], "valid": order[tenth : 2 * tenth], "train": order[2 * tenth :]}


def divided(data: str, seed: int, options: Namespace) -> dict[str, Path]:
    """The files of each part; of MUTAG the fold of this number."""
    rows = rows_of(data)
    if data == "mutag":
        held = folds_of_mutag()[seed - 1]
        rest = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(len(rows)), held))
        parts = {"test": held, "valid": rest[: len(rest) // 10], "train": rest}  # nothing is chosen by "valid"
    else:
        parts = parts_of(len(rows), seed)
    found = {}
    for part, at in parts.items():
        found[part] = options.runs / "data" / f"{data}-{seed}-{part}.jsonl"
        if not found[part].exists():
            found[part].parent.mkdir(parents=True, exist_ok=True)
            found[part].write_text("".join(json.dumps(rows[number]) + "\n" for number in at))
    return found


def learned(job: Job, options: Namespace) -> dict[str, Any]:
    files = divided(job.data, job.seed, options)
    settings = [f"data.{part}={file}" for part, file in files.items()]
    settings += [f"engine.seed={job.seed}", f"engine.device={options.device}", "validation.patience=0"]
    if job.data == "mutag":
        once = [f"engine.steps={LAST}", f"validation.every={LAST}", f"validation.score_every={LAST}"]
        own = [*once, "schedule.warmup=50", "engine.batch=32", *CLASSES[job.who]]
        return trained("graph-classes", job.name, options.runs, [*settings, *own, *options.settings])
    often = ["validation.every=50", "validation.score_every=50"]
    own = [f"engine.steps={STEPS[job.data]}", "objective.judge=rmse", "head.errors=squared", *often]
    return trained(job.who, job.name, options.runs, [*settings, *own, *options.settings])


def zinc(options: Namespace) -> None:
    """A record for each recipe, as soon as its last seed has ended."""
    seeds = range(1, options.seeds + 1)
    jobs = [Job("zinc", recipe, seed) for seed in seeds for recipe in options.only or ZINC]
    found: dict[str, dict[int, dict[str, Any]]] = {job.who: {} for job in jobs}

    def one(job: Job) -> None:
        settings = [f"engine.seed={job.seed}", f"engine.device={options.device}"]
        own = found[job.who]
        own[job.seed] = trained(job.who, job.name, options.runs, [*settings, *options.settings])
        if len(own) == options.seeds:
            keep(job.who, [own[seed] for seed in seeds], options)

    side_by_side(one, jobs, options.parallel)


def keep(recipe: str, scores: list[dict[str, Any]], options: Namespace) -> None:
    each = [score["test mae"] for score in scores]
    row = {
        "recipe": recipe, "mae": mean(each), "spread": spread(each), "each": each,
        "validation": mean(score["validation mae"] for score in scores),
        "parameters": scores[-1]["parameters"],
        "seconds": mean((score["training seconds"] for score in scores), 1),
    }  # fmt: skip
    write(f"{recipe}-{options.device}", options.device, [row], options.out, case={"seeds": options.seeds})


def tables(options: Namespace) -> None:
    which = [(data, who) for data in options.data or TABLES for who in options.only or NUMBERS]
    jobs = [Job(*pair, seed) for seed in range(1, FOLDS + 1) for pair in which]
    found = side_by_side(lambda job: learned(job, options), jobs, options.parallel)
    rows = [
        {"data": data, "who": who, "rmse": mean(score["test rmse"] for score in own.values()),
         "spread": spread([score["test rmse"] for score in own.values()]),
         "validation": mean(score["validation rmse"] for score in own.values()),
         "parameters": next(iter(own.values()))["parameters"],
         "seconds": mean((score["training seconds"] for score in own.values()), 1)}
        for (data, who), own in grouped(found).items()
    ]  # fmt: skip
    write(f"molecules-{options.device}", options.device, rows, options.out, case={"seeds": FOLDS})


def folds(options: Namespace) -> None:
    jobs = [Job("mutag", who, fold) for fold in range(1, FOLDS + 1) for who in CLASSES]
    found = side_by_side(lambda job: learned(job, options), jobs, options.parallel)
    rows = [
        {"data": data, "who": who, "accuracy": mean(score["test accuracy"] for score in own.values()),
         "spread": spread([score["test accuracy"] for score in own.values()]),
         "seconds": mean((score["training seconds"] for score in own.values()), 1)}
        for (data, who), own in grouped(found).items()
    ]  # fmt: skip
    write(f"mutag-{options.device}", options.device, rows, options.out, case={"folds": FOLDS})


def fingerprints(molecules: Iterable[Any]) -> Any:
    from rdkit.Chem import rdFingerprintGenerator

    made = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=BITS)
    return np.array([made.GetFingerprintAsNumPy(molecule) for molecule in molecules])


def forest(options: Namespace) -> None:
    from rdkit import Chem
    from sklearn.ensemble import RandomForestRegressor

    rows = []
    for data in TABLES:
        found = rows_of(data)
        bits = fingerprints(Chem.MolFromSmiles(row["smiles"]) for row in found)
        wanted, each = np.array([row["label"] for row in found]), []
        for seed in range(1, FOLDS + 1):
            parts = parts_of(len(found), seed)
            learn = np.concatenate([parts["train"], parts["valid"]])
            model = RandomForestRegressor(random_state=seed, **FOREST).fit(bits[learn], wanted[learn])
            each.append(float(np.sqrt(np.mean((model.predict(bits[parts["test"]]) - wanted[parts["test"]]) ** 2))))
        rows.append({"data": data, "who": "random forest", "rmse": mean(each), "spread": spread(each)})
        print(rows[-1], flush=True)
    write("molecules-forest", "cpu", rows, options.out, case={"seeds": FOLDS, "bits": BITS})
    forest_of_mutag(options)


def forest_of_mutag(options: Namespace) -> None:
    from sklearn.ensemble import RandomForestClassifier

    found, each = rows_of("mutag"), []
    bits, wanted = fingerprints(map(unnamed, found)), np.array([row["label"] for row in found])
    for fold, held in enumerate(folds_of_mutag(), 1):
        learn = np.setdiff1d(np.arange(len(found)), held)
        model = RandomForestClassifier(random_state=fold, **FOREST).fit(bits[learn], wanted[learn])
        each.append(float(np.mean(model.predict(bits[held]) == wanted[held])))
    row = {"data": "mutag", "who": "random forest", "accuracy": mean(each), "spread": spread(each)}
    write("mutag-forest", "cpu", [row], options.out, case={"folds": FOLDS, "bits": BITS})


def unnamed(row: dict[str, Any]) -> Any:
    """A molecule of which only the kinds of atoms and who is bound to whom are known: each kind is another element."""
    from rdkit import Chem

    molecule = Chem.RWMol()
    for kind in row["nodes"]:
        molecule.AddAtom(Chem.Atom(6 + int(kind)))
    for one, other in row["edges"]:
        molecule.AddBond(one, other, Chem.BondType.SINGLE)
    molecule.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(molecule)
    return molecule


PARTS = {"zinc": zinc, "tables": tables, "folds": folds, "forest": forest}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", nargs="+", help="recipes")
    parser.add_argument("--data", nargs="+", choices=TABLES, help="of tables")
    options = training_options(parser, "graphs", seeds=4)
    os.environ.setdefault("PYTHONPATH", "src")
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()
