"""AST of `transformers`: opened, equal from samples to logits, and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tiny_pictures import AST

from headway.errors import InputError
from headway.hub.hf_export import export_hf
from headway.hub.reading import import_foreign
from headway.tasks.loading import load

NAMES = {0: "bark", 1: "bell", 2: "rain", 3: "talk", 4: "wind"}


def made(place: Path) -> tuple[Any, Any]:
    torch.manual_seed(3)
    model = transformers.ASTForAudioClassification(transformers.ASTConfig(**AST | {"id2label": NAMES})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    extractor = transformers.ASTFeatureExtractor(num_mel_bins=12, max_length=20)
    model.save_pretrained(place)
    extractor.save_pretrained(place)
    return model, extractor


def test_logits_of_samples_are_those_of_transformers(tmp_path: Path) -> None:
    theirs, extractor = made(tmp_path)
    mine = load(tmp_path, "cpu")
    rng = np.random.default_rng(5)
    recordings = [(0.1 * rng.standard_normal(count)).astype(np.float32) for count in (2000, 5000, 3300)]
    values = extractor(recordings, sampling_rate=16000, return_tensors="pt")["input_values"]
    inputs = mine._inputs(recordings)
    torch.testing.assert_close(inputs.pixels_BCHW[:, 0].mT, values, atol=1e-4, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(mine.model(inputs), theirs(values).logits, atol=1e-4, rtol=0)
        best = theirs(values).logits.argmax(-1).tolist()
    assert [guesses[0].text for guesses in mine.classify(recordings)] == [NAMES[at] for at in best]


def test_a_model_goes_back_as_it_came(tmp_path: Path) -> None:
    theirs, extractor = made(tmp_path / "theirs")
    import_foreign(str(tmp_path / "theirs"), str(tmp_path / "mine"))
    export_hf(tmp_path / "mine", tmp_path / "back")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "back"))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    again = transformers.ASTForAudioClassification.from_pretrained(tmp_path / "back").eval()
    values = torch.randn(2, 20, 12)
    with torch.no_grad():
        torch.testing.assert_close(again(values).logits, theirs(values).logits)
    opened = transformers.ASTFeatureExtractor.from_pretrained(tmp_path / "back").to_dict()
    known = extractor.to_dict()
    assert {key: opened[key] for key in ("mean", "std")} == pytest.approx({key: known[key] for key in ("mean", "std")})
    assert all(opened[key] == known[key] for key in ("num_mel_bins", "max_length", "sampling_rate", "do_normalize"))


def test_spectrograms_of_another_size_are_refused(tmp_path: Path) -> None:
    made(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(path.read_text().replace('"max_length": 20', '"max_length": 21'))
    with pytest.raises(InputError, match="gives spectrograms of 12 × 21"):
        load(tmp_path, "cpu")
