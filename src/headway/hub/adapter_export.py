"""A model that was trained with adapters, as an adapter of the model that it started from, in peft's format.

What was added to a linear map has a low rank: its singular vectors give B and A again, of (α/r)·BA, with α = r. Weights
that changed otherwise, such as a head's, are kept whole.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from headway.atomic import replaced_folder
from headway.errors import InputError, refuse
from headway.folder import read_model
from headway.hub.adapter import FILE, PREFIX
from headway.hub.checkpoint import ADAPTER
from headway.hub.hf_export import held
from headway.hub.hf_folder import write_json

TURNED = ".c_"  # GPT-2's maps in transformers, which have a row an input
LEFT = 1e-4  # of the largest singular value: below it is what rounding to float32 leaves


def export_adapter(model: str | Path, folder: str | Path) -> str:
    """Write the adapter; returns what there is to say of it."""
    loaded = read_model(model)
    engine, base = loaded.card.run.get("engine", {}), loaded.card.run.get("init", "")
    adapters = engine.get("adapters")
    refuse(not adapters or not base, f"{model} was not trained with adapters (--init, engine.adapters=lora)")
    rank = int(adapters["rank"])
    (_, _, tuned), (_, _, before) = held(loaded), held(read_model(base))
    # The base's file leaves out the first part of a name where the base has no head.
    shown = {name: name if name in before else name.partition(".")[2] for name in tuned}
    matrices: dict[str, Tensor] = {}
    whole: dict[str, Tensor] = {}
    changed = {name for name in tuned if shown[name] in before and not torch.equal(tuned[name], before[shown[name]])}
    # An adapter adds to matrices alone: a part whose vectors changed, such as a pooler, was trained whole.
    trained = {name.rpartition(".")[0] for name in changed if tuned[name].ndim < 2}
    for name, weight in tuned.items():
        if shown[name] not in before or name.rpartition(".")[0] in trained:
            whole[f"{PREFIX}{name}"] = weight
        elif name in changed:
            added = weight - before[shown[name]]
            parts = factored(added.mT if TURNED in name else added, rank, name)
            module = f"{PREFIX}{name.removesuffix('.weight')}"
            matrices |= {f"{module}.lora_{part}.weight": matrix for part, matrix in parts.items()}
    saved = sorted({name.removeprefix(PREFIX).rpartition(".")[0] for name in whole})
    targets = _targets({name.removeprefix(PREFIX).rpartition(".lora_")[0] for name in matrices}, saved)
    facts = {
        "peft_type": "LORA", "r": rank, "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none",
        "target_modules": targets, "modules_to_save": saved or None, "base_model_name_or_path": str(base),
        "fan_in_fan_out": any(TURNED in name for name in matrices), "inference_mode": True,
    }  # fmt: skip
    with replaced_folder(Path(folder)) as place:
        save_file(matrices | whole, place / f"{FILE}.safetensors", metadata={"format": "pt"})
        write_json(place / ADAPTER, facts)
    on = dict.fromkeys(target.rpartition(".")[2] for target in targets)
    return f"rank {rank}, on {', '.join(on)}; its base is {base}"


def _targets(modules: set[str], saved: list[str]) -> list[str]:
    """The last parts of the names of modules; the whole name where a module that is saved ends in the same."""
    taken = {name.rpartition(".")[2] for name in saved}
    return sorted({name if (last := name.rpartition(".")[2]) in taken else last for name in modules})


def factored(added: Tensor, rank: int, name: str) -> dict[str, Tensor]:
    """A and B of rank `rank` with BA = `added`."""
    left, values, right = torch.linalg.svd(added.double(), full_matrices=False)
    if values[rank:].numel() and values[rank] > LEFT * values[0]:
        raise InputError(f"'{name}' has changed by more than an adapter of rank {rank}: --format hf writes it whole")
    root = values[:rank].sqrt()
    return {
        "A": (root[:, None] * right[:rank]).float().contiguous(),
        "B": (left[:, :rank] * root).float().contiguous(),
    }
