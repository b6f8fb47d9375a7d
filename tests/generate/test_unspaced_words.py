"""Words of languages that write no spaces between them: split at whole characters, as `transformers` splits them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

import headway
from headway.generate.hearing import Decoded
from headway.generate.word_times import grouped, unspaced
from headway.tasks.transcription import Transcription
from headway.text.characters import character_runs
from headway.text.foreign import ForeignTokenizer
from speech_world import BYTES, NAMED, PLACES, TIMES, write_whisper

TEXTS = {
    "zh": "我们今天去北京，你呢？他说：好的！𠮷野家也好。",
    "ja": "今日は東京へ行きます。コーヒーを、二つください！",
    "th": "สวัสดีครับ วันนี้อากาศดีมาก",
    "lo": "ສະບາຍດີ ຂ້ອຍຊື່ແກ້ວ",
    "my": "မင်္ဂလာပါ နေကောင်းလား",
    "yue": "你哋食咗飯未呀？我哋去飲茶啦。",
}
NAMES = {"zh": "chinese", "ja": "japanese", "yue": "cantonese"}


def byte_tokenizer(merges: int) -> ForeignTokenizer:
    """Of bytes, with the most frequent pairs of them merged: many of its tokens end within a character."""
    inner = Tokenizer(models.BPE({letter: at for at, letter in enumerate(BYTES)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(False, use_regex=False), decoders.ByteLevel()
    if merges:
        trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=BYTES, show_progress=False)
        inner.train_from_iterator(TEXTS.values(), trainer)
    return ForeignTokenizer(inner)


class Theirs:
    def __init__(self, tokenizer: ForeignTokenizer) -> None:
        self.tokenizer = tokenizer

    def decode(self, ids: Sequence[int], decode_with_timestamps: bool) -> str:
        return self.tokenizer.decode(ids)


def split(tokenizer: ForeignTokenizer, ids: Sequence[int]) -> list[list[int]]:
    runs = grouped(ids, tokenizer.characters(ids))
    return [sum(word, []) for word in grouped(runs, unspaced([tokenizer.decode(run) for run in runs]))]


@pytest.mark.parametrize("merges", [0, 20, 60])
@pytest.mark.parametrize("language", NAMES)
def test_words_are_those_of_transformers(language: str, merges: int) -> None:
    tokenizer = byte_tokenizer(merges)
    ids = tokenizer.encode(TEXTS[language])
    words, expected, _ = _combine_tokens_into_words(Theirs(tokenizer), ids, NAMES[language])
    assert split(tokenizer, ids) == expected and len(words) > 9
    inside = [i for i in ids if "\ufffd" in tokenizer.decode([i])]
    assert inside, "no token ends within a character: nothing was tested"


@pytest.mark.parametrize("merges", [0, 20, 60])
@pytest.mark.parametrize("language", TEXTS)
def test_no_word_has_a_part_of_a_character_or_begins_with_a_sign(language: str, merges: int) -> None:
    import unicodedata

    tokenizer, text = byte_tokenizer(merges), TEXTS[language]
    words = [tokenizer.decode(ids) for ids in split(tokenizer, tokenizer.encode(text))]
    assert "".join(words) == text and len(words) > 4
    assert not any("\ufffd" in word or not word.strip() for word in words)
    assert not any(unicodedata.category(word.strip()[0]).startswith(("M", "P")) for word in words)


def test_marks_stay_with_the_word_that_they_close_or_open() -> None:
    runs = ["他", "说", "「", "好", "」", "。", " ", "（", "是", "）", "!"]
    assert unspaced(runs) == [0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3]
    assert unspaced([]) == [] and unspaced(["。", "好"]) == [0, 1]


def test_runs_hold_whole_characters() -> None:
    raw = "é好".encode()
    assert character_runs([raw[:1], raw[1:3], raw[3:], b"a", b"\xe5"]) == [0, 0, 0, 1, 2]
    assert character_runs([b"\xff", b"a"]) == [0, 1] and character_runs([]) == []  # no character, and never one


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whisper")
    write_whisper(folder, context=200, named=tuple({"<|en|>": "<|zh|>", "<|de|>": "<|th|>"}.get(n, n) for n in NAMED))
    return headway.load(folder, "cpu")


def heard(mine: Any, monkeypatch: pytest.MonkeyPatch, text: str, cut: int = 0) -> None:
    """The model writes this text, without its last tokens."""
    ids = mine.tokenizer.encode(text)
    said = Decoded([TIMES, *ids[: len(ids) - cut], TIMES + PLACES], -0.1, 0.0, 1.0, 0.0, False, False)
    monkeypatch.setattr(mine, "decode", lambda heard, *_: [said] * len(heard))


@pytest.mark.parametrize(("language", "words"), [("zh", 17), ("th", 14)])
def test_each_word_has_its_times(mine: Any, monkeypatch: pytest.MonkeyPatch, language: str, words: int) -> None:
    heard(mine, monkeypatch, TEXTS[language])
    found = mine.transcribe(np.zeros(16000, np.float32), language=language, words=True, pauses=False)
    said = found.segments[0].words
    assert "".join(word.text for word in said) == TEXTS[language].replace(" ", "") and len(said) >= words
    times = [time for word in said for time in (word.start, word.end)]
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= 1.0


def test_a_translation_into_english_has_spaces(mine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heard(mine, monkeypatch, " Hello there, friend")
    how = {"language": "zh", "words": True}
    found = mine.transcribe(np.zeros(16000, np.float32), task="translate", **how)
    assert [word.text for word in found.segments[0].words] == ["Hello", "there,", "friend"]


def test_half_a_character_at_the_end_is_left_out(mine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heard(mine, monkeypatch, "你好", cut=1)
    found = mine.transcribe(np.zeros(16000, np.float32), language="zh", words=True)
    assert found.text == "你" and [word.text for word in found.segments[0].words] == ["你"]


@pytest.mark.parametrize("language", ["zh", "th"])
def test_subtitles_have_the_text_as_it_is(
    mine: Any, monkeypatch: pytest.MonkeyPatch, language: str, tmp_path: Path
) -> None:
    import soundfile

    soundfile.write(tmp_path / "talk.wav", np.zeros(16000, np.float32), 16000)
    heard(mine, monkeypatch, TEXTS[language])

    def asked(**options: Any) -> str:
        (found,) = Transcription.answer(mine, [str(tmp_path / "talk.wav")], {"language": language} | options)
        return found.line

    assert asked(srt=True) == f"1\n00:00:00,000 --> 00:00:01,000\n{TEXTS[language]}"
    assert asked(vtt=True) == f"WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n{TEXTS[language]}"
    lines = [line.split("\t") for line in asked(words=True).splitlines()]
    assert "".join(text for _, _, text in lines) == TEXTS[language].replace(" ", "")
