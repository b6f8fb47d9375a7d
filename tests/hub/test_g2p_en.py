"""The spelling-to-sound model of the package g2p-en: a tiny random one against torch.nn, the real one against its own
program."""

import ast
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from checkpoints import place
from torch import nn

import headway
from headway.cli.app import main
from headway.errors import InputError
from headway.hub.families.g2p_en import LETTERS, PHONEMES, import_g2p

EMBEDDING, WIDTH = 4, 8
WORDS = ["hello", "a", "zzzzzzzz", "naïve", "don't", "headway"]


def arrays():
    random = np.random.default_rng(0)
    shapes = {"enc_emb": (29, EMBEDDING), "dec_emb": (74, EMBEDDING), "fc_w": (74, WIDTH), "fc_b": (74,)}
    for side in ("enc", "dec"):
        shapes |= {f"{side}_w_ih": (24, EMBEDDING), f"{side}_w_hh": (24, WIDTH)}
        shapes |= {f"{side}_b_ih": (24,), f"{side}_b_hh": (24,)}
    return {name: 2 * random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def cell(found, side):
    made = nn.GRUCell(EMBEDDING, WIDTH)
    parts = ("w_ih", "w_hh", "b_ih", "b_hh")
    for weight, part in zip((made.weight_ih, made.weight_hh, made.bias_ih, made.bias_hh), parts, strict=True):
        weight.data = torch.from_numpy(found[f"{side}_{part}"])
    return made


@torch.no_grad()
def greedy(found, word):
    """By torch's cells, with the package's ids."""
    h = torch.zeros(1, WIDTH)
    for letter in [*(LETTERS.find(letter) + 3 if letter in LETTERS else 1 for letter in word), 2]:
        h = cell(found, "enc")(torch.from_numpy(found["enc_emb"][[letter]]), h)
    written, last = [], 2
    while len(written) < 20:
        h = cell(found, "dec")(torch.from_numpy(found["dec_emb"][[last]]), h)
        last = int((h @ torch.from_numpy(found["fc_w"]).T + torch.from_numpy(found["fc_b"])).argmax())
        if last == 3:
            break
        written.append(last)
    spelled = ["<pad>", "<unk>", "<s>", "</s>", *PHONEMES]
    return [spelled[i] for i in written if i not in (0, 2)]  # which headway shows nowhere


def test_a_tiny_one_writes_what_torchs_cells_write(tmp_path):
    np.savez(tmp_path / "tiny.npz", **arrays())
    import_g2p(tmp_path / "tiny.npz", tmp_path / "model")
    found = headway.load(tmp_path / "model", "cpu").translate(WORDS)
    expected = [greedy(arrays(), word) for word in WORDS]
    assert [line.split() for line in found] == expected
    assert len({tuple(line) for line in expected}) > 3  # they differ


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc_w": None}, "has no array 'fc_w': expected checkpoint20.npz"),
        ({"dec_w_hh": np.zeros((3, 3), np.float32)}, r"'dec_w_hh' has the shape \(3, 3\), expected \(24, 8\)"),
        ({"enc_emb": np.zeros(3, np.float32)}, "'enc_emb' has the shape"),
        ({"enc_emb": np.zeros((29, 4), np.int64)}, "'enc_emb' holds int64, expected float32"),
    ],
)
def test_another_file_is_refused(tmp_path, change, message):
    found = {name: array for name, array in (arrays() | change).items() if array is not None}
    np.savez(tmp_path / "other.npz", **found)
    with pytest.raises(InputError, match=message):
        import_g2p(tmp_path / "other.npz", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_damaged_file_is_one_line(tmp_path, capsys):
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 no more")
    with pytest.raises(SystemExit) as left:
        main(["import", str(tmp_path / "cut.npz"), str(tmp_path / "model")])
    told = capsys.readouterr().err.strip()
    assert left.value.code == 2 and "is no whole .npz" in told and "\n" not in told


def package_model():
    """The package's own class with its weights, without the dictionaries that it fetches."""
    source = place("g2p_en/g2p.py").read_text(encoding="utf-8").replace(r"\-", "-")
    [whole] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    names = {"np": np, "os": os, "dirname": str(place("g2p_en")), "construct_homograph_dictionary": dict}
    names["cmudict"] = SimpleNamespace(dict=dict)
    exec(compile(ast.Module([whole], []), "g2p.py", "exec"), names)
    return names["G2p"]()


def test_the_real_one_writes_its_own_phonemes(tmp_path, capsys):
    theirs = package_model()
    assert theirs.phonemes[4:] == PHONEMES
    with pytest.raises(SystemExit):
        main(["import", str(place("g2p_en/checkpoint20.npz")), str(tmp_path / "model")])
    words = [*WORDS, "supercalifragilisticexpialidocious", "transformer", "attention", "zzzzzzzzzzzzzzzzzzz"]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["predict", str(tmp_path / "model"), "--text", *words, "--device", "cpu", "--json"])
    found = [json.loads(line)["translation"] for line in capsys.readouterr().out.splitlines()]
    assert [line.split() for line in found] == [theirs.predict(word) for word in words]
