"""Held-out text: every pair or document lands in one part, copies in the same, whatever the text holds."""

import json

import pytest

from headway.data.documents import Documents
from headway.data.readers import read_pairs
from headway.data.split import PARTS, hold_out, split_corpus
from headway.errors import InputError


def jsonl(path, pairs):
    path.write_text("".join(json.dumps({"a": a, "b": b}) + "\n" for a, b in pairs), encoding="utf-8")
    return [path]


def split(folder, files, hold_out=40, source="a", target="b", **how):
    found = split_corpus(files, folder / "parts", hold_out, source, target, **how)
    assert tuple(found) == PARTS
    return {part: list(read_pairs(paths)) for part, paths in found.items()}


def test_every_pair_is_in_one_part_and_a_source_never_in_two(tmp_path):
    pairs = [(f"sentence {n // 2}", f"satz {n}") for n in range(1000)]
    parts = split(tmp_path, jsonl(tmp_path / "x.jsonl", pairs))
    assert sorted(pair for part in parts.values() for pair in part) == sorted(pairs)
    sources = [{source for source, _ in part} for part in parts.values()]
    assert sum(map(len, sources)) == len(set.union(*sources)) == 500
    assert all(15 <= len(parts[part]) <= 80 for part in ("valid", "test"))


def test_swapped_pairs_are_held_out_by_what_stands_second(tmp_path):
    pairs = [(f"sentence {n}", f"satz {n // 2}") for n in range(1000)]
    parts = split(tmp_path, jsonl(tmp_path / "x.jsonl", pairs), swapped=True)
    assert sorted((b, a) for part in parts.values() for a, b in part) == sorted(pairs)
    sources = [{source for source, _ in part} for part in parts.values()]
    assert sum(map(len, sources)) == len(set.union(*sources)) == 500


def test_a_line_break_inside_a_text_shifts_no_pair(tmp_path):
    pairs = [(f"one\n{n}", f"eins {n}") for n in range(300)]
    parts = split(tmp_path, jsonl(tmp_path / "x.jsonl", pairs))
    found = [pair for part in parts.values() for pair in part]
    assert len(found) == 300 and all(a.split()[-1] == b.split()[-1] for a, b in found)


def test_both_sides_may_be_in_one_language(tmp_path):
    (tmp_path / "x.txt").write_text("".join(f"long {n}\n" for n in range(300)))
    (tmp_path / "y.txt").write_text("".join(f"short {n}\n" for n in range(300)))
    parts = split(tmp_path, [tmp_path / "x.txt", tmp_path / "y.txt"], source="en", target="en")
    assert all(a == b.replace("short", "long") for part in parts.values() for a, b in part)


def test_too_few_pairs_are_refused(tmp_path):
    with pytest.raises(InputError, match="9 pairs are too few to hold some out: give --valid"):
        split(tmp_path, jsonl(tmp_path / "x.jsonl", [(str(n), str(n)) for n in range(9)]))


def test_pairs_of_which_each_has_an_empty_side_are_told_so(tmp_path):
    with pytest.raises(InputError, match="each of 60 pairs has an empty side: look into .*x.jsonl"):
        split(tmp_path, jsonl(tmp_path / "x.jsonl", [(" ", str(n)) for n in range(60)]))


def texts(part):
    found = [""]
    for chunk in part.chunks(1 << 10):
        found[-1] += chunk.text
        if chunk.last:
            found.append("")
    assert found.pop() == ""
    return found


@pytest.mark.parametrize(("length", "share"), [(1115394, 0.1), (10, 0.1), (7, 0.5), (1003, 0.25)])
def test_one_long_text_is_cut_where_nanogpt_cuts_it(tmp_path, length, share):
    text = ("to be or\r\nnot to bé " * (length // 18 + 1)).replace("\r\n", "\n")[:length]
    (tmp_path / "a.txt").write_text(text, encoding="utf-8", newline="\r\n")
    train, valid = hold_out(Documents.at(tmp_path / "a.txt"), share).values()
    cut = int(length * (1 - share))
    assert texts(train) == [text[:cut]] and texts(valid) == [text[cut:]]


def documents(path, found):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in found), encoding="utf-8")
    return Documents.at(path)


def test_documents_are_held_out_whole_whatever_their_order_and_copies_stay_together(tmp_path):
    found = [f"document {n // 2}\n{' ' * (n % 2)}Text" for n in range(400)]
    train, valid = map(texts, hold_out(documents(tmp_path / "a.jsonl", found)).values())
    assert sorted(train + valid) == sorted(found) and len(valid) == 40
    assert len({text.split()[1] for text in valid}) == 20
    again = [text.upper() for text in reversed(found)]
    shuffled = texts(hold_out(documents(tmp_path / "b.jsonl", again))["valid"])
    assert sorted(shuffled) == sorted(text.upper() for text in valid)


def test_a_few_documents_give_at_least_one(tmp_path):
    for count in (2, 3, 18):
        train, valid = map(
            texts, hold_out(documents(tmp_path / "a.jsonl", [f"novel {n}" for n in range(count)])).values()
        )
        assert len(valid) == max(1, round(count / 10)) and len(train) == count - len(valid)


def test_an_empty_document_is_not_what_is_held_out(tmp_path):
    for n in range(20):
        valid = hold_out(documents(tmp_path / "a.jsonl", ["", "", f"a{n}", f"b{n}", f"c{n}"]))["valid"]
        assert len(texts(valid)) == 1 and texts(valid) != [""]


def test_parts_of_a_corpus_have_identities_of_their_own(tmp_path):
    corpus = documents(tmp_path / "a.jsonl", [f"novel {n}" for n in range(9)])
    parts = [corpus, *hold_out(corpus).values(), *hold_out(corpus, 0.2).values()]
    assert len({json.dumps(part.identity()) for part in parts}) == 5


@pytest.mark.parametrize(
    ("found", "share", "message"),
    [
        (["x"], 0.1, "1 characters are too few to hold some out: give --valid"),
        (["same", "Same ", "same"], 0.1, "3 documents are too few, or too much alike"),
        (["a", "b"], 1.0, "it must be above 0 and below 1"),
    ],
)
def test_text_that_cannot_be_parted_is_refused(tmp_path, found, share, message):
    with pytest.raises(InputError, match=message):
        texts(hold_out(documents(tmp_path / "a.jsonl", found), share)["train"])


@pytest.mark.parametrize("several", [False, True])
def test_a_last_test_is_apart_from_what_a_model_is_chosen_by(tmp_path, several):
    found = [f"novel {n} of a long series" for n in range(40)] if several else ["".join(map(str, range(400)))]
    corpus = documents(tmp_path / "a.jsonl", found)
    parts = {name: texts(part) for name, part in hold_out(corpus, 0.1, 0.2).items()}
    if several:
        assert {name: len(part) for name, part in parts.items()} == {"train": 28, "valid": 4, "test": 8}
        assert sorted(sum(parts.values(), [])) == sorted(found)
    else:
        train, valid, test = (parts[name][0] for name in ("train", "valid", "test"))
        assert train + valid + test == found[0]
        assert len(train) == int(len(found[0]) * 0.7)
        assert abs(len(test) - 2 * len(valid)) <= 2
    two = hold_out(corpus, 0.1)
    assert texts(two["valid"]) == parts["valid"] or not several
