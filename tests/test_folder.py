"""The model folder: what is written is read, one or two vocabularies, and it is replaced whole or not at all."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from headway.atomic import replaced_folder
from headway.errors import InputError
from headway.folder import (
    WEIGHTS,
    Card,
    find_model,
    read_card,
    read_model,
    text_card,
    weights_of,
    with_tokenizers,
    write_model,
)
from headway.models import parts
from headway.models.transformer import Transformer, TransformerConfig
from headway.plain import to_plain
from headway.tasks.loading import load
from headway.text.tokenizer import END, START, TextOptions, Tokenizer

CONFIG = TransformerConfig(encoder_layers=1, decoder_layers=2, width=16, inner=32, heads=2, max_length=20)
ENGLISH, FRENCH = ["the old cat sees the dog", "a dog eats"], ["le vieux chat voit le chien", "un chien mange bien"]


def tokenizers(text: TextOptions) -> tuple[Tokenizer, Tokenizer]:
    if text.joint:
        both = Tokenizer.train(ENGLISH + FRENCH, text)
        return both, both
    return Tokenizer.train(ENGLISH, text), Tokenizer.train(FRENCH, text)


def made(joint: bool, embeddings: Any = "tied") -> tuple[Transformer, Card, tuple[Tokenizer, Tokenizer]]:
    torch.manual_seed(0)
    text = TextOptions(kind="word", size=50, joint=joint, min_count=1)
    two = tokenizers(text)
    sizes = (len(two[0]), len(two[1]))
    config = replace(CONFIG, embeddings=embeddings, position=parts.Learned())
    score, run = {"validation BLEU": 31.5}, {"recipe": "ours"}
    card = text_card("transformer", config, sizes, text, ("en", "fr"), search={"beam": 2}, run=run, score=score)
    return Transformer(config, *sizes).eval(), card, two


@pytest.mark.parametrize(
    ("joint", "embeddings"), [(True, "shared"), (True, "tied"), (False, "tied"), (False, "separate")]
)
def test_what_is_written_is_read(tmp_path: Path, joint: bool, embeddings: str) -> None:
    model, card, two = made(joint, embeddings)
    write_model(tmp_path / "model", weights_of(model), card, with_tokenizers(card, *two))
    loaded = read_model(tmp_path / "model")
    assert to_plain(loaded.card) == to_plain(card)
    source = torch.tensor([loaded.source_tokenizer.encode(ENGLISH[0])])
    target = torch.tensor([loaded.target_tokenizer.encode(FRENCH[0])])
    assert source.tolist() == [two[0].encode(ENGLISH[0])] and target.tolist() == [two[1].encode(FRENCH[0])]
    assert not loaded.model.training
    with torch.no_grad():
        assert torch.equal(loaded.model(source, target), model(source, target))
    assert (loaded.source_tokenizer is loaded.target_tokenizer) == joint
    names = {"tokenizer.json"} if joint else {"source.tokenizer.json", "target.tokenizer.json"}
    assert {path.name for path in (tmp_path / "model").iterdir()} == names | {
        "headway.json",
        WEIGHTS,
        "README.md",
        "checksums.json",
    }
    readme = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "en → fr" in readme and "31.5" in readme and '"recipe": "ours"' in readme


def test_weights_are_float32_and_a_tied_one_is_kept_once(tmp_path: Path) -> None:
    model, card, two = made(True, "shared")
    write_model(tmp_path / "model", weights_of(model.to(torch.bfloat16)), card, with_tokenizers(card, *two))
    with safe_open(tmp_path / "model" / WEIGHTS, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert sum(tensor.shape == (card.sizes[0], CONFIG.width) for tensor in tensors.values()) == 1


def test_a_run_stands_for_its_model(tmp_path: Path) -> None:
    model, card, two = made(True)
    write_model(tmp_path / "run" / "model", weights_of(model), card, with_tokenizers(card, *two))
    assert find_model(tmp_path / "run") == find_model(tmp_path / "run" / "model") == tmp_path / "run" / "model"


def test_a_folder_of_the_first_format_loads_without_what_is_optional(tmp_path: Path) -> None:
    model, card, two = made(True)
    write_model(tmp_path, weights_of(model), card, with_tokenizers(card, *two))
    path = tmp_path / "headway.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    kept = {"format": 1, "vocabularies": list(card.sizes), "text": facts["processors"]["source"]["options"]}
    path.write_text(json.dumps(kept | {key: facts[key] for key in ("family", "config")}), encoding="utf-8")
    (tmp_path / "checksums.json").unlink()
    loaded = read_card(tmp_path)
    languages = loaded.reads.language, loaded.writes.language
    assert (*languages, loaded.search, loaded.score) == ("source", "target", {}, {})
    assert loaded.task == "translation" and read_model(tmp_path).card.sizes == card.sizes


def drop(weights: dict[str, torch.Tensor]) -> None:
    weights.pop(sorted(weights)[0])


def add(weights: dict[str, torch.Tensor]) -> None:
    weights["stray"] = torch.zeros(2)


def cut(weights: dict[str, torch.Tensor]) -> None:
    name = sorted(weights)[0]
    weights[name] = weights[name][:1].clone()


def as_integers(weights: dict[str, torch.Tensor]) -> None:
    name = sorted(weights)[0]
    weights[name] = weights[name].view(torch.int32)


CHANGES = [(drop, "lacks the weight"), (add, "'stray'"), (cut, "shape"), (as_integers, "holds I32, expected floating")]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_weights_that_do_not_fit_are_named(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], None], words: str
) -> None:
    model, card, two = made(True)
    write_model(tmp_path / "model", weights_of(model), card, with_tokenizers(card, *two))
    weights = load_file(tmp_path / "model" / WEIGHTS)
    change(weights)
    save_file(weights, tmp_path / "model" / WEIGHTS)
    with pytest.raises(InputError, match="was changed after it was written"):
        read_model(tmp_path / "model")
    (tmp_path / "model" / "checksums.json").unlink()
    with pytest.raises(InputError, match=words):
        read_model(tmp_path / "model")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    model, card, two = made(False)
    write_model(tmp_path / "model", weights_of(model), card, with_tokenizers(card, *two))
    model, card, two = made(True, "shared")
    write_model(tmp_path / "model", weights_of(model), card, with_tokenizers(card, *two))
    assert "source.tokenizer.json" not in content(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("at", ["folder.save_file", "folder.TextProcessor.save", "folder._readme", "atomic.os.fsync"])
def test_a_failure_at_any_point_leaves_the_earlier_model_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    model, card, two = made(True)
    write_model(tmp_path / "model", weights_of(model), card, with_tokenizers(card, *two))
    before = content(tmp_path / "model")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"headway.{at}", full)
    other = {name: tensor + 1 for name, tensor in weights_of(model).items()}
    for place in (tmp_path / "model", tmp_path / "other"):
        with pytest.raises(InputError, match=f"no room left on the disk for {place}"):
            write_model(place, other, card, with_tokenizers(card, *two))
    assert content(tmp_path / "model") == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("failure", "seen"),
    [(PermissionError(errno.EACCES, "Permission denied"), InputError), (KeyboardInterrupt(), KeyboardInterrupt)],
    ids=["refused", "interrupted"],
)
def test_a_rename_that_fails_puts_the_earlier_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, seen: type[BaseException]
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "old").write_text("old")
    rename = Path.rename

    def refuse_new(self: Path, target: Path) -> Path:
        if ".new-" in self.name:
            raise failure
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_new)
    message = "Permission denied" if seen is InputError else None
    with pytest.raises(seen, match=message), replaced_folder(tmp_path / "x") as place:
        (place / "new").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["old"]


def test_an_error_of_the_writer_itself_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), replaced_folder(tmp_path / "x") as place:
        (place / "half").touch()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


FORMAT_1_LOG_PROBABILITY = -48.1121  # of the pair below, as that headway gave it
FOLDERS = Path(__file__).parent / "folders"


def test_a_folder_of_every_format_version_loads_for_ever() -> None:
    """Format 1: a small English to French translator, written by the first headway that had folders."""
    translator = load(FOLDERS / "format-1", "cpu")
    assert (translator.card.reads.language, translator.card.writes.language) == ("en", "fr")
    source = torch.tensor([[*translator.source_tokenizer.encode("He drives the car"), END]])
    target = torch.tensor([[START, *translator.target_tokenizer.encode("Il conduit la voiture")]])
    with torch.no_grad():
        logp = translator.model(source, target).log_softmax(-1)[0]
    labels = [*target[0, 1:].tolist(), END]
    total = sum(logp[t, label].item() for t, label in enumerate(labels))
    assert total == pytest.approx(FORMAT_1_LOG_PROBABILITY, abs=1e-3)
    assert translator.translate(["He drives the car"]) != [""]
