import json
import os
import pickle
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers

from headway.errors import InputError
from headway.text.tokenizer import BYTE_OF, END, PAD, SPECIALS, START, UNKNOWN, TextOptions, Tokenizer

LINES = [
    "the cat sat on the mat .",
    "the dogs don't sit , they run !",
    "Zwei Männer fahren Fahrrad in der Straße .",
    "deux hommes à vélo , là-bas …",
    "二人の男性が自転車に乗っている",
    "a 👩\u200d👩\u200d👧 family 😀 with tabs\tand \x07 bells",
] * 3

BPE = TextOptions(size=400)
WORD = TextOptions(kind="word", size=60)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return Tokenizer.train(LINES, BPE)


@pytest.fixture(scope="module")
def word() -> Tokenizer:
    return Tokenizer.train(LINES, WORD)


def hard_texts(count: int) -> list[str]:
    """Random strings of what breaks tokenizers, without spaces at the ends."""
    alphabet = [
        *"aZ9.'<>/ \t\n\r\x00\x07\x1c\x85\xa0éßİ中文字ﬁ",
        "  ",
        "e\u0301",
        "\u0327",
        "\u200d",
        "\u2028",
    ]
    alphabet += [
        "\u3000",
        "\ufeff",
        "\u202e",
        "😀",
        "👩\u200d👧",
        "🇩🇪",
        "</s>",
        "<pad>",
        "the",
        "▁",
        "Ġ",
        "\U0010ffff",
    ]
    chance = random.Random(0)
    texts = ("".join(chance.choices(alphabet, k=chance.randint(1, 12))).strip(" ") for _ in range(count))
    return [text for text in texts if text]


def test_decode_gives_hard_text_back_exactly(bpe: Tokenizer) -> None:
    texts = [unicodedata.normalize("NFC", text) for text in hard_texts(2_000)]
    assert bpe.decode_batch(bpe.encode_batch(texts)) == texts


def test_without_nfc_combining_marks_stay_as_they_are() -> None:
    texts = hard_texts(500)
    plain = Tokenizer.train(LINES, TextOptions(size=300, nfc=False))
    assert plain.decode_batch(plain.encode_batch(texts)) == texts


def test_nfc_and_lowercase_live_in_the_file(tmp_path: Path) -> None:
    lower = Tokenizer.train(LINES, TextOptions(size=300, lowercase=True))
    lower.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.decode(again.encode("E\u0301T\u00c9")) == "été"
    assert again.encode("ÉTÉ") == again.encode("e\u0301te\u0301")


@pytest.mark.parametrize(
    "options",
    [
        BPE,
        WORD,
        TextOptions(kind="word", size=60, min_count=1),
        TextOptions(kind="word", size=60, min_count=1, exact=True),
        TextOptions(size=400, exact=True),
        TextOptions(kind="char"),
    ],
)
def test_special_strings_in_text_never_become_special_ids(options: TextOptions) -> None:
    lines = [*LINES, "<unk> </s> <s> <pad>", "x</s> <unk> </s> <s> <pad>"] * 5
    tokenizer = Tokenizer.train(lines, options)
    again = Tokenizer.from_json(tokenizer.to_json())
    for each in (tokenizer, again):
        ids = each.encode("</s> the <s> cat</s> <pad> <unk>")
        assert not {PAD, START, END} & set(ids)
        assert [each.inner.id_to_token(i) for i in range(4)] == list(SPECIALS)
        assert [i for i in range(len(each)) if each.inner.id_to_token(i) is None] == []
    if options.kind == "bpe":
        assert UNKNOWN not in ids


def test_a_word_has_the_same_pieces_at_the_start_and_inside(bpe: Tokenizer) -> None:
    assert bpe.encode("the the") == bpe.encode("the") * 2


def test_all_bytes_are_known_even_after_training_on_one_letter() -> None:
    tiny = Tokenizer.train(["a a"], TextOptions(size=261))
    assert tiny.decode(tiny.encode("日本 😀")) == "日本 😀"
    assert set(BYTE_OF) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(BYTE_OF.values()) == list(range(256))


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_training_in_another_process_gives_the_same_file(kind: str) -> None:
    """Ties in the counts must not be decided by a hash seed."""
    code = (
        "from headway.text.tokenizer import *\n"
        "words = [f'{a}{b}' for a in 'abcdefghij' for b in 'klmnopqrst']\n"
        f"options = TextOptions(kind={kind!r}, size=300 if {kind!r} == 'bpe' else 50, min_count=1)\n"
        "print(Tokenizer.train(words, options).fingerprint)"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1


def test_word_vocabulary_holds_the_most_frequent_words(word: Tokenizer) -> None:
    assert word.decode(word.encode("the  cat\tsat quietly")) == "the cat sat <unk>"
    small = Tokenizer.train(["b a a a", "c b"], TextOptions(kind="word", size=6, min_count=1))
    assert small.tokens(range(len(small))) == [*SPECIALS, "a", "b"]
    assert small.words(small.encode("b a z")) == (["b", "a", "<unk>"], [0, 1, 2])


def test_decode_leaves_out_specials(bpe: Tokenizer, word: Tokenizer) -> None:
    for tokenizer in (bpe, word):
        assert tokenizer.decode([START, *tokenizer.encode("the cat"), END, PAD, PAD]) == "the cat"
        assert tokenizer.decode([]) == ""
        assert tokenizer.encode("") == []


def test_pieces_are_readable() -> None:
    bytes_only = Tokenizer.train(["a b"], TextOptions(size=260))
    ids = bytes_only.encode("é\n")
    assert bytes_only.tokens([START, *ids]) == ["<s>", "▁", "\\xc3", "\\xa9", "\\n"]


def test_words_join_the_bytes_of_a_character_before_reading_them() -> None:
    bytes_only = Tokenizer.train(["a b"], TextOptions(size=260))
    ids = [START, *bytes_only.encode("né 中"), END]
    words, owner = bytes_only.words(ids)
    assert words == ["<s>", "né", "中", "</s>"]
    assert owner == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3]


def test_words_start_at_spaces_and_no_word_is_empty(bpe: Tokenizer) -> None:
    words, owner = bpe.words(bpe.encode("the  dogs don't\trun!"))
    assert words == ["the", "dogs", "don't", "run!"]
    assert owner == sorted(owner) and set(owner) == set(range(4))
    for text in hard_texts(300):
        words, owner = bpe.words(bpe.encode(text))
        assert all(words) and sorted(set(owner)) == list(range(len(words)))
    assert bpe.words([]) == ([], [])


def test_save_and_load_keep_everything(bpe: Tokenizer, word: Tokenizer, tmp_path: Path) -> None:
    for tokenizer in (bpe, word):
        tokenizer.save(tmp_path / "tokenizer.json")
        for again in (Tokenizer.load(tmp_path / "tokenizer.json"), pickle.loads(pickle.dumps(tokenizer))):
            assert again.fingerprint == tokenizer.fingerprint and len(again) == len(tokenizer)
            assert again.encode("</s> the cat") == tokenizer.encode("</s> the cat")
            assert again.words(again.encode("the cat")) == tokenizer.words(tokenizer.encode("the cat"))
    assert bpe.fingerprint != word.fingerprint


def test_what_is_wrong_with_a_file_is_said_with_its_name(bpe: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(InputError, match="no tokenizer at .*tokenizer.json"):
        Tokenizer.load(path)
    path.write_text("{")
    with pytest.raises(InputError, match="tokenizer.json: not a tokenizer.json"):
        Tokenizer.load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="cannot read .*tokenizer.json"):
        Tokenizer.load(path)
    other = json.loads(bpe.to_json())
    other["model"]["vocab"] = {"a": 0, "b": 1, "c": 2, "d": 3}
    other["model"]["merges"], other["added_tokens"] = [], []
    path.write_text(json.dumps(other))
    with pytest.raises(InputError, match="first entries"):
        Tokenizer.load(path)


@pytest.mark.parametrize("lines", [[], ["", "  ", "\t"]])
def test_no_text_is_refused(lines: list[str]) -> None:
    with pytest.raises(InputError, match="no text"):
        Tokenizer.train(lines, BPE)


def test_bad_options_text_and_ids_are_refused(bpe: Tokenizer) -> None:
    with pytest.raises(InputError, match="at least 260"):
        TextOptions(size=100)
    with pytest.raises(InputError, match="one of bpe, word, char, wordpiece"):
        TextOptions(kind="letter")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a char vocabulary needs at least 5"):
        TextOptions(kind="char", size=4)
    with pytest.raises(InputError, match="min_count"):
        TextOptions(min_count=0)
    with pytest.raises(InputError, match="lower text.min_count"):
        Tokenizer.train(["a b c"], TextOptions(kind="word", size=60))
    with pytest.raises(InputError, match="text 2 is not valid Unicode"):
        bpe.encode_batch(["fine", "\ud800"])
    for wrong in (-1, len(bpe)):
        with pytest.raises(InputError, match="not in the vocabulary"):
            bpe.decode([wrong])


def test_an_error_while_reading_reaches_the_caller() -> None:
    def lines() -> object:
        yield from LINES
        raise InputError("line 19 is bad")

    with pytest.raises(InputError, match="line 19 is bad"):
        Tokenizer.train(lines(), BPE)  # type: ignore[arg-type]


def test_a_fork_neither_warns_nor_hangs() -> None:
    code = (
        "import os\n"
        "from headway.text.tokenizer import *\n"
        "t = Tokenizer.train(['a b c'] * 9, TextOptions(size=261))\n"
        "t.encode_batch(['a b'] * 3000)\n"
        "child = os.fork()\n"
        "ids = t.encode_batch(['a b'] * 3000)\n"
        "os._exit(0) if child == 0 else print(os.waitpid(child, 0)[1], end='')\n"
    )
    env = {key: value for key, value in os.environ.items() if key != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=300, text=True)
    assert (done.stdout, done.stderr) == ("0", "")


def documents(count: int) -> list[str]:
    """Hard texts with white space at their ends and between them, as whole documents have it."""
    chance = random.Random(1)
    spaces = ["", " ", "\n", "  ", "\t", "\n\n", " \n ", "\x1c"]
    texts = hard_texts(3 * count)
    return [
        "".join(chance.choice(spaces) + chance.choice(texts) for _ in range(3)) + chance.choice(spaces)
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_exact_text_comes_back_with_every_space_and_line_end(kind: str) -> None:
    texts = documents(1_000)
    if kind == "word":  # a special spelled out is a word that is not known
        texts = [text.replace("</s>", "s").replace("<pad>", "p") for text in texts]
    options = TextOptions(kind=kind, size=60_000, min_count=1, exact=True)  # type: ignore[arg-type]
    learned = Tokenizer.train(texts, options)
    for tokenizer in (learned, Tokenizer.from_json(learned.to_json()), pickle.loads(pickle.dumps(learned))):
        assert tokenizer.kind == kind and tokenizer.exact
        assert tokenizer.decode_batch(tokenizer.encode_batch(texts)) == texts


def test_exact_bpe_gives_back_text_that_it_has_never_seen() -> None:
    tokenizer = Tokenizer.train(["a b"], TextOptions(size=300, exact=True))
    texts = documents(500)
    assert tokenizer.decode_batch(tokenizer.encode_batch(texts)) == texts


def test_without_exact_nothing_is_as_it_was_in_a_document(bpe: Tokenizer, word: Tokenizer) -> None:
    assert not bpe.exact and not word.exact
    assert bpe.encode("the cat") == bpe.encode(" the cat") and word.decode(word.encode("the\ncat")) == "the cat"


def test_every_character_of_the_text_is_an_entry_in_the_order_of_codes() -> None:
    text = "to be,\nor\tnot é 中 😀$"
    tokenizer = Tokenizer.train([text[:9], text[9:], "\n"], TextOptions(kind="char"))
    assert [tokenizer.inner.id_to_token(i) for i in range(len(tokenizer))] == [*SPECIALS, *sorted(set(text))]
    assert len(tokenizer.encode(text)) == len(text)
    assert tokenizer.encode("tzx\r") == [tokenizer.encode("t")[0], UNKNOWN, UNKNOWN, UNKNOWN]
    assert tokenizer.tokens(tokenizer.encode("o \n")) == ["o", "▁", "\\n"]
    assert tokenizer.words([START, *tokenizer.encode("to\nbe é"), END]) == (
        ["<s>", "to", "be", "é", "</s>"], [0, 1, 1, 2, 2, 2, 3, 3, 4],
    )  # fmt: skip


def test_too_many_characters_leave_the_most_frequent() -> None:
    tokenizer = Tokenizer.train(["ccc bb a"], TextOptions(kind="char", size=7))
    assert tokenizer.tokens(range(4, 7)) == ["▁", "b", "c"]
    lower = Tokenizer.train(["ABba"], TextOptions(kind="char", lowercase=True))
    assert lower.tokens(range(4, len(lower))) == ["a", "b"] and lower.decode(lower.encode("BA")) == "ba"
    with pytest.raises(InputError, match="all white space"):
        Tokenizer.train([" ", "\n"], TextOptions(kind="char"))


def test_line_ends_are_words_of_an_exact_word_vocabulary() -> None:
    """Of text with a sentence a line each is what others write as <eos>."""
    lines = " a <unk> b \n b a \n" * 2
    tokenizer = Tokenizer.train([lines], TextOptions(kind="word", size=60, exact=True))
    ids = tokenizer.encode(" a <unk> b \n b a \n")
    assert tokenizer.tokens(ids[1:]) == ["a", "<unk>", "b", "▁\\n▁", "b", "a", "<unk>"]
    assert ids[0] == UNKNOWN


def test_marks_of_punctuation_are_words_of_their_own() -> None:
    options = TextOptions(kind="word", lowercase=True, marks=True, min_count=1)
    text = "He said, “Don't -- stop!” </s> it’s _very_ well-known."
    tokenizer = Tokenizer.train([text], options)
    words = "he said , “ don't -- stop ! ” < / s > it’s _ very _ well - known ."
    assert tokenizer.tokens(tokenizer.encode(text)) == words.split()
    assert tokenizer.decode(tokenizer.encode(text)) == words
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.kind == "word" and not again.exact and again.encode(text) == tokenizer.encode(text)
    assert min(tokenizer.encode("</s> <pad> he")) >= UNKNOWN and END not in tokenizer.encode("</s>")
    for wrong in ({"kind": "bpe"}, {"kind": "word", "exact": True}):
        with pytest.raises(InputError, match="text.marks"):
            TextOptions(marks=True, **wrong)  # type: ignore[arg-type]
