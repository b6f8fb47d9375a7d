"""Windows that are given the text before them: the tokens of `transformers`, and the prompt that is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.errors import InputError, Notice
from headway.generate.hearing import Decoded
from headway.tasks.transcription import Transcription
from headway.text.tokenizer import BYTE_OF
from speech_world import BANDS, BYTES, ID, PLACES, SUPPRESSED, TIMES, features, write_whisper

PREVIOUS, START = ID["<|startofprev|>"], ID["<|startoftranscript|>"]
GREEDY = {"language": "de", "temperatures": (0.0,), "compression": None, "logprob": None, "no_speech": None}
HOP, CONTEXT = 160, 64
ROOM = CONTEXT // 2 - 1
BLANKS = [i for i, letter in enumerate(BYTES) if not 32 < BYTE_OF[letter] < 127]  # and what is no character


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """No segment is blank: transformers keeps its tokens, Whisper's own program and headway do not."""
    folder = tmp_path_factory.mktemp("whisper")
    return write_whisper(folder, context=CONTEXT, suppress_tokens=[*SUPPRESSED, *BLANKS]), headway.load(folder, "cpu")


@pytest.fixture
def openings(both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """What stands before the text of each window, as the model is given it."""
    seen: list[list[int]] = []
    written = both[1].written

    def noted(heard: Any, given: Any, *more: Any) -> Any:
        seen.extend(map(list, given))
        return written(heard, given, *more)

    monkeypatch.setattr(both[1], "written", noted)
    return seen


def cut_from(values: torch.Tensor, mine: Any, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A recording whose samples count themselves, so that the spectrogram of a window is cut from `values`:
    transformers computes it of the whole recording."""

    def spectrogram(window_N: np.ndarray) -> np.ndarray:
        begin = int(window_N[0]) // HOP
        found = np.zeros((1, BANDS, 2 * PLACES), np.float32)
        part = values[0, :, begin : begin + -(-len(window_N) // HOP)].numpy()
        found[0, :, : part.shape[1]] = part
        return found

    monkeypatch.setattr(mine, "spectrogram", spectrogram)
    return np.arange(values.shape[-1] * HOP, dtype=np.float32)


def theirs(model: Any, values: torch.Tensor, **how: Any) -> list[list[int]]:
    """The tokens of each segment; of two timestamps at its end the first."""
    found = model.generate(
        values, attention_mask=torch.ones(values.shape[0], values.shape[-1], dtype=torch.long), language="de",
        task="transcribe", return_timestamps=True, return_segments=True, temperature=0.0, **how,
    )  # fmt: skip
    segments = [one["tokens"].tolist() for one in found["segments"][0]]
    return [ids[:-1] if len(ids) > 2 and ids[-2] >= TIMES else ids for ids in segments]


@pytest.mark.parametrize("prompt", ["", "Headway, Vaswani"], ids=["previous", "prompt"])
@pytest.mark.parametrize("previous", [True, False], ids=["conditioned", "alone"])
def test_tokens_of_several_windows_are_those_of_transformers(
    both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, openings: list[list[int]], prompt: str, previous: bool
) -> None:
    model, mine = both
    values = features(1, seconds=4)
    how: dict[str, Any] = {"condition_on_prev_tokens": previous}
    if prompt:
        how["prompt_ids"] = torch.tensor([PREVIOUS, *mine.tokenizer.encode(f" {prompt}")])
    recording = cut_from(values, mine, monkeypatch)
    found = mine.transcribe(recording, **GREEDY, prompt=prompt, previous=previous)
    assert [one.ids for one in found.segments] == theirs(model, values, **how)
    assert len(openings) > 3
    assert (max(map(len, openings)) == ROOM + 4) == previous  # the text before was cut


@pytest.mark.long
def test_ctranslate2_is_given_the_same_openings(tmp_path: Path) -> None:
    """Windows side by side, each with another text before it."""
    from headway.hub.ctranslate2_speech import load_transcriber

    write_whisper(tmp_path, context=CONTEXT)
    mine, fast = headway.load(tmp_path, "cpu"), load_transcriber(tmp_path)
    windows = list(features(4)[:, None].numpy())
    speaking = mine.settings(GREEDY | {"most": 20})
    opening = mine.tokens.opening(speaking, "de")
    openings = [mine.tokens.behind(list(range(40, 40 + count)), opening) for count in (0, 7, 0, ROOM)]
    found = fast.written(list(fast.encode(windows)), openings, speaking)
    expected = mine.written(list(mine.encode(windows)), openings, speaking)
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]


def said(ids: list[int], temperature: float = 0.0, silent: bool = False) -> Decoded:
    return Decoded(ids, -0.1, temperature, 1.0, 0.0, False, silent)


def texts_before(mine: Any, monkeypatch: pytest.MonkeyPatch, windows: list[Decoded], **settings: Any) -> list[str]:
    """What each window is given before its start, where the windows of a recording say this."""
    seen: list[str] = []
    coming = iter(windows)

    def decode(heard: Any, openings: Any, *more: Any) -> list[Decoded]:
        (opening,) = openings
        assert opening[-3:] == [START, ID["<|de|>"], ID["<|transcribe|>"]]
        before = opening[:-3]
        assert before[:1] == [PREVIOUS] * bool(before)
        seen.append("".join(mine.tokenizer.labels(before[1:])))
        return [next(coming)]

    monkeypatch.setattr(mine, "decode", decode)
    mine.transcribe(np.zeros(16000 * len(windows), np.float32), language="de", **settings)
    return seen


def heard(mine: Any, text: str) -> list[int]:
    return [TIMES, *mine.tokenizer.encode(text), TIMES + PLACES]


def test_a_window_is_given_the_prompt_and_the_text_before_it(
    both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, mine = both
    windows = [said(heard(mine, text)) for text in (" ab", " cd", " ef")]
    one, two = "<|0.00|>▁ab<|1.00|>", "<|0.00|>▁cd<|1.00|>"
    assert texts_before(mine, monkeypatch, windows) == ["", one, one + two]
    assert texts_before(mine, monkeypatch, windows, prompt=" Ada\n") == ["▁Ada", "▁Ada" + one, "▁Ada" + one + two]
    assert texts_before(mine, monkeypatch, windows, previous=False) == ["", "", ""]
    assert texts_before(mine, monkeypatch, windows, previous=False, prompt="Ada") == ["▁Ada"] * 3


def test_what_was_drawn_freely_is_not_passed_on_and_silence_changes_nothing(
    both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, mine = both
    one, two, three = (heard(mine, text) for text in (" ab", " cd", " ef"))
    cool = texts_before(mine, monkeypatch, [said(one), said(two, 0.4), said(three)])
    assert cool[-1] == "<|0.00|>▁ab<|1.00|><|0.00|>▁cd<|1.00|>"
    free = texts_before(mine, monkeypatch, [said(one), said(two, 0.6), said(three), said(one)], prompt="Ada")
    assert free[2:] == ["▁Ada", "▁Ada<|0.00|>▁ef<|1.00|>"]
    silent = texts_before(mine, monkeypatch, [said(one), said([], 0.6, silent=True), said(three)])
    assert silent == ["", "<|0.00|>▁ab<|1.00|>", "<|0.00|>▁ab<|1.00|>"]


def test_a_long_prompt_is_cut_from_the_left_and_that_is_told(
    both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, mine = both
    with pytest.warns(Notice, match=f"the prompt has 101 tokens, this model takes {ROOM}: its beginning is left out"):
        (given,) = texts_before(mine, monkeypatch, [said(heard(mine, " ab"))], prompt="x" * 90 + "Ada Byron!")
    assert given.endswith("xAda▁Byron!") and len(given) == ROOM


@pytest.mark.parametrize(
    ("settings", "line"),
    [({"prompt": "  "}, "the prompt is blank"), ({"prompt": "so <|en|>"}, r"special tokens in it \(<\|en\|>\)")],
)
def test_prompts_that_are_none_are_one_line(both: tuple[Any, Any], settings: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        both[1].transcribe(np.zeros(1600, np.float32), **settings)


def test_options_become_settings(both: tuple[Any, Any], openings: list[list[int]]) -> None:
    _, mine = both
    samples = (0.1 * np.random.default_rng(4).standard_normal(30_000)).astype(np.float32)
    options = {"language": "de", "max_new_tokens": 4}
    list(Transcription.answer(mine, [samples], options | {"prompt": "Ada", "no_previous_text": True}))
    assert {tuple(one) for one in openings} == {
        (PREVIOUS, *mine.tokenizer.encode(" Ada"), START, ID["<|de|>"], ID["<|transcribe|>"])
    }
    with pytest.raises(InputError, match="--prompt is empty"):
        next(Transcription.answer(mine, [samples], {"prompt": ""}))


def test_a_model_without_the_mark_takes_no_prompt(both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    _, mine = both
    monkeypatch.setattr(mine, "tokens", replace(mine.tokens, previous=None))
    mine.transcribe(np.zeros(30_000, np.float32), most=3, language="de")
    with pytest.raises(InputError, match="takes no prompt"):
        mine.transcribe(np.zeros(1600, np.float32), prompt="Ada")
