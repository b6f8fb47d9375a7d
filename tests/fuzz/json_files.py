"""Conversations, preferences, summaries and questions, as JSON."""

from __future__ import annotations

import json
from pathlib import Path


def summaries(folder: Path) -> None:
    rows = [{"text": f"the cat {n} sat on mat {n % 7}", "summary": [f"cat {n}", f"mat {n % 7}"]} for n in range(60)]
    (folder / "mail.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def conversations(folder: Path) -> None:
    """Conversations, and preferences between two answers."""
    asked = [(f"what is {n % 9} and {n // 9}", f"it is {n % 9 + n // 9}", "no idea") for n in range(40)]
    rows = [{"prompt": prompt, "chosen": chosen, "rejected": rejected} for prompt, chosen, rejected in asked]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    talks = [[("user", prompt), ("assistant", chosen)] for prompt, chosen, _ in asked]
    lines = [json.dumps({"messages": [{"role": who, "content": text} for who, text in talk]}) for talk in talks]
    (folder / "talk.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def conversations_and_model(folder: Path) -> None:
    """The same, and a model to start from."""
    from foreign_world import write_language_model

    conversations(folder)
    (folder / "base").mkdir()
    write_language_model(folder / "base")


def questions(folder: Path) -> None:
    """SQuAD's JSON for training, lines for validation."""
    asked = []
    for n in range(30):
        context = f"the cat{n % 7} sat in the barn{n % 5} and the dog ran"
        answer = f"cat{n % 7}" if n % 2 else f"barn{n % 5}"
        row = {"text": answer, "answer_start": context.index(answer)}
        asked.append((context, {"id": str(n), "question": "who sat" if n % 2 else "where", "answers": [row]}))
    paragraphs = [{"context": context, "qas": [qa]} for context, qa in asked[:24]]
    articles = [{"title": f"t{at}", "paragraphs": paragraphs[at::6]} for at in range(6)]
    (folder / "train.json").write_text(json.dumps({"version": "1.1", "data": articles}, indent=1), encoding="utf-8")
    rows = [json.dumps({"context": context} | qa) + "\n" for context, qa in asked[24:]]
    (folder / "valid.jsonl").write_text("".join(rows), encoding="utf-8")
