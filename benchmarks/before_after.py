"""Speed of this tree beside an older one: training, decoding and beam search, call by call in turn.

Each tree has a process of its own with its own sources and its own benchmark scripts, so that every case is built as
that tree builds it; one of the two trees has a second process, a twin, which shows what is noise. A repeat calls each
case in each process in turn (the order changes from repeat to repeat), while the others wait.

A process keeps the memory that it got when it began, and with it a few percent of speed or slowness for its whole life:
the first one has the best. So there can be several rounds, each with new processes: the tree that begins first and the
tree that has the twin change from round to round. `ratios`: of each round, the older median divided by the newer; above
1 is faster. `ratio` is their geometric mean, `noise` the ratio of each round's twins.

    PYTHONPATH=src python benchmarks/before_after.py OTHER --device cuda --translator MODEL --source FILE
    PYTHONPATH=src python benchmarks/before_after.py OTHER --device cpu --rounds 4 gpt decoding

OTHER holds src/ and benchmarks/ of the older tree. Beam search needs a translator's folder and a file to translate.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

HERE = Path(__file__).resolve().parent
CASES = {
    "cuda": ["decoding 124M 1", "decoding 124M 64", "decoding 1.5B 1", "beam 512", "gpt", "training"],
    "cpu": ["training", "gpt", "decoding 124M 1", "beam 64"],
}
# Of a case that is short.
CALLS = {"cuda": {"training": 10, "gpt": 5, "beam 512": 3, "decoding 124M 1": 2}, "cpu": {"gpt": 3}}
Work = Callable[[], Any]


def built(case: str, device: str, given: dict[str, Any]) -> Work:
    """A case by the benchmark scripts of the tree whose `benchmarks/` comes first in sys.path."""
    import torch

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    name, *numbers = case.split()
    if name == "training":
        import training

        shape = training.CASES[device]
        config, vocabulary = training.SIZES[shape["size"]], shape["vocabulary"]
        size = (shape["rows"], shape["length"])
        data = [torch.randint(4, vocabulary - 1, size, device=device) for _ in range(3)]
        how = "eager" if device == "cpu" else "compile+graphs"
        work: Work = training.headway(config, vocabulary, data, device, how)
    elif name == "gpt":
        import gpt
        import nanogpt

        model_size = "124M" if device == "cuda" else next(iter(gpt.CASES["cpu"]))
        *_, length, rows = gpt.CASES[device][model_size]
        ids = torch.randint(0, nanogpt.VOCABULARY, (rows, length), device=device)
        [build] = gpt.contestants(
            None, model_size, device, ["compile+graphs" if device == "cuda" else "plain"]
        ).values()
        step = build()
        labels = ids.clone()  # another tensor: code that was compiled for one would be compiled again in a capture
        work = lambda: step(ids, labels)  # noqa: E731
    elif name == "decoding":
        import decoding

        dtype, new = ("bfloat16", 256) if device == "cuda" else ("float32", 48)
        model = decoding.model_of(numbers[0], dtype, device)
        if device == "cpu":
            laid_out(model, "one")
        texts = decoding.prompts(int(numbers[1]))
        work = decoding.headway(model, texts, new, "graphs" if device == "cuda" else "plain")
    else:
        work = beam(device, int(numbers[0]), given)
    return work


def laid_out(model: Any, rows: str) -> None:
    """As the tree's `load` lays out the weights of a model that steps with so many rows: one, or many."""
    try:
        from headway.nn.weights import lay_out
    except ImportError:
        from headway.nn.layout import inputs_first  # type: ignore[import-not-found]

        if rows == "one":  # the older tree did that with language models alone
            inputs_first(model)
        return
    lay_out(model, rows)


def beam(device: str, batch: int, given: dict[str, Any]) -> Work:
    import torch
    from safetensors.torch import load_file

    from headway.generate.offline import search_all
    from headway.generate.search import Search
    from headway.generate.stepper import stepper_for
    from headway.models.transformer import Transformer, TransformerConfig
    from headway.plain import from_plain

    config = from_plain(TransformerConfig, given["config"])
    model = Transformer(config, *given["sizes"])
    model.load_state_dict(load_file(given["weights"]), strict=False)  # tied weights are in it once
    place = torch.device(device)
    model.to(place, torch.bfloat16 if device == "cuda" else torch.float32).eval()
    if device == "cpu":
        laid_out(model, "many")
    stepper = stepper_for(model, place)
    search = Search(**given["search"])
    return lambda: search_all(
        model, given["sources"], search, limit=config.max_length, device=place, stepper=stepper, batch=batch
    )


def serve(device: str, given: dict[str, Any]) -> None:
    """Build the case that a line names, call it twice; then time so many calls for each line with a number."""
    from measure import seconds

    work: Work = lambda: None  # noqa: E731
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word.isdigit():
            found = seconds(lambda: [work() for _ in range(int(word))], device)  # noqa: B023
        else:
            work = lambda: None  # noqa: E731
            gc.collect()  # nothing of the last case may be freed while the next one is captured
            work, found = built(word, device, given), 0.0
            work(), work()
        print(found, flush=True)


class Tree:
    def __init__(self, root: Path, device: str, given: dict[str, Any]) -> None:
        # the tree's own sources and scripts come before those of this file
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root / "benchmarks")])}
        code = f"import sys; sys.path[:0] = {[str(root / 'benchmarks')]!r}; sys.path.append({str(HERE)!r})"
        code += f"; import json, before_after as b; b.serve({device!r}, json.loads(sys.argv[1]))"
        command = [sys.executable, "-c", code, json.dumps(given)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )  # fmt: skip
        self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        while line and line != "ready\n" and not line.strip().replace(".", "").replace("e-", "").isdigit():
            line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a tree's process has ended: its error is above")
        return line.strip()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def __call__(self, word: str) -> float:
        """Seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return float(self._answer())


def translator(folder: str, source: str) -> dict[str, Any]:
    """What both trees need of a translator: numbers, and the sentences as ids."""
    from headway.data.readers import lines
    from headway.plain import to_plain
    from headway.tasks.loading import load
    from headway.text.tokenizer import END

    found = load(folder, "cpu")
    written = json.loads((Path(folder) / "headway.json").read_text(encoding="utf-8"))["config"]  # as both trees read it
    return {
        "config": written, "sizes": list(found.card.sizes), "search": to_plain(found.search),
        "weights": str((Path(folder) / "model.safetensors").resolve()),
        "sources": [[*ids, END] for ids in found.source_tokenizer.encode_batch(list(lines(source)))],
    }  # fmt: skip


def main() -> None:
    from measure import arguments, write

    parser = arguments(__doc__)
    parser.add_argument("other", help="folder with src/ and benchmarks/ of the older tree")
    parser.add_argument("cases", nargs="*", help="only these, by the first word; they have a record of their own")
    parser.add_argument("--translator", help="a translator's folder, for beam search")
    parser.add_argument("--source", help="what it translates")
    parser.add_argument("--rounds", type=int, default=1, help="each with new processes; even, so that both begin alike")
    options = parser.parse_args()
    device, repeats = options.device, options.repeats or 9
    given = translator(options.translator, options.source) if options.translator else {}
    roots = {"before": Path(options.other).resolve(), "after": HERE.parent}
    cases = [case for case in CASES[device] if not options.cases or case.split()[0] in options.cases]
    cases = [case for case in cases if given or not case.startswith("beam")]
    found: dict[str, list[Times]] = {case: [] for case in cases}
    for number in range(options.rounds):
        first, second = sorted(roots, reverse=number % 2 == 0)
        trees = {name: Tree(roots[name.split()[0]], device, given) for name in (first, second, f"{first} twin")}
        for case in cases:
            start = time.perf_counter()
            found[case].append(timed(trees, case, CALLS[device].get(case, 1), repeats))
            print(number + 1, row(case, device, found[case]), f"{time.perf_counter() - start:.0f} s", flush=True)
        for tree in trees.values():
            tree.end()
        rows = [row(case, device, rounds) for case, rounds in found.items()]
        write(
            "-".join(["before-after", device, *options.cases]),
            device,
            rows,
            options.out,
            repeats=repeats,
            rounds=number + 1,
        )


Times = dict[str, list[float]]  # by process: before, after, and the twin of one of them


def timed(trees: dict[str, Tree], case: str, calls: int, repeats: int) -> Times:
    """Seconds of so many calls, repeat by repeat."""
    for tree in trees.values():  # one after the other: a compiler that times kernels must be alone
        tree(case)
    times: Times = {name: [] for name in trees}
    for repeat in range(repeats):
        for name in sorted(trees, reverse=bool(repeat % 2)):
            times[name].append(trees[name](str(calls)))
    return times


def row(case: str, device: str, rounds: list[Times]) -> dict[str, Any]:
    from measure import median

    def of(tree: str, chosen: list[Times]) -> list[float]:
        return [value for times in chosen for name in times if name.split()[0] == tree for value in times[name]]

    before, after = of("before", rounds), of("after", rounds)
    ratios = [median(of("before", [one])) / median(of("after", [one])) for one in rounds]
    twins = [(times[name], times[name.split()[0]]) for times in rounds for name in times if name.endswith("twin")]
    return {
        "case": case, "calls": CALLS[device].get(case, 1),
        "milliseconds_before": round(1e3 * median(before), 3), "milliseconds_after": round(1e3 * median(after), 3),
        "ratio": round(geometric_mean(ratios), 3), "ratio_of_the_fastest": round(min(before) / min(after), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "noise": [round(median(one) / median(other), 3) for one, other in twins],
    }  # fmt: skip


if __name__ == "__main__":
    main()
