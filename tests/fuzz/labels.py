"""Labels and tags in every form that a file may have them in."""

from __future__ import annotations

import csv
import gzip
import json
import zipfile
from pathlib import Path

from worlds import labelled


def json_labels(folder: Path) -> None:
    labelled(folder)
    rows = [line.split("\t") for line in (folder / "train.tsv").read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps({"text": text, "label": label}) + "\n" for label, text in rows]
    (folder / "train.jsonl").write_text("".join(lines), encoding="utf-8")


def csv_labels(folder: Path) -> None:
    """With a header, quotes, commas and line breaks in texts, and a column more; packed too."""
    labelled(folder)
    rows = [line.split("\t") for line in (folder / "train.tsv").read_text(encoding="utf-8").splitlines()]
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "review", "mood"])
        for number, (label, text) in enumerate(rows):
            writer.writerow([number, text.replace(" ", (" ", ", ", "\n", ' "so" ')[number % 4], 1), label])
    (folder / "train.csv.gz").write_bytes(gzip.compress((folder / "train.csv").read_bytes()))
    for name in ("train.tsv", "valid.tsv"):
        (folder / name).unlink()


def zipped_labels(folder: Path) -> None:
    labelled(folder)
    with zipfile.ZipFile(folder / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "train.tsv", "train.tsv")
    for name in ("train.tsv", "valid.tsv"):
        (folder / name).unlink()


def json_tags(folder: Path) -> None:
    rows = [{"words": ["the", f"cat{n % 7}", "sat"], "labels": ["O", "B-X", "I-X"]} for n in range(40)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def treebank_tags(folder: Path) -> None:
    words = ("the\t_\tDET", "cat\t_\tNOUN", "sat\t_\tVERB")
    rows = [f"{number}\t{word}" + "\t_" * 6 + "\n" for number, word in enumerate(words, 1)]
    texts = [f"# text = {n}\n" + "".join(rows).replace("cat", f"cat{n % 7}") for n in range(40)]
    (folder / "train.conllu").write_text("\n".join(texts), encoding="utf-8")
