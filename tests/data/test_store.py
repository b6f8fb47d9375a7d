import errno
import json
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

from headway.data import store as module
from headway.data.mapped import BUILDING, DEAD_AFTER_S, IdsWriter
from headway.data.readers import read_pairs
from headway.data.store import PairStore, prepare, train_tokenizers
from headway.errors import InputError
from headway.text.tokenizer import TextOptions, Tokenizer

PAIRS = [(f"the cat {n} sat", f"die Katze {n} saß 😀") for n in range(25)]
OPTIONS = TextOptions(size=300)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([text for pair in PAIRS for text in pair], OPTIONS)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAIRS_AT_ONCE", 4)


def tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return path


def built(tmp_path: Path, tokenizer: Tokenizer, pairs: list[tuple[str, str]], max_length: int = 99) -> PairStore:
    return prepare([tsv(tmp_path / "p.tsv", pairs)], tokenizer, tokenizer, tmp_path / "c", max_length=max_length)


def test_every_pair_comes_back(tmp_path: Path, tokenizer: Tokenizer) -> None:
    store = built(tmp_path, tokenizer, PAIRS)
    assert len(store) == len(PAIRS) and not store.reused and store.skipped == {"empty": 0, "too_long": 0}
    for i, (source, target) in enumerate(PAIRS):
        assert tokenizer.decode(store.source[i]) == source and tokenizer.decode(store.target[i]) == target
    assert store.source.lengths.tolist() == [len(tokenizer.encode(source)) for source, _ in PAIRS]
    assert store.target.lengths.tolist() == [len(tokenizer.encode(target)) for _, target in PAIRS]
    assert store.source[0].dtype == np.uint16 and type(store.source[0]) is np.ndarray
    names = {"source.ids.bin", "source.offsets.npy", "target.ids.bin", "target.offsets.npy", "store.json"}
    names |= {"checksums.json"}
    assert set(os.listdir(store.folder)) == names
    for outside in (-1, len(PAIRS)):
        with pytest.raises(IndexError):
            store.source[outside]


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="needs Linux's /proc")
def test_what_was_read_does_not_stay_resident(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def resident() -> list[int]:
        """Kilobytes of each of the store's maps."""
        maps = Path("/proc/self/smaps").read_text().split("VmFlags")
        return [int(entry.split("Rss:")[1].split()[0]) for entry in maps if str(store.folder) in entry]

    store = built(tmp_path, tokenizer, PAIRS)
    assert store.source[3].sum() > 0 and sum(resident()) > 0
    for side in ("source", "target"):
        ids = getattr(store, side).rows(np.arange(len(store)), 30)
        assert tokenizer.decode(ids[7]) == PAIRS[7][side == "target"]
    assert store.source.lengths.sum() > 0 and store.target.lengths.sum() > 0
    assert resident() == [0, 0, 0, 0]


def test_a_large_vocabulary_is_kept_in_four_bytes(tmp_path: Path) -> None:
    words = [f"w{n}" for n in range(66_000)]
    large = Tokenizer.train(words, TextOptions(kind="word", size=70_000, min_count=1))
    store = built(tmp_path, large, [(words[-1], words[0])])
    assert store.source[0].dtype == np.uint32 and large.decode(store.source[0]) == words[-1]


def test_each_side_has_its_own_tokenizer(tmp_path: Path) -> None:
    path = tsv(tmp_path / "p.tsv", PAIRS)
    source, target = train_tokenizers([path], TextOptions(size=280, joint=False))
    store = prepare([path], source, target, tmp_path, max_length=99)
    assert (source.decode(store.source[3]), target.decode(store.target[3])) == PAIRS[3]


def test_long_and_empty_pairs_are_left_out_and_counted_never_cut(tmp_path: Path, tokenizer: Tokenizer) -> None:
    long = "cat " * 50 + "end"
    pairs = [*PAIRS[:3], ("", "leer"), (long, "kurz"), ("\u3000 ", "x"), ("short", long), PAIRS[3]]
    store = built(tmp_path, tokenizer, pairs, max_length=40)
    assert store.skipped == {"empty": 2, "too_long": 2} and store.too_long == [5, 7]
    assert [tokenizer.decode(store.source[i]) for i in range(len(store))] == [source for source, _ in PAIRS[:4]]
    exact = max(len(tokenizer.encode(text)) for pair in PAIRS for text in pair)
    assert built(tmp_path, tokenizer, PAIRS, max_length=exact).skipped["too_long"] == 0
    many = built(tmp_path, tokenizer, [(long, "x")] * 30 + PAIRS[:1], max_length=40)
    assert many.skipped["too_long"] == 30 and many.too_long == list(range(1, 21))


def test_nothing_left_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="none of 2 pairs is left: 1 have an empty side, 1 are longer than 1"):
        built(tmp_path, tokenizer, [("", "a"), PAIRS[0]], max_length=1)
    assert os.listdir(tmp_path / "c") == []


def test_the_same_content_is_reused_wherever_it_lies(tmp_path: Path, tokenizer: Tokenizer) -> None:
    first = built(tmp_path, tokenizer, PAIRS)
    moved = tsv(tmp_path / "elsewhere.tsv", PAIRS)
    again = prepare([moved], tokenizer, tokenizer, tmp_path / "c", max_length=99)
    assert again.reused and again.folder == first.folder


def test_anything_that_changes_the_ids_makes_another_store(tmp_path: Path, tokenizer: Tokenizer) -> None:
    other = Tokenizer.train(["the cat"], OPTIONS)
    path = tsv(tmp_path / "p.tsv", PAIRS)
    plain = [tmp_path / "p.en", tmp_path / "p.de"]
    for file in plain:
        file.write_bytes(path.read_bytes())
    cache = tmp_path / "c"
    stores = [
        prepare([path], tokenizer, tokenizer, cache, max_length=99),
        prepare([path], tokenizer, tokenizer, cache, max_length=98),
        prepare([path], other, tokenizer, cache, max_length=99),
        prepare([path], tokenizer, other, cache, max_length=99),
        prepare([path, path], tokenizer, tokenizer, cache, max_length=99),
        prepare(plain, tokenizer, tokenizer, cache, max_length=99),
        built(tmp_path, tokenizer, PAIRS[1:]),
    ]
    assert len({store.folder for store in stores}) == len(stores) and not any(store.reused for store in stores)


@pytest.mark.parametrize("name", ["source.ids.bin", "target.offsets.npy", "store.json"])
def test_a_store_that_was_cut_is_made_again(tmp_path: Path, tokenizer: Tokenizer, name: str) -> None:
    broken = built(tmp_path, tokenizer, PAIRS).folder / name
    broken.write_bytes(broken.read_bytes()[:-2])
    with pytest.raises(InputError, match="not a complete store"):
        PairStore(broken.parent)
    again = built(tmp_path, tokenizer, PAIRS)
    assert not again.reused and tokenizer.decode(again.target[24]) == PAIRS[24][1]


@pytest.mark.parametrize("name", ["source.ids.bin", "target.ids.bin", "target.offsets.npy", "store.json"])
def test_a_store_with_a_changed_byte_is_made_again(tmp_path: Path, tokenizer: Tokenizer, name: str) -> None:
    """Of the same size: only the checksum shows it."""
    whole = built(tmp_path, tokenizer, PAIRS).folder
    expected = {path.name: path.read_bytes() for path in whole.iterdir()}
    data = bytearray(expected[name])
    data[len(data) // 2] ^= 4
    (whole / name).write_bytes(data)
    assert not built(tmp_path, tokenizer, PAIRS).reused
    assert {path.name: path.read_bytes() for path in whole.iterdir()} == expected


def test_an_interruption_leaves_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def interrupt(read: int) -> None:
        raise KeyboardInterrupt

    path = tsv(tmp_path / "p.tsv", PAIRS)
    with pytest.raises(KeyboardInterrupt):
        prepare([path], tokenizer, tokenizer, tmp_path / "c", max_length=99, progress=interrupt)
    assert os.listdir(tmp_path / "c") == []


def test_leftovers_of_dead_builds_are_removed_when_old(tmp_path: Path, tokenizer: Tokenizer) -> None:
    dead, alive = tmp_path / "c" / f"{BUILDING}dead", tmp_path / "c" / f"{BUILDING}alive"
    old = time.time() - DEAD_AFTER_S - 60
    for folder in (dead, alive):
        folder.mkdir(parents=True)
        (folder / "source.ids.bin").write_bytes(b"")
    for path in (dead / "source.ids.bin", dead, alive):
        os.utime(path, (old, old))
    built(tmp_path, tokenizer, PAIRS)
    assert alive.exists() and not dead.exists()


def test_a_build_that_another_process_finished_first_is_used(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = module._write

    def slower(*args: object) -> dict[str, object]:
        monkeypatch.setattr(module, "_write", write)
        built(tmp_path, tokenizer, PAIRS)
        return write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_write", slower)
    store = built(tmp_path, tokenizer, PAIRS)
    assert len(store) == len(PAIRS) and os.listdir(tmp_path / "c") == [store.folder.name]


@pytest.mark.parametrize(
    ("number", "message"), [(errno.ENOSPC, "no room left on the disk"), (errno.EROFS, "cannot write")]
)
def test_a_full_disk_is_one_clear_line_and_leaves_nothing(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(IdsWriter, "append", full)
    with pytest.raises(InputError, match=message):
        built(tmp_path, tokenizer, PAIRS)
    assert os.listdir(tmp_path / "c") == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_fills_up_at_the_last_flush_is_told_too(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = IdsWriter.__init__

    def on_full_disk(self: IdsWriter, *args: object) -> None:
        start(self, *args)  # type: ignore[arg-type]
        self.ids.close()
        self.ids = open("/dev/full", "wb")  # noqa: SIM115

    monkeypatch.setattr(IdsWriter, "__init__", on_full_disk)
    with pytest.raises(InputError, match="no room left on the disk"):
        built(tmp_path, tokenizer, PAIRS)
    assert os.listdir(tmp_path / "c") == []


def test_a_bad_line_in_the_middle_leaves_nothing(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("a\tb\n" * 10 + "no tab\n")
    with pytest.raises(InputError, match="line 11: no tab"):
        prepare([path], tokenizer, tokenizer, tmp_path / "c", max_length=99)
    assert os.listdir(tmp_path / "c") == []


def test_a_pipe_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    os.mkfifo(tmp_path / "p.tsv")
    with pytest.raises(InputError, match="not a regular file"):
        prepare([tmp_path / "p.tsv"], tokenizer, tokenizer, tmp_path / "c", max_length=99)


def test_progress_counts_the_pairs_read(tmp_path: Path, tokenizer: Tokenizer) -> None:
    told: list[int] = []
    path = tsv(tmp_path / "p.tsv", PAIRS)
    prepare([path], tokenizer, tokenizer, tmp_path / "c", max_length=99, progress=told.append)
    assert told == [4, 8, 12, 16, 20, 24, 25]


def test_a_pickled_store_travels_as_its_place(tmp_path: Path, tokenizer: Tokenizer) -> None:
    store = built(tmp_path, tokenizer, PAIRS)
    packed = pickle.dumps(store)
    again = pickle.loads(packed)
    assert len(packed) < 1_000 and again.source[7].tolist() == store.source[7].tolist()


def test_joint_tokenizers_are_one_and_know_both_sides(tmp_path: Path) -> None:
    source, target = train_tokenizers([tsv(tmp_path / "p.tsv", PAIRS)], TextOptions(kind="word", size=99))
    assert source is target and source.decode(source.encode("cat Katze")) == "cat Katze"


def test_a_large_corpus_is_sampled_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    train = Tokenizer.train

    def spy(lines: list[str], options: TextOptions) -> Tokenizer:
        seen.extend(lines)
        return train(seen, options)

    monkeypatch.setattr(Tokenizer, "train", spy)
    rows = tmp_path / "p.jsonl"
    rows.write_text("".join(json.dumps({"en": a, "de": b}) + "\n" for a, b in PAIRS))
    train_tokenizers([rows], OPTIONS, source="en", target="de", limit=9)
    assert seen == [text for pair in PAIRS[::3] for text in pair]
    assert list(read_pairs([rows], "en", "de")) == PAIRS
