"""headway verify"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headway.cli.options import argument
from headway.errors import InputError, refuse


def verify(folder: str = argument("FOLDER", "A model's folder, or a run's.")) -> None:
    """Compare every file of a model, and the vocabulary and checkpoints of a run, with their checksums."""
    place = Path(folder)
    refuse(not place.is_dir(), f"there is no folder {folder}")
    found, wrong = 0, []
    for name, files, fault in _checked(place):
        found += 1
        if fault:
            wrong.append(fault if name in fault else f"{name}: {fault}")
        else:
            print(f"{name}: {f'{files} files as they were written' if files else 'no checksums to compare with'}")
    refuse(not found, f"{folder} holds no model and no run: there is nothing to compare")
    if wrong:
        more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise InputError(f"{wrong[0]}{more}")


def _checked(place: Path) -> Iterator[tuple[str, int, str]]:
    """Each part of the folder: its name, how many files were compared, and what is wrong."""
    from headway import checksums
    from headway.train.sealed import Broken
    from headway.train.sealed import verify as verify_sealed

    for part in (place, place / "model", place / "data"):
        if (part / "headway.json").exists() or (part / checksums.NAME).exists():
            try:
                yield str(part), checksums.verify(part, large=True), ""
            except InputError as error:
                yield str(part), 0, str(error)
    for sealed in sorted((*place.glob("checkpoints/step-*"), *place.glob("snapshots/step-*"))):
        try:
            verify_sealed(sealed)
            yield str(sealed), sum(1 for _ in sealed.iterdir()), ""
        except (Broken, InputError) as error:
            yield str(sealed), 0, str(error)
