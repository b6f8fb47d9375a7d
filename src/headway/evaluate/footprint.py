"""Energy, CO₂ and price of a run, from its seconds and what is stated of the machine.

    kWh = PUE · devices · W · hours / 1000,    kg = kWh · carbon intensity,    price = devices · hours · price an hour

The lecture's two tables (C, "Open-source", after Strubell et al. 2019) are here as data, with the rates that they were
computed with and the figures in them that cannot be right.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from headway.errors import InputError

POUND = 0.45359237  # kg
PUE = 1.58  # of the table: energy of the whole hall for each kWh of its machines
POUNDS_PER_KWH = 0.954  # of the table

# CO₂ in pounds (C's first table).
COMPARISONS = {
    "flight of one passenger, New York and San Francisco": 1_984,
    "human life, a year": 11_023,
    "American life, a year": 36_156,
    "car with its fuel, a lifetime": 126_000,
}
TRAININGS = {
    "NLP pipeline (parsing, SRL)": 39,
    "NLP pipeline with tuning and experiments": 78_468,
    "Transformer (big)": 192,
    "Transformer with neural architecture search": 626_155,
}


@dataclass(frozen=True)
class Footprint:
    """watts: of one device. pue: energy of the whole hall for each kWh of its machines. carbon: kg of CO₂ for each kWh.
    price: of one device for an hour. What is not stated gives no figure."""

    seconds: float
    devices: int = 1
    watts: float | None = None
    pue: float = 1.0
    carbon: float | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("devices", 1), ("pue", 1), ("seconds", 0), ("watts", 0), ("carbon", 0), ("price", 0)):
            value = getattr(self, name)
            if value is not None and not least <= value < float("inf"):
                raise InputError(f"--{name} must be a number of at least {least}, not {value}")

    @property
    def device_hours(self) -> float:
        return self.devices * self.seconds / 3600

    @property
    def kwh(self) -> float | None:
        return None if self.watts is None else self.pue * self.device_hours * self.watts / 1000

    @property
    def kg(self) -> float | None:
        return None if self.kwh is None or self.carbon is None else self.kwh * self.carbon

    @property
    def pounds(self) -> float | None:
        return None if self.kg is None else self.kg / POUND

    @property
    def cost(self) -> float | None:
        return None if self.price is None else self.device_hours * self.price

    def shares(self) -> dict[str, float]:
        """Its CO₂ in flights, years of life and cars."""
        return {} if self.kg is None else {name: self.kg / (lbs * POUND) for name, lbs in COMPARISONS.items()}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"kwh": self.kwh, "kg": self.kg, "cost": self.cost, "shares": self.shares()}


@dataclass(frozen=True)
class Published:
    """A row of C's second table as printed: watts of all devices together, hours, kWh with PUE, pounds of CO₂, and the
    price from spare to reserved machines."""

    model: str
    chip: str
    devices: int
    watts: float | None
    hours: float
    kwh: int | None
    pounds: int | None
    cost: tuple[int, int]

    def footprint(self, rate: int = 0) -> Footprint:
        """The row worked out again, at the low (0) or the high (1) price of its chip."""
        watts = None if self.watts is None else self.watts / self.devices
        carbon, price = POUNDS_PER_KWH * POUND, PRICES[self.chip][rate]
        return Footprint(self.hours * 3600, self.devices, watts, PUE, carbon, price)


# Dollars an hour of one device: what the prices of the table's other rows come to, divided by their hours.
PRICES = {"P100": (0.43, 1.46), "V100": (0.74, 2.48), "TPUv2": (1.35, 4.5), "TPUv3": (2.4, 8.0)}
PUBLISHED = (
    Published("Transformer base", "P100", 8, 1415.78, 12, 27, 26, (41, 140)),
    Published("Transformer big", "P100", 8, 1515.43, 84, 201, 192, (289, 981)),
    Published("ELMo", "P100", 3, 517.66, 336, 275, 262, (433, 1472)),
    Published("BERT base", "V100", 64, 12041.51, 79, 1507, 1438, (3751, 12571)),
    Published("BERT base on TPUs", "TPUv2", 16, None, 96, None, None, (2074, 6912)),
    Published("NAS", "P100", 8, 1515.43, 274_120, 656_347, 626_155, (942_973, 3_201_722)),
    Published("NAS on a TPU", "TPUv2", 1, None, 32_623, None, None, (44_055, 146_048)),
    Published("GPT-2", "TPUv3", 32, None, 168, None, None, (12_902, 43_008)),
)


@dataclass(frozen=True)
class Erratum:
    """A printed figure that cannot be right (or was rounded: `rounded`), what it must be, and why."""

    model: str
    column: str
    printed: float
    right: float
    why: str
    rounded: bool = False


ERRATA = (
    Erratum("NAS on a TPU", "hours", 32_623, 32_633, "$44,055 at the $1.35 of the other TPUv2 row are 32,633 hours"),
    Erratum("NAS on a TPU", "high price", 146_048, 146_848,
            "32,633 hours at the $4.50 of the other TPUv2 row; $146,048 would be 32,455 hours"),
    Erratum("BERT base", "hours", 79, 79.2, "3.3 days: energy, CO₂ and both prices come out with 79.2", rounded=True),
)  # fmt: skip


def corrected(row: Published) -> Published:
    """The row with the corrections of `ERRATA`."""
    for found in ERRATA:
        if found.model == row.model and found.column == "hours":
            row = replace(row, hours=found.right)
        elif found.model == row.model:
            row = replace(row, cost=(row.cost[0], int(found.right)))
    return row


def disagreements(row: Published) -> list[str]:
    """The columns that do not follow from its hours, watts and rates, to the unit that they are printed in."""
    low, high = row.footprint(), row.footprint(rate=1)
    pairs = (
        ("kWh", row.kwh, low.kwh),
        ("CO₂", row.pounds, low.pounds),
        ("low price", row.cost[0], low.cost),
        ("high price", row.cost[1], high.cost),
    )
    return [name for name, printed, worked in pairs if printed and worked and abs(printed - worked) > 1]
