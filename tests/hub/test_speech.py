"""Whisper of `transformers`: a folder is opened, converted and written, and stays the same model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import headway
from headway.errors import InputError
from headway.hub.hf_export import export_hf
from headway.hub.reading import import_foreign
from speech_world import AT_BEGIN, BANDS, HEADS, ID, PLACES, SUPPRESSED, features, write_whisper


def test_logits_of_samples_are_those_of_transformers(tmp_path: Path) -> None:
    theirs, mine = write_whisper(tmp_path), headway.load(tmp_path, "cpu")
    samples = (0.1 * np.random.default_rng(5).standard_normal(15_000)).astype(np.float32)
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(tmp_path)
    values = extractor(samples, sampling_rate=16000, return_tensors="pt")["input_features"]
    heard = mine.spectrogram(samples)
    np.testing.assert_allclose(heard[0], values[0].numpy(), atol=1e-4)
    ids = torch.randint(0, 200, (1, 12))
    with torch.inference_mode():
        found = mine.model.logits(ids, mine.model.remember(mine.model.encode(_Inputs(values))))[0]
        torch.testing.assert_close(found, theirs(values, decoder_input_ids=ids).logits, atol=1e-5, rtol=0)


class _Inputs:
    def __init__(self, values: torch.Tensor) -> None:
        self.pixels_BCHW = values[:, None]


def test_a_folder_goes_back_as_it_came(tmp_path: Path) -> None:
    theirs = write_whisper(tmp_path / "theirs")
    import_foreign(str(tmp_path / "theirs"), str(tmp_path / "mine"))
    assert export_hf(tmp_path / "mine", tmp_path / "back") == "whisper"
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert second.keys() == first.keys() and all(torch.equal(second[name], first[name]) for name in second)
    facts = [json.loads((tmp_path / name / "generation_config.json").read_text()) for name in ("theirs", "back")]
    same = (
        "lang_to_id", "task_to_id", "is_multilingual", "no_timestamps_token_id", "suppress_tokens", "alignment_heads",
        "begin_suppress_tokens", "max_initial_timestamp_index", "decoder_start_token_id", "eos_token_id",
    )  # fmt: skip
    assert {key: facts[0][key] for key in same} == {key: facts[1][key] for key in same}
    again = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "back").eval()
    values = features(2)
    how = {"language": "en", "task": "transcribe", "return_timestamps": True}
    assert torch.equal(again.generate(values, **how), theirs.generate(values, **how))
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(tmp_path / "back")
    assert (extractor.feature_size, extractor.nb_max_frames) == (BANDS, 2 * PLACES)
    named = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert named.convert_tokens_to_ids("<|de|>") == ID["<|de|>"]


def test_an_imported_folder_is_the_same_transcriber(tmp_path: Path) -> None:
    write_whisper(tmp_path / "theirs")
    import_foreign(str(tmp_path / "theirs"), str(tmp_path / "mine"))
    direct, mine = headway.load(tmp_path / "theirs", "cpu"), headway.load(tmp_path / "mine", "cpu")
    assert (mine.speaking, mine.tokens) == (direct.speaking, direct.tokens)
    assert list(mine.speaking.suppress) == SUPPRESSED and list(mine.speaking.begin_suppress) == AT_BEGIN
    assert [list(pair) for pair in mine.speaking.alignment_heads] == HEADS
    samples = (0.1 * np.random.default_rng(6).standard_normal(40_000)).astype(np.float32)
    assert mine.transcribe(samples, most=8) == direct.transcribe(samples, most=8)


def test_spectrograms_of_another_size_are_refused(tmp_path: Path) -> None:
    write_whisper(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(path.read_text().replace(f'"feature_size": {BANDS}', '"feature_size": 13'))
    with pytest.raises(InputError, match="gives spectrograms of 13 × 100"):
        headway.load(tmp_path, "cpu")


@pytest.mark.long
@pytest.mark.parametrize("timestamps", [False, True], ids=["text", "timestamps"])
@pytest.mark.parametrize("beam", [1, 3], ids=["greedy", "beam"])
def test_ctranslate2_writes_the_same_tokens(tmp_path: Path, timestamps: bool, beam: int) -> None:
    from headway.hub.ctranslate2_export import export_ctranslate2
    from headway.hub.ctranslate2_speech import load_transcriber

    write_whisper(tmp_path / "theirs")
    export_ctranslate2(tmp_path / "theirs", tmp_path / "fast")
    mine, fast = headway.load(tmp_path / "theirs", "cpu"), load_transcriber(tmp_path / "fast")
    windows = list(features(4)[:, None].numpy())
    heard, other = mine.encode(windows), fast.encode(windows)
    np.testing.assert_allclose(other, heard.numpy(), atol=2e-5)
    speaking = mine.settings({"timestamps": timestamps, "beam": beam, "most": 20})
    openings = [mine.tokens.opening(speaking, "de")] * 4
    found, expected = fast.written(list(other), openings, speaking), mine.written(list(heard), openings, speaking)
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    if beam == 1:
        ends = [(one, two) for (ids, one), (_, two) in zip(found, expected, strict=True) if len(ids) < 20]
        assert all(one == pytest.approx(two, abs=1e-3) for one, two in ends)
    assert fast.first(other)[0] == pytest.approx(mine.first(heard)[0], abs=1e-4)


@pytest.mark.long
def test_ctranslate2_times_the_same_places(tmp_path: Path) -> None:
    from headway.hub.ctranslate2_speech import load_transcriber

    write_whisper(tmp_path / "theirs")
    mine, fast = headway.load(tmp_path / "theirs", "cpu"), load_transcriber(tmp_path / "theirs")
    (window,) = list(features(1)[:, None].numpy())
    opening = mine.tokens.opening(mine.settings({"timestamps": False}), "en")
    ids = list(range(40, 52))
    found = fast.align(fast.encode([window])[0], opening, ids, 100)
    expected = mine.align(mine.encode([window])[0], opening, ids, 100, mine.speaking.alignment_heads)
    assert found.tolist() == expected.tolist()
    samples = (0.1 * np.random.default_rng(6).standard_normal(30_000)).astype(np.float32)
    how = {"language": "en", "temperatures": (0.0,), "most": 12, "words": True, "logprob": None, "compression": None}
    assert fast.transcribe(samples, **how).text == mine.transcribe(samples, **how).text
