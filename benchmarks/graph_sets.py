"""Graphs, packed as JSON lines with nodes, edges and a label, for machines without RDKit too.

    python benchmarks/graph_sets.py --source shared/data/graphs --out data/graphs

ZINC (Irwin et al. 2012): validation and test are the official 12k indices into JT-VAE's files; the 10,000 molecules to
learn from are drawn from the rest of its validation file, since the official ones were not at hand. The target is
computed as JT-VAE does (Jin et al. 2018): logP − synthetic accessibility − rings of more than six atoms, each
normalised by its constants. Atoms and bonds have the kinds of the 12k set: element with hydrogens and charge; bond.
ESOL (Delaney 2004), FreeSolv (Mobley and Guthrie 2014), Lipophilicity (Wu et al. 2018): all kinds that headway reads.
MUTAG (Debnath et al. 1991): kinds of atoms alone; `folds.json` has the test graphs of ten folds.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from headway.data.graphs import molecule

LEARNED = 10_000
# Mean and deviation of logP, of accessibility and of large rings over ZINC-250k, as JT-VAE has them.
LOG_P, ACCESS, RINGS = (2.4570953396190123, 1.434324401111988), (-3.0525811293166134, 0.8335207024513095), (
    -0.0485696876403053, 0.2860212110245455,
)  # fmt: skip
TABLES = {
    "esol": ("delaney-processed.csv.gz", "smiles", "measured log solubility in mols per litre"),
    "freesolv": ("FreeSolv_SAMPL.csv.gz", "smiles", "expt"),
    "lipophilicity": ("Lipophilicity.csv.gz", "smiles", "exp"),
}


def text_of(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else lzma.decompress(raw)).decode()


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) as file:  # without a date: the same bytes each time
        file.write("".join(lines).encode())
    print(f"{path}: {len(lines):,} graphs, {path.stat().st_size / 1e6:.2f} MB", flush=True)


def penalised(smiles: str) -> float:
    import networkx
    from rdkit import Chem
    from rdkit.Chem import Crippen
    from rdkit.Contrib.SA_Score import sascorer

    found = Chem.MolFromSmiles(smiles)
    rings = [len(ring) for ring in networkx.cycle_basis(networkx.Graph(Chem.GetAdjacencyMatrix(found)))]
    largest = max(max(rings, default=0) - 6, 0)
    values = Crippen.MolLogP(found), -sascorer.calculateScore(found), -largest
    return float(sum((value - mean) / std for value, (mean, std) in zip(values, (LOG_P, ACCESS, RINGS), strict=True)))


def row_of(smiles: str, label: Any, plain: bool = False) -> dict[str, Any]:
    """`plain`: an atom's kinds as one, and of a bond its kind alone."""
    graph = molecule(smiles.strip())
    nodes: list[Any] = [list(node) for node in graph.nodes]
    kinds: list[Any] = [list(kind) for kind in graph.kinds]
    if plain:
        nodes, kinds = [" ".join(node[:3]) for node in nodes], [kind[:1] for kind in kinds]
    edges = [[*ends, *kind] for ends, kind in zip(graph.edges, kinds, strict=True)]
    return {"nodes": nodes, "edges": edges, "label": label, "smiles": smiles.strip()}


def zinc(source: Path, out: Path) -> None:
    valid, test = (text_of(source / name).split() for name in ("zinc_jtnn_valid.txt.xz", "zinc_jtnn_test.txt.gz"))
    of_valid, of_test = (
        [int(at) for at in (source / name).read_text().replace(",", " ").split()]
        for name in ("zinc12k_val.index", "zinc12k_test.index")
    )
    rest = np.setdiff1d(np.arange(len(valid)), of_valid)
    chosen = np.sort(np.random.default_rng(0).permutation(rest)[:LEARNED])
    parts = {"train": [valid[at] for at in chosen], "valid": [valid[at] for at in of_valid],
             "test": [test[at] for at in of_test]}  # fmt: skip
    for part, molecules in parts.items():
        write(out / f"zinc/{part}.jsonl.gz", (row_of(one, round(penalised(one), 6), plain=True) for one in molecules))


def table(name: str, source: Path, out: Path) -> None:
    file, smiles, label = TABLES[name]
    rows = csv.DictReader(io.StringIO(text_of(source / file)))
    write(out / f"{name}/all.jsonl.gz", (row_of(row[smiles], float(row[label])) for row in rows))


def mutag(source: Path, out: Path) -> None:
    numbers = iter(text_of(source / "MUTAG.txt.gz").split())
    rows = []
    for _ in range(int(next(numbers))):
        count, label = int(next(numbers)), next(numbers)
        nodes, edges = [], []
        for node in range(count):
            nodes.append(next(numbers))
            edges += [[node, other] for _ in range(int(next(numbers))) if (other := int(next(numbers))) > node]
        rows.append({"nodes": nodes, "edges": edges, "label": f"class {label}"})
    write(out / "mutag/all.jsonl.gz", rows)
    with tarfile.open(source / "MUTAG_10fold_idx.tar.gz") as archive:
        folds = []
        for fold in range(1, 11):
            held = archive.extractfile(f"MUTAG/10fold_idx/test_idx-{fold}.txt")
            assert held is not None
            folds.append([int(at) for at in held.read().split()])
    (out / "mutag/folds.json").write_text(json.dumps(folds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("data/graphs"))
    options = parser.parse_args()
    mutag(options.source, options.out)
    for name in TABLES:
        table(name, options.source, options.out)
    zinc(options.source, options.out)


if __name__ == "__main__":
    main()
