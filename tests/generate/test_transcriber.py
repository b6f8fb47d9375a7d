"""Recordings to text: the tokens that `transformers` writes of the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.errors import InputError
from headway.generate.segments import cut
from headway.generate.speech import Speaking
from speech_world import ID, PLACES, TIMES, features, write_whisper

LANGUAGE, END = "de", ID["<|endoftext|>"]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("whisper")
    return write_whisper(folder), headway.load(folder, "cpu")


def ours(mine: Any, values: torch.Tensor, speaking: Speaking) -> list[list[int]]:
    x_BSD = mine.encode(list(values[:, None].numpy()))
    openings = [mine.tokens.opening(speaking, LANGUAGE)] * len(values)
    return [ids for ids, _ in mine.written(list(x_BSD), openings, speaking)]


def theirs(model: Any, values: torch.Tensor, **how: Any) -> list[list[int]]:
    found = model.generate(values, language=LANGUAGE, task="transcribe", force_unique_generate_call=True, **how)
    rows = [row[row.index(ID["<|transcribe|>"]) + 1 :] for row in found.tolist()]
    rows = [row[1:] if row[:1] == [ID["<|notimestamps|>"]] else row for row in rows]
    return [row[: row.index(END)] if END in row else row for row in rows]


@pytest.mark.parametrize("timestamps", [False, True], ids=["text", "timestamps"])
@pytest.mark.parametrize("beam", [1, 3], ids=["greedy", "beam"])
def test_tokens_are_those_of_transformers(both: tuple[Any, Any], timestamps: bool, beam: int) -> None:
    model, mine = both
    values = features(5)
    how = {"return_timestamps": timestamps, "num_beams": beam}
    how |= {"early_stopping": True, "renormalize_logits": True} if beam > 1 else {}
    speaking = mine.settings({"timestamps": timestamps, "beam": beam})
    found, expected = ours(mine, values, speaking), theirs(model, values, **how)
    assert found == expected
    assert len({tuple(row) for row in found}) > 1, "all windows say the same: nothing was tested"


def test_segments_are_cut_as_transformers_cuts_them(both: tuple[Any, Any]) -> None:
    """Timestamps alone, in pairs, at the end and nowhere."""
    model, _ = both
    rng = np.random.default_rng(3)
    for _ in range(200):
        ids, time = [TIMES + int(rng.integers(3))], 3
        for _ in range(int(rng.integers(1, 6))):
            ids += rng.integers(0, 200, int(rng.integers(1, 4))).tolist()
            time = min(PLACES, time + int(rng.integers(1, 9)))
            ids += [TIMES + time] * int(rng.integers(0, 3))
        frames = int(rng.integers(60, 101))
        found, used = cut(ids, TIMES, frames, 0.01)
        expected, offset = model._retrieve_segment(
            seek_sequence=torch.tensor(ids), seek_outputs=[None], time_offset=torch.zeros(1, dtype=torch.float64),
            timestamp_begin=TIMES, seek_num_frames=torch.tensor([frames]), time_precision=0.02,
            time_precision_features=0.01, input_stride=2, prev_idx=0, idx=0, return_token_timestamps=False,
            decoder_input_ids=torch.zeros(1, 0),
        )  # fmt: skip
        assert used == int(offset)
        for (start, end, mine), theirs_ in zip(found, expected, strict=True):
            assert (start, end) == pytest.approx((float(theirs_["start"]), float(theirs_["end"])), abs=0.011)
            assert mine == theirs_["tokens"].tolist()[: len(mine)]


def test_the_language_and_silence_are_those_of_transformers(both: tuple[Any, Any]) -> None:
    model, mine = both
    values = features(4)
    silences, languages = mine.first(mine.encode(list(values[:, None].numpy())))
    starts = torch.full((4, 1), ID["<|startoftranscript|>"])
    with torch.no_grad():
        shares = model(values, decoder_input_ids=starts).logits[:, 0].softmax(-1)
    assert silences == pytest.approx(shares[:, ID["<|nospeech|>"]].tolist(), abs=1e-6)
    expected = model.detect_language(values).tolist()
    assert [ID[f"<|{max(found, key=found.get)}|>"] for found in languages] == expected


def sung(seconds: float, seed: int = 4) -> np.ndarray:
    return (0.1 * np.random.default_rng(seed).standard_normal(int(16000 * seconds))).astype(np.float32)


def test_a_long_recording_is_heard_to_its_end_in_order(both: tuple[Any, Any]) -> None:
    _, mine = both
    found = mine.transcribe(sung(4.37), language="en", temperatures=(0.0,), words=True)
    assert found.language == "en" and found.segments
    edges = [(one.start, one.end) for one in found.segments]
    assert all(start <= end for start, end in edges) and edges == sorted(edges)
    assert found.segments[-1].end <= 4.4
    words = [word for one in found.segments for word in one.words]
    assert words and all(0 <= word.start <= word.end <= 4.4 for word in words)
    assert [one.start for one in words] == sorted(one.start for one in words)


def test_recordings_side_by_side_give_what_they_give_alone(both: tuple[Any, Any]) -> None:
    _, mine = both
    recordings = [sung(2.5, 1), sung(0.4, 2), sung(1.3, 3)]
    how = {"temperatures": (0.0,), "logprob": None, "most": 12}
    together = mine.transcribe(recordings, batch=2, **how)
    assert [one.text for one in together] == [mine.transcribe(one, **how).text for one in recordings]
    assert [one.text for one in mine.stream(recordings[0], **how)] == [one.text for one in together[0].segments]
    (streamed,) = mine.transcribe([iter([recordings[0][:9000], recordings[0][9000:]])], **how)
    assert streamed.text == together[0].text


def test_a_text_that_fails_is_drawn_anew_and_silence_is_left_out(both: tuple[Any, Any], monkeypatch: Any) -> None:
    _, mine = both
    asked: list[float] = []

    def written(heard: Any, openings: Any, speaking: Any, temperature: float = 0.0) -> Any:
        asked.append(temperature)
        fails = {0.0: ([65] * 30, -0.1), 0.5: ([66, 67], -9.0)}  # one repeats itself, one is improbable
        return [fails.get(temperature, ([66, 67], -0.5)) for _ in heard]

    monkeypatch.setattr(mine, "written", written)
    x_BSD = torch.zeros(1, PLACES, 24)
    how = {"temperatures": (0.0, 0.5, 1.0), "no_speech": 0.6}
    (said,) = mine.decode(x_BSD, [[1]], [0.1], mine.settings(how))
    assert asked == [0.0, 0.5, 1.0] and (said.ids, said.temperature, said.failed) == ([66, 67], 1.0, False)
    (said,) = mine.decode(x_BSD, [[1]], [0.9], mine.settings(how | {"compression": None}))
    assert said.temperature == 0.0 and not said.silent
    (said,) = mine.decode(x_BSD, [[1]], [0.9], mine.settings(how | {"temperatures": (0.5,)}))
    assert said.silent


def test_sampled_log_probabilities_are_those_before_the_temperature(both: tuple[Any, Any]) -> None:
    model, mine = both
    values, speaking = (
        features(1),
        mine.settings({"timestamps": False, "most": 9, "suppress": [], "begin_suppress": []}),
    )
    opening = mine.tokens.opening(speaking, "de")
    ((ids, logprob),) = mine.written(list(mine.encode(list(values[:, None].numpy()))), [opening], speaking, 0.8)
    read = torch.tensor([[*opening, *ids]])
    with torch.no_grad():
        logp = model(values, decoder_input_ids=read).logits[0, len(opening) - 1 :].log_softmax(-1)
    written = [*ids, END] if len(ids) < 9 else ids
    assert logprob == pytest.approx(float(logp[range(len(written)), written].mean()), abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"language": "fr"}, "knows no language 'fr'"),
        ({"temperatures": ()}, "at least one number"),
        ({"beam": 0}, "beam must be at least 1"),
        ({"best": 3}, "best"),
    ],
)
def test_wrong_settings_are_one_line(both: tuple[Any, Any], settings: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        both[1].transcribe(sung(0.1), **settings)


def test_a_trace_has_what_each_token_looked_at(both: tuple[Any, Any]) -> None:
    _, mine = both
    trace = mine.trace(sung(0.6), language="en", most=7)
    weights = trace.tensors["decoder.1.cross.weights"]
    assert weights.shape == (4, len(trace.tracks["target"].labels), 30)
    assert trace.tracks["source"].labels[:3] == ("0.00", "0.02", "0.04")
    assert trace.tracks["target"].labels[:3] == ("<|startoftranscript|>", "<|en|>", "<|transcribe|>")
    assert not any(name.startswith("encoder") for name in trace.tensors)
    assert "encoder.0.attention.weights" in mine.trace(sung(0.6), language="en", most=2, tensors="encoder.*").tensors


@pytest.mark.gpu
@pytest.mark.parametrize("timestamps", [False, True], ids=["text", "timestamps"])
@pytest.mark.parametrize("beam", [1, 3], ids=["greedy", "beam"])
def test_captured_steps_write_what_plain_ones_write(tmp_path: Any, timestamps: bool, beam: int) -> None:
    write_whisper(tmp_path)
    values = features(5)
    texts = []
    for device in ("cpu", "cuda"):
        mine = headway.load(tmp_path, device, "float32")
        texts.append(ours(mine, values, mine.settings({"timestamps": timestamps, "beam": beam})))
    assert texts[0] == texts[1]
