"""Summaries from nothing, AESLC's subject lines and SciTLDR's sentences, beside simple answers from the text itself.

A row a data set and way, ROUGE-1, -2 and -L of the test texts: AESLC's beside the subject that the e-mail had,
SciTLDR's beside the best of several sentences. `transformer`: the recipe; `without copying`: with a plain head;
`first words`: as many as suit the validation data; `first sentence`; `central sentence`: the one that shares most words
with the others. Several seeds of each model.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/summaries.py --device cuda --seeds 3 --parallel 6
"""

from __future__ import annotations

from measure import arguments, write

# isort: split
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from scores import trained
from side_by_side import grouped, mean, side_by_side, training_options

from headway.data.catalog import find
from headway.data.summaries import Summary, read_summaries
from headway.evaluate.rouge import Rouge, words_of
from headway.recipes import RECIPES

DATA = ("aeslc", "scitldr")
WAYS = {"transformer": (), "without copying": ("model.copying=false", "objective=cross-entropy")}
PUBLISHED = {"aeslc": [23.7, 10.3, 23.4]}  # Zhang and Tetreault 2019, the data set's own model
FIGURES = ("ROUGE-1", "ROUGE-2", "ROUGE-L")
SENTENCE = re.compile(r"(?<=[.!?]) +")
MOST = 40  # words of a beginning

Answer = Callable[[str], str]


class Job(NamedTuple):
    data: str
    way: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}-{self.way.replace(' ', '-')}-seed-{self.seed}"


def texts(name: str, part: str) -> list[Summary]:
    data = RECIPES[name].make().data
    found = read_summaries([find(file) for file in getattr(data, part)], data.source, data.target)
    return [one._replace(summaries=one.summaries[: data.judged or None]) for one in found]


def beginning(count: int) -> Answer:
    return lambda text: " ".join(text.split()[:count])


def first_sentence(text: str) -> str:
    return SENTENCE.split(text, maxsplit=1)[0]


def central_sentence(text: str) -> str:
    """The sentence whose words are, on average, in most of the others."""
    sentences = SENTENCE.split(text)
    words = [set(words_of(sentence)) for sentence in sentences]
    counts = Counter(word for some in words for word in some)
    shared = [sum(counts[word] - 1 for word in some) / max(1, len(some)) for some in words]
    return sentences[shared.index(max(shared))]


def scored(answer: Answer, values: Sequence[Summary]) -> Rouge:
    return Rouge.of([answer(one.text) for one in values], [one.summaries for one in values])


def simple(name: str) -> Iterator[dict[str, Any]]:
    valid, test = texts(name, "valid"), texts(name, "test")
    found = {count: scored(beginning(count), valid).longest for count in range(1, MOST + 1)}
    best = max(found, key=lambda count: found[count])
    ways = {f"first {best} words": beginning(best), "first sentence": first_sentence}
    for way, answer in (ways | {"central sentence": central_sentence}).items():
        figures = scored(answer, test).figures()
        yield {"data": name, "way": way} | {key: round(value, 2) for key, value in figures.items()}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options = training_options(parser, "summaries")
    jobs = [Job(data, way, seed) for data in options.data for way in options.ways
            for seed in range(1, options.seeds + 1)]  # fmt: skip

    def score(job: Job) -> dict[str, Any]:
        settings = (f"engine.seed={job.seed}", f"engine.device={options.device}", *WAYS[job.way], *options.settings)
        return trained(job.data, job.name, options.runs, settings)

    rows: list[dict[str, Any]] = []
    found = grouped(side_by_side(score, jobs, options.parallel))
    for data in options.data:
        for way in options.ways:
            own = list(found[data, way].values())
            figures = {name: mean((one[f"test {name}"] for one in own), 2) for name in FIGURES}
            each = [round(one["test ROUGE-L"], 2) for one in own]
            more = {"each ROUGE-L": each, "seconds_each": mean((one["training seconds"] for one in own), 1)}
            rows.append({"data": data, "way": way} | figures | more | {"published": PUBLISHED.get(data)})
        rows += simple(data)
    case = {"seeds": options.seeds, "at_a_time": min(options.parallel, len(jobs))}
    write(f"summaries-{options.device}", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()
