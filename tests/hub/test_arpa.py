"""ARPA files: written and read back the same, against a slow reader of their definition; broken ones in one line."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.errors import InputError
from headway.folder import read_model, text_card, weights_of, with_tokenizers, write_model
from headway.hub.families.arpa import export_arpa, import_arpa, read_arpa, spelled
from headway.models.ngram import NGram, NGramConfig
from headway.models.smoothing import AddK, MaximumLikelihood, ModifiedKneserNey, StupidBackoff
from headway.text.tokenizer import END, TextOptions, Tokenizer

TEXTS = [
    "the cat sat on the mat",
    "the dog sat",
    "a cat saw the dog on a mat",
    "the cat ran",
    "a dog ran on",
    "<unk> sat",
]
HELD_OUT = ["the dog saw a cat", "on the mat", "a bird sat on the cat", "the the ran"]

FILE = """
made by hand
\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.5
-0.8\t</s>
-0.6\ta\t-0.25
-0.7\tb

\\2-grams:
-0.2\t<s> a
-0.3\ta b
-0.4\tb </s>

\\end\\
"""


def folder(place: Path, smoothing=ModifiedKneserNey(), order: int = 3, kind: str = "word") -> Path:  # noqa: B008
    """A model of the texts, each a line."""
    text = TextOptions(kind=kind, size=300, min_count=1, lines=True)  # type: ignore[arg-type]
    tokenizer = Tokenizer.train(TEXTS, text)
    ids = [END, *(i for line in TEXTS for i in [*tokenizer.encode(line), END])]
    model = NGram.count(NGramConfig(order, smoothing), len(tokenizer), np.array(ids))
    card = text_card("ngram", model.config, (len(tokenizer),), text)
    write_model(place, weights_of(model), card, with_tokenizers(card, tokenizer))
    return place


def score(place: Path, line: str) -> list[float]:
    found = read_model(place)
    ids = torch.tensor([[END, *found.source_tokenizer.encode(line), END]])
    return found.model.score(ids)[0, 1:].tolist()


class SlowReader:
    """A file as its definition says: dictionaries of tuples, and the recursion."""

    def __init__(self, path: Path) -> None:
        self.p: dict[tuple[str, ...], float] = {}
        self.weight: dict[tuple[str, ...], float] = {}
        order = 0
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        for line in text.splitlines():
            if line.endswith("-grams:"):
                order = int(line[1:].split("-")[0])
            elif order and line and not line.startswith("\\"):
                value, *words = line.split()
                self.p[tuple(words[:order])] = float(value)
                self.weight[tuple(words[:order])] = float(words[order]) if len(words) > order else 0.0
        self.order = order

    def __call__(self, line: str) -> list[float]:
        words = [word if (word,) in self.p else "<unk>" for word in ["<s>", *line.split(), "</s>"]]
        return [
            self.log(tuple(words[max(0, t - self.order + 1) : t]), words[t]) * math.log(10)
            for t in range(1, len(words))
        ]

    def log(self, history: tuple[str, ...], word: str) -> float:
        if (*history, word) in self.p:
            return self.p[*history, word]
        return self.weight.get(history, 0.0) + self.log(history[1:], word)


@pytest.mark.parametrize(
    "smoothing", [ModifiedKneserNey(), AddK(0.5), StupidBackoff(), MaximumLikelihood()], ids=lambda part: part.name
)
@pytest.mark.parametrize("name", ["x.arpa", "x.arpa.gz"])
def test_a_file_read_back_scores_the_same(tmp_path: Path, smoothing, name: str) -> None:
    mine = folder(tmp_path / "mine", smoothing)
    export_arpa(mine, tmp_path / name)
    import_arpa(tmp_path / name, tmp_path / "back")
    for line in [*TEXTS, *HELD_OUT]:
        assert score(tmp_path / "back", line) == score(mine, line)  # to the last bit
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("order", [1, 2, 4])
def test_a_file_means_what_others_read_in_it(tmp_path: Path, order: int) -> None:
    mine = folder(tmp_path / "mine", order=order)
    export_arpa(mine, tmp_path / "x.arpa")
    slow = SlowReader(tmp_path / "x.arpa")
    assert slow.order == order
    for line in [*TEXTS, *HELD_OUT]:
        assert score(mine, line) == pytest.approx(slow(line), rel=1e-6)


def test_a_file_of_somebody_elses(tmp_path: Path) -> None:
    """By hand: <s> a b </s> is all bigrams; <s> b b backs off from <s>, then from b, whose weight is not told (0)."""
    (tmp_path / "x.arpa").write_text(FILE)
    import_arpa(tmp_path / "x.arpa", tmp_path / "m")
    ten = math.log(10)
    assert score(tmp_path / "m", "a b") == pytest.approx([-0.2 * ten, -0.3 * ten, -0.4 * ten])
    assert score(tmp_path / "m", "b b") == pytest.approx([(-0.5 - 0.7) * ten, -0.7 * ten, -0.4 * ten])
    # a bird: a word that is not known is <unk>, with the weight of a before it.
    assert score(tmp_path / "m", "a bird")[1] == pytest.approx((-0.25 - 1.0) * ten)
    assert score(tmp_path / "m", "a bird") == pytest.approx(SlowReader(tmp_path / "x.arpa")("a bird"))
    assert read_model(tmp_path / "m").source_tokenizer.tokens([3, 4, 5]) == ["<unk>", "a", "b"]


def test_counts_of_the_header_are_those_of_the_file(tmp_path: Path) -> None:
    export_arpa(folder(tmp_path / "mine"), tmp_path / "x.arpa")
    text = (tmp_path / "x.arpa").read_text()
    for order in (1, 2, 3):
        section = text.split(f"\\{order}-grams:\n")[1].split("\n\n")[0]
        assert f"ngram {order}={len(section.splitlines())}\n" in text
    assert "-99\t<s>\t" in text and "</s>\t" not in text and "<pad>" not in text


def test_words_of_whole_documents_come_back_with_their_line_ends(tmp_path: Path) -> None:
    text = "one two\nthree  four\n\n\tfive one\n" * 20
    options = TextOptions(kind="word", size=100, min_count=1, exact=True)
    tokenizer = Tokenizer.train([text], options)
    model = NGram.count(NGramConfig(3), len(tokenizer), np.array([END, *tokenizer.encode(text), END]))
    card = text_card("ngram", model.config, (len(tokenizer),), options)
    write_model(tmp_path / "mine", weights_of(model), card, with_tokenizers(card, tokenizer))
    export_arpa(tmp_path / "mine", tmp_path / "x.arpa")
    import_arpa(tmp_path / "x.arpa", tmp_path / "back")
    back = read_model(tmp_path / "back")
    assert back.source_tokenizer.decode(back.source_tokenizer.encode(text)) == text
    assert score(tmp_path / "back", text) == score(tmp_path / "mine", text)


def test_letters_need_a_model_like_theirs(tmp_path: Path) -> None:
    mine = folder(tmp_path / "mine", kind="char", order=4)
    export_arpa(mine, tmp_path / "x.arpa")
    assert "\tt h e ▁" in (tmp_path / "x.arpa").read_text()
    import_arpa(tmp_path / "x.arpa", tmp_path / "back", like=mine)
    assert score(tmp_path / "back", HELD_OUT[0]) == score(mine, HELD_OUT[0])
    with pytest.raises(InputError, match="line 9: the word 'z' is not in the vocabulary"):
        changed = (tmp_path / "x.arpa").read_text().split("\n")
        changed[8] = changed[8].split("\t")[0] + "\tz"
        (tmp_path / "y.arpa").write_text("\n".join(changed))
        import_arpa(tmp_path / "y.arpa", tmp_path / "other", like=mine)


def test_words_are_spelled_apart() -> None:
    tokenizer = Tokenizer.train(["a ▁b"], TextOptions(kind="char"))
    words = spelled(tokenizer)
    assert len(set(words)) == len(tokenizer) and not any(letter.isspace() for word in words for letter in word)


def changed(old: str, new: str) -> str:
    assert FILE.count(old) == 1
    return FILE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("just some words\n", r"line 1: .*ends here"),
        (FILE.split("\\2-grams")[0], "ends here"),
        (changed("\n\\end\\", ""), "ends here"),
        (changed("ngram 2=3", "ngram 2=4"), r"3 n-grams of order 2, but 4"),
        (changed("ngram 2=3", "ngram 3=3"), "order 3 is told where 2"),
        (changed("\\2-grams:", "\\3-grams:"), r"where \\2-grams: was expected"),
        (changed("-0.2\t<s> a", "-0.2\t<s> a b c"), r"line 15: 5 fields, expected a number, 2 words"),
        (changed("-0.2\t<s> a", "minus\t<s> a"), r"line 15: 'minus' is no log-probability"),
        (changed("-0.2\t<s> a", "0.2\t<s> a"), r"line 15: '0.2' is no log-probability"),
        (changed("-0.2\t<s> a", "nan\t<s> a"), "no log-probability"),
        (changed("a\t-0.25", "a\tweight"), "'weight' is no back-off weight"),
        (changed("-0.2\t<s> a", "-0.2\t<s> c"), r"line 15: the word 'c' is not in the vocabulary"),
        (changed("-0.2\t<s> a", "-0.2\ta <s>"), "<s> stands inside"),
        (changed("-0.3\ta b", "-0.3\t<s> a"), r"line 16: the n-gram '<s> a' stands here a second time"),
        (changed("-0.7\tb", "-0.7\ta"), "line 12: the n-gram 'a' stands here a second time"),
        (changed("-0.7\tb", "-0.7\t<pad>"), "keeps for itself"),
    ],
)  # fmt: skip
def test_broken_files(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.arpa").write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        import_arpa(tmp_path / "x.arpa", tmp_path / "m")
    assert "x.arpa" in str(caught.value) and "\n" not in str(caught.value) and not (tmp_path / "m").exists()


def test_first_words_that_are_nowhere(tmp_path: Path) -> None:
    text = FILE.replace("ngram 2=3", "ngram 2=3\nngram 3=1").replace(
        "\n\\end\\", "\n\\3-grams:\n-0.1\tb b a\n\n\\end\\"
    )
    (tmp_path / "x.arpa").write_text(text)
    with pytest.raises(InputError, match="line 21: the first words of n-gram 'b b a'"):
        read_arpa(tmp_path / "x.arpa")
