"""Every verb of a language model on a Hugging Face folder, as it lies and imported; bad folders in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from calling import DEVICE, Headway, write

from foreign_world import CHAT, write_language_model

Refuses = Callable[..., str]
GREEDY = ["--temperature", 0, "--max-new-tokens", 12]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("hub") / "llama"
    return folder, write_language_model(folder, "llama", CHAT)


@pytest.fixture(params=["as-it-lies", "imported"])
def model(request: pytest.FixtureRequest, both: tuple[Path, Any], headway: Headway, tmp_path: Path) -> tuple[Path, Any]:
    """The folder, or the model folder that is made of it."""
    folder, theirs = both
    if request.param == "imported":
        answer = headway("import", folder, tmp_path / "mine")
        assert answer.code == 0 and answer.out == f"model: {tmp_path / 'mine'}\n", answer
        folder = tmp_path / "mine"
    return folder, theirs


def their_text(theirs: Any, folder: Path, text: str, **how: Any) -> str:
    from headway.hub.vocabularies import read_tokenizer

    tokenizer = read_tokenizer(folder)
    ids = torch.tensor([tokenizer.encode(text)])
    found = theirs.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0, **how)[0, ids.shape[1] :]
    return tokenizer.decode(found.tolist())


def test_greedy_text_is_that_of_transformers(headway: Headway, both: tuple[Path, Any], model: tuple[Path, Any]) -> None:
    place, theirs = model
    for prompt in ("the cat", "b"):
        answer = headway("generate", place, "--prompt", prompt, *GREEDY, *DEVICE)
        assert answer.code == 0 and answer.err == ""
        assert answer.out.rstrip("\n") == (prompt + their_text(theirs, both[0], prompt)).rstrip("\n")


def test_a_chat_is_in_the_models_own_words(headway: Headway, both: tuple[Path, Any], model: tuple[Path, Any]) -> None:
    place, theirs = model
    asked = "<|system|>be kind<|endoftext|>\n<|user|>hello<|endoftext|>\n<|assistant|>"
    said = ["--chat", "--system", "be kind", "--prompt", "hello"]
    answer = headway("generate", place, *said, *GREEDY, *DEVICE)
    assert answer.code == 0 and answer.out.rstrip("\n") == their_text(theirs, both[0], asked).rstrip("\n")
    told = json.loads(headway("generate", place, *said, *GREEDY, "--json", *DEVICE).out)
    assert told["prompt"] == "hello" and told["text"] == their_text(theirs, both[0], asked)


def test_a_conversation_goes_on(headway: Headway, model: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("hi\nyou\n\n"))
    answer = headway("generate", model[0], "--chat", "-i", "--max-new-tokens", 2, "--temperature", 0, *DEVICE)
    assert answer.code == 0 and len(answer.out.splitlines()) >= 2
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\nyou\n\n"))
    chat = headway("chat", model[0], "--max-new-tokens", 2, "--temperature", 0, *DEVICE)
    assert (chat.code, chat.out) == (0, answer.out)


def test_texts_are_scored(headway: Headway, model: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    plain = headway("score", model[0], "--text", "the cat", "a mat", *DEVICE)
    assert plain.code == 0 and [line.split("\t")[1:] for line in plain.out.splitlines()] == [
        ["7", "the cat"],
        ["5", "a mat"],
    ]
    told = json.loads(headway("score", model[0], "--text", "the cat", "--json", *DEVICE).out)
    assert told["log_probability"] == pytest.approx(float(plain.out.split("\t")[0]), abs=1e-3)
    assert len(told["token_texts"]) == len(told["log_probabilities"]) == told["tokens"] == 7
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\na mat\n")))
    assert headway("score", model[0], *DEVICE).out == plain.out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n\xff\xfe mat\n")))
    bad = headway("score", model[0], *DEVICE)
    assert bad.code == 2 and bad.err.startswith("headway: standard input, line 2 is not UTF-8"), bad


def test_an_answer_is_chosen_with_and_without_examples(
    headway: Headway, model: tuple[Path, Any], tmp_path: Path
) -> None:
    examples = write(tmp_path, "examples.tsv", ["good\tyes", "bad\tno"])
    asked = ["score", model[0], "--text", "fine", "--choice", "yes", "no", "--template", "{text}\\n= {answer}", *DEVICE]
    zero = json.loads(headway(*asked, "--json").out)
    few = json.loads(headway(*asked, "--examples", examples, "--json").out)
    assert {one["answer"] for one in zero["choices"]} == {"yes", "no"} and zero["answer"] == zero["choices"][0][
        "answer"
    ]
    assert sum(one["share"] for one in zero["choices"]) == pytest.approx(1.0)
    assert few["choices"] != zero["choices"]
    line = headway(*asked).out.rstrip("\n").split("\t")
    assert line[0] == zero["answer"] and line[2] == "fine"


class Harm:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch HARMED",)


def test_bad_folders_are_told_in_one_line(
    refuses: Refuses, both: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = both
    monkeypatch.chdir(tmp_path)
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "config.json").write_text(json.dumps({"model_type": "gpt5"}))
    assert "headway has no model_type 'gpt5'" in refuses("generate", bad, "--prompt", "a")
    assert "headway has no model_type 'gpt5'" in refuses("import", bad, tmp_path / "x")
    for name in ("config.json", "tokenizer.json"):
        (bad / name).write_bytes((folder / name).read_bytes())
    assert "has no weights" in refuses("generate", bad, "--prompt", "a")
    torch.save({"model.norm.weight": Harm()}, bad / "pytorch_model.bin")
    assert "would run code when it is opened" in refuses("generate", bad, "--prompt", "a")
    assert "would run code" in refuses("import", bad, tmp_path / "x")
    assert not (tmp_path / "HARMED").exists() and not (tmp_path / "x").exists()
    assert "has no chat template" in refuses("generate", _without_chat(folder, tmp_path), "--chat", "--prompt", "a")
    assert "is no model (headway.json is missing)" in refuses("generate", tmp_path, "--prompt", "a")


def _without_chat(folder: Path, tmp_path: Path) -> Path:
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (plain / name).write_bytes((folder / name).read_bytes())
    return plain


def test_wrong_use_is_told_in_one_line(refuses: Refuses, both: tuple[Path, Any], tmp_path: Path) -> None:
    folder, _ = both
    assert "the prompt has 70 tokens, this model reads at most 64" in refuses("generate", folder, "--prompt", "b" * 70)
    assert "text 1 has 71 tokens" in refuses("score", folder, "--text", "b" * 70)
    assert "--system needs --chat" in refuses("generate", folder, "--system", "x", "--prompt", "a")
    assert "at least two choices" in refuses("score", folder, "--text", "a", "--choice", "b")
    assert "are for --choice" in refuses("score", folder, "--text", "a", "--template", "{text} {answer}")
    assert "must have {text} once" in refuses("score", folder, "--text", "a", "--choice", "b", "c", "--template", "x")
    examples = write(tmp_path, "bad.tsv", ["good"])
    asked = ["score", folder, "--text", "a", "--choice", "b", "c", "--examples", examples]
    assert "bad.tsv, line 1: expected a text, a tab and its answer" in refuses(*asked)
    assert "is there already" in refuses("import", folder, folder)
    assert "--like is for n-grams" in refuses("import", folder, tmp_path / "x", "--like", folder)
    assert "is not a model" in refuses("import", "hf://nobody", tmp_path / "x")
    assert "is of no known form" in refuses("import", examples, tmp_path / "x")


def test_perplexity_is_that_of_transformers(
    headway: Headway, both: tuple[Path, Any], model: tuple[Path, Any], tmp_path: Path
) -> None:
    """Every byte of two documents, each from the end of a text before it; the entry with id 1 counts as any other."""
    from headway.hub.vocabularies import read_tokenizer

    place, theirs = model
    first, second = write(tmp_path, "a.txt", ["the cat! sat"]), write(tmp_path, "b.txt", ["!on! a mat"])
    found = json.loads(headway("evaluate", place, first, second, "--json", *DEVICE).out)
    tokenizer = read_tokenizer(both[0])
    ids = [0, *(i for path in (first, second) for i in [*tokenizer.encode(path.read_text()), 0])]
    with torch.no_grad():
        logp_TV = theirs(torch.tensor([ids])).logits[0].log_softmax(-1)
    nll = -sum(float(logp_TV[t, i]) for t, i in enumerate(ids[1:])) / (len(ids) - 1)
    assert found["nll per token"] == pytest.approx(nll, abs=1e-4) and found["tokens"] == len(ids) - 1
    assert found["unknown"] == 0


def test_training_goes_on_from_it(headway: Headway, model: tuple[Path, Any], tmp_path: Path) -> None:
    place, _ = model
    text = write(tmp_path, "text.txt", ["the cat sat on the mat! " * 3] * 40)
    settings = ["engine.steps=30", "engine.batch=256", "model.max_length=32", "schedule.peak=0.01", "schedule.warmup=5"]
    settings += ["validation.every=15", "engine.snapshot=10"]
    asked = ["train", "gpt", "--data", text, "--init", place, "--out", tmp_path / "run", *DEVICE]
    answer = headway(*asked, "--set", *settings)
    assert answer.code == 0, answer
    before, after = (
        json.loads(headway("evaluate", one, text, "--json", *DEVICE).out)["nll per token"]
        for one in (place, tmp_path / "run")
    )
    assert after < before - 1.0
    assert "cat" in headway("generate", tmp_path / "run", "--prompt", "the", *GREEDY, *DEVICE).out


def test_training_from_one_that_does_not_fit_is_refused(
    refuses: Refuses, both: tuple[Path, Any], tmp_path: Path
) -> None:
    text = write(tmp_path, "text.txt", ["the cat sat on the mat! " * 3] * 40)
    asked = ["train", "gpt", "--data", text, "--init", both[0], "--out", tmp_path / "run", *DEVICE]
    line = refuses(*asked, "--set", "model.inner=40", after_work=True)
    assert "'decoder.layers.0.feed_forward.expand.weight' has shape [80, 24]" in line and "has it as [72, 24]" in line


def test_without_a_network_the_hub_is_one_line_at_once(refuses: Refuses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.hub.remote._has_network", lambda _: False)
    assert "there is no network" in refuses("score", "hf://nobody/nothing", "--text", "x")


def test_a_model_with_unknown_keys_is_opened_when_asked_for(headway: Headway, refuses: Refuses, tmp_path: Path) -> None:
    write_language_model(tmp_path / "llama", "llama", CHAT)
    path = tmp_path / "llama" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attention_sinks": 4}))
    asked = ["generate", tmp_path / "llama", "--prompt", "the cat", *GREEDY, *DEVICE]
    assert "'attention_sinks' (4), which headway's llama does not have" in refuses(*asked)
    answer = headway(*asked, "--allow-unknown")
    assert answer.code == 0 and answer.out.startswith("the cat")
    said = "config.json has 'attention_sinks' (4), which headway's llama does not have: the model may compute something"
    assert answer.err.startswith("headway: ") and said in answer.err and answer.err.count("\n") == 1
