"""Weights of `torch.nn.Transformer` as they lie: the same numbers, and the stress marks of ruaccent-predictor==1.2.0, a
model of characters that was trained with it (`HEADWAY_CHECKPOINTS`, see checkpoints.py).

B batch, S source length, T target length, V vocabulary.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import place
from safetensors.torch import save_file
from torch import Tensor

import headway
from headway.errors import InputError, Notice
from headway.folder import Loaded, read_model
from headway.hub.families.ctranslate2_parts import is_pre_norm
from headway.hub.families.torch_transformer import TORCH
from headway.hub.hf_export import export_hf
from headway.hub.ids import ids_only
from headway.hub.names import to_hf
from headway.hub.reading import import_foreign, read_foreign
from headway.hub.torch_file import Call
from headway.hub.torch_weights import TorchWeights
from headway.tasks.translation import framed
from torch_world import ENTRIES, HEADS, PLACES, Program, drawn, write_folder

# Of its encoder with the norm first: that it will not use nested tensors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:enable_nested_tensor"),
    pytest.mark.filterwarnings("ignore::headway.errors.Notice"),
]
CPU = torch.device("cpu")
PROGRAMS = {
    "post": Program(),
    "pre": Program(norm_first=True, tables="separate", sizes=(31, 29)),
    "post without final norms": Program(final=False, position="halves"),
    "gelu, tied": Program(activation="gelu", tables="tied"),
    "no biases, shared": Program(bias=False, tables="shared", head_bias=False),
    "learned positions": Program(position="learned", scaled=False, tables="separate", head_bias=False),
    "positions not saved": Program(position="unsaved"),
}
each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())


def call(program: Program, **more: Any) -> Call:
    told = Call(HEADS, program.norm_first, program.activation, program.scaled)  # type: ignore[arg-type]
    return replace(told, **more)


def opened(folder: Path, program: Program, dtype: torch.dtype = torch.float32, **more: Any) -> Loaded:
    with ids_only():
        ends = {"bos_token_id": 1, "eos_token_id": 2}
        return read_foreign(folder, CPU, dtype, call(program, **ends, **more))


def pair(program: Program) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    sizes = zip(program.sizes, (13, 9), strict=True)
    source_BS, target_BT = (torch.randint(0, size, (3, length), generator=generator) for size, length in sizes)
    return source_BS, target_BT, torch.tensor([13, 4, 9])


@each_program
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
def test_logits_and_gradients_of_a_padded_batch_are_those_of_torch(
    program: Program, dtype: torch.dtype, within: float, tmp_path: Path
) -> None:
    theirs = drawn(program, dtype)
    loaded = opened(write_folder(tmp_path, theirs), program, dtype)
    mine: Any = loaded.model
    found, expected = (model(*pair(program)) for model in (mine, theirs))
    torch.testing.assert_close(found, expected, rtol=0, atol=within)
    for logits_BTV in (found, expected):
        logits_BTV.logsumexp(-1).mean().backward()
    gradients = {name: weight.grad for name, weight in mine.named_parameters()}
    back = to_hf(TORCH.table(gradients, loaded.card.config, loaded.card.sizes), gradients)
    state = {name: weight.grad for name, weight in theirs.state_dict(keep_vars=True).items() if weight.grad is not None}
    wanted = TorchWeights(tmp_path, state).tensors
    assert back.keys() == wanted.keys()
    for name, gradient in back.items():
        if program.bias or not name.endswith("bias"):  # headway's are 0 there, and could be trained
            torch.testing.assert_close(gradient, wanted[name], rtol=0, atol=within, msg=lambda m, n=name: f"{n}: {m}")


def named_otherwise(name: str) -> str:
    """As of a program with the two stacks apart, in a wrapper for several devices."""
    for ours, other in {"net.encoder": "enc_stack", "net.decoder": "dec_stack", "src_embed": "embed.chars"}.items():
        name = name.replace(ours, other)
    return f"module.{name}"


FORMS: dict[str, Callable[[dict[str, Tensor], Path], None]] = {
    "other names": lambda state, folder: torch.save(
        {named_otherwise(name): value for name, value in state.items()}, folder / "best.pth"
    ),
    "a checkpoint of training": lambda state, folder: torch.save(
        {"epoch": 3, "model_state_dict": state, "optimizer_state_dict": {"lr": 0.1}}, folder / "last.pt"
    ),
    "safetensors": lambda state, folder: save_file(state, folder / "weights.safetensors"),
    "beside counters and masks": lambda state, folder: torch.save(
        state | {"steps": torch.tensor(7), "tgt_mask": torch.ones(4, 4, dtype=torch.bool)}, folder / "model.pt"
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_weights_in_another_file(form: str, tmp_path: Path) -> None:
    theirs = drawn(Program())
    state = {name: value for name, value in theirs.state_dict().items() if name != "tgt_embed.weight"}
    FORMS[form](state, tmp_path)
    [file] = tmp_path.iterdir()
    for given in (tmp_path, file):
        found = opened(given, Program()).model(*pair(Program()))
        torch.testing.assert_close(found, theirs(*pair(Program())), rtol=0, atol=1e-5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "theirs", drawn(Program()))


def test_an_imported_model_translates_as_its_program_does(folder: Path, tmp_path: Path) -> None:
    """Characters that the vocabulary lacks, a symbol spelled out in a text, and padding that attention sees."""
    theirs, texts = drawn(Program()), ["a cat", "the émü", "</s> x", "two words here"]
    import_foreign(str(folder), tmp_path / "model", call(Program(), pad_source_to=18))
    mine = headway.load(tmp_path / "model", "cpu")
    expected = [theirs.greedy(text, 18) for text in texts]
    assert mine.translate(texts) == expected
    assert any(theirs.greedy(text, 0) != found for text, found in zip(texts, expected, strict=True))
    trace = mine.trace("a cat")
    labels = trace.tracks["source"].labels
    assert labels[:4] == ("<s>", "a", "␣", "c") and labels[7:] == ("<pad>",) * 11
    with pytest.raises(InputError, match="at most 18"):
        mine.translate("x" * 19)


def test_what_is_assumed_is_said_in_one_line(folder: Path) -> None:
    def told(how: Call) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", Notice)
            read_foreign(folder, CPU, torch.float32, how)
        return [str(one.message) for one in caught if one.category is Notice]

    [line] = told(Call(HEADS))
    assert "norm_first=false, activation=relu, scale_embedding=true, pad_source_to=0 is assumed" in line
    assert "pad_source_to" not in told(Call(HEADS, pad_source_to=9))[0]


def without(*lost: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda state: {name: value for name, value in state.items() if not name.startswith(lost)}


def more(**added: Tensor) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda state: state | {name.replace("_", ".", 1): value for name, value in added.items()}


CHANGED = {
    "no embedding": (without("src_embed", "tgt_embed"), "expected one table of embeddings"),
    "no output": (without("generator"), "one output projection"),
    "two outputs": (more(second_weight=torch.ones(5, 24), second_bias=torch.ones(5)), "one output projection"),
    "embeddings without a side": (
        lambda state: {name.replace("src_embed", "one").replace("tgt_embed", "two"): v for name, v in state.items()},
        "the names do not say which is the source's",
    ),
    "positions of another width": (more(pe_x=torch.ones(1, 20, 7)), "a table of positions of width 24"),
    "a layer lost": (without("net.encoder.layers.0.linear2"), "lacks 'encoder.layers.0.linear2.weight'"),
    "a part more": (lambda state: state | {"net.encoder.layers.1.gate.weight": torch.ones(24)}, "gate.weight"),
    "an encoder alone": (without("net.decoder"), "without an encoder and a decoder of torch.nn.Transformer"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGED)
def test_what_does_not_fit_is_named_in_one_line(change: str, folder: Path) -> None:
    changed, line = CHANGED[change]
    state = {**drawn(Program(tables="separate")).state_dict()}
    torch.save(changed(state), folder / "model.pt")
    with pytest.raises(InputError) as caught:
        read_model(folder) if "alone" in change else read_foreign(folder, CPU, torch.float32, Call(HEADS))
    assert line in str(caught.value) and "\n" not in str(caught.value), caught.value


@pytest.mark.parametrize(
    ("how", "line"),
    [
        (Call(), "--heads N (the program that trained it calls it nhead)"),
        (Call(5), "24"),
        (Call(HEADS, pad_source_to=PLACES + 1), f"has {PLACES} positions"),
        (Call(HEADS, bos_token_id=99), "the id 99"),
    ],
)
def test_calls_that_cannot_be_are_refused(how: Call, line: str, folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_foreign(folder, CPU, torch.float32, how)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_read_without_heads_it_says_how_to_give_them(folder: Path) -> None:
    with pytest.raises(InputError, match=rf"headway import {folder} MODEL --heads N"):
        headway.load(folder)


@pytest.mark.parametrize(
    ("vocabulary", "line"),
    [
        (ENTRIES | {"the": 31}, "'the': expected single characters"),
        ({entry: i for entry, i in ENTRIES.items() if entry != "<unk>"}, "no symbol for characters that it lacks"),
        ({entry: i for entry, i in ENTRIES.items() if entry != "<s>"}, "--set bos_token_id=N eos_token_id=N"),
        (ENTRIES | {"é": 400}, "the tokenizer has 401 entries, the model 32"),
        ({"a": -1}, "has the id -1"),
        (None, "has no tokenizer"),
    ],
)
def test_other_vocabularies_are_refused(vocabulary: dict[str, int] | None, line: str, folder: Path) -> None:
    (folder / "vocab.json").unlink()
    if vocabulary is not None:
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
    with pytest.raises(InputError) as caught:
        read_foreign(folder, CPU, torch.float32, Call(HEADS))
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_of_several_files_one_is_to_be_named(folder: Path) -> None:
    (folder / "older.pt").write_bytes((folder / "model.pt").read_bytes())
    with pytest.raises(InputError, match=r"holds 2 files of weights: name one"):
        read_model(folder)


def test_what_headway_cannot_write_or_train_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    import_foreign(str(folder), tmp_path / "model", call(Program(), pad_source_to=18))
    with pytest.raises(InputError, match="model.norm=post-final"):
        is_pre_norm(read_model(tmp_path / "model").card.config.norm)  # as its export to CTranslate2 asks
    with pytest.raises(InputError, match="has no counterpart there"):
        export_hf(tmp_path / "model", tmp_path / "out")
    loaded = read_model(tmp_path / "model")
    with pytest.raises(InputError, match="padded to 18 tokens: import it without pad_source_to"):
        framed(loaded.card, loaded.source_tokenizer)


# The checkpoint, and texts of our own for it.
WHO = ["Мой брат", "Старая учительница", "Маленькая девочка", "Наш сосед", "Никто", "Весёлый мальчик", "Хозяйка"]
DOES = ["читает", "потеряла", "принёс", "не видел", "хочет купить", "рисует"]
WHAT = ["новую книгу", "ключ от замка", "свежее молоко", "белый хлеб", "письмо из города", "дорогую картину"]
WHEN = ["утром.", "в воскресенье!", "каждый вечер", "на берегу реки…", "1 раз в год, зимой?"]
WORDS = ["молоко", "корова", "дорога", "хорошо", "собака", "вода", "земля", "голова", "рука", "окно", "зима", "весна"]
LENGTH = 256


def russian(count: int) -> list[str]:
    """So many sentences and, as every fifth, single words."""
    every = [" ".join(words) for words in itertools.product(WHO, DOES, WHAT, WHEN)]
    mixed = [every[431 * n % len(every)] for n in range(count)]  # 431 shares no factor with their number
    return [WORDS[n // 5] if n % 5 == 4 and n // 5 < len(WORDS) else text for n, text in enumerate(mixed)]


def accentor() -> Any:
    """The program of the package, from its file."""
    path = place("ruaccent/accentor.py")
    spec = importlib.util.spec_from_file_location("accentor", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    found = module.load_accentor(device="cpu")
    torch.set_num_threads(threads)  # which it changes
    return found


@pytest.fixture(scope="module")
def stresses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ruaccent") / "model"
    import_foreign(str(place("ruaccent/model")), folder, Call(8, pad_source_to=LENGTH))
    return folder


@pytest.mark.long
def test_the_checkpoint_gives_its_logits_in_headway(stresses: Path) -> None:
    """In float64: in float32 each of the two is farther from that than they may differ here. Its sinusoids, computed in
    float32, are off by as much."""
    program, loaded = accentor(), read_model(stresses, CPU, torch.float64)
    theirs, codec, texts = program.model.double(), loaded.source_tokenizer, russian(3)
    source_BS = torch.cat([program._text_to_tensor(text) for text in texts])
    assert [codec.framed(codec.encode(text)) for text in texts] == source_BS.tolist()
    target_BT = source_BS[:, :40]
    mask_TT = theirs.generate_square_subsequent_mask(40).double()
    with torch.no_grad():
        found, expected = loaded.model(source_BS, target_BT), theirs(source_BS, target_BT, tgt_mask=mask_TT)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.long
def test_the_stress_marks_of_its_program_come_out(stresses: Path) -> None:
    texts = ["привет мир", "В лесу родилась ёлочка", "日本 <s>", *russian(5)]
    found = headway.load(stresses, "cpu").translate(texts)
    assert found[:2] == ["приве'т мир", "В лесу' родила'сь ёлочка"]  # as its README has them
    assert found == accentor()(texts)


if __name__ == "__main__":  # MODEL N: how many of N texts come out as in the package's own program
    asked = russian(int(sys.argv[2]))
    answers = zip(headway.load(sys.argv[1], "cpu").translate(asked), accentor()(asked, batch_size=32), strict=True)
    print(f"{sum(mine == theirs for mine, theirs in answers)} of {len(asked)} equal")
