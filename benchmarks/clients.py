"""Other programs ask the server: lm-eval's `local-completions`, beside `headway score`; guidellm, which puts it under
load; and schemathesis, which draws requests from the server's own OpenAPI file.

    PYTHONPATH=src python benchmarks/clients.py MODEL TEXT --python PYTHON

MODEL: a language model. TEXT: a file whose lines are scored, by a task of lm-eval that is written for it: no download.
PYTHON: an interpreter that has lm_eval[api], transformers, guidellm and schemathesis (this one, if it has them). The
rows: by how much the log-probability of a line differs at most, and bits a byte by both; what guidellm reports; how
many requests schemathesis drew, and what it found. One of its checks is left out, that every request which fits the
description is accepted: a prompt may be too long for the model, which no description says; and the server has one
model, which is not asked for translations.
"""

from __future__ import annotations

from measure import arguments, versions, write

# isort: split
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway.data.readers import lines
from headway.tasks.loading import load

TASK = """task: own_lines
dataset_path: json
dataset_kwargs: {{data_files: {file}}}
test_split: train
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: bits_per_byte
metadata: {{version: 1}}
"""
LEFT_OUT = "unsupported_method,positive_data_acceptance"
GUIDELLM = {"p50_ttft_ms": "time_to_first_token_ms", "p50_itl_ms": "inter_token_latency_ms"}
LONGEST = 64  # tokens of an answer of which a drawn request says no length
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


def headway(*words: object) -> list[str]:
    return [sys.executable, "-m", "headway", *map(str, words)]


@contextmanager
def served(model: Path, port: int) -> Iterator[str]:
    command = headway("serve", model, "--port", port, "--max-tokens", LONGEST)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(120):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                    break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def model_of(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}/v1/models") as answer:
        found: dict[str, Any] = json.loads(answer.read())["data"][0]
    return found


def outside() -> dict[str, str]:
    """The surroundings of another program, which loads nothing."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | OFFLINE


def by_guidellm(python: str, address: str, place: Path, clients: int, requests: int) -> dict[str, Any]:
    """What it reports of requests of 64 tokens in and 32 out, by so many clients at a time."""
    told = place / "guidellm.json"
    backend = f"kind=openai_http,target={address},request_format=/v1/completions,model={model_of(address)['id']}"
    words = ["run", "--backend", backend, "--profile", f"kind=concurrent,streams={clients}"]
    words += ["--constraint", f"kind=max_requests,count={requests}", "--disable-console"]
    words += ["--tokenizer", f"kind=huggingface_auto,model={place / 'hf'}", "--output", f"kind=json,path={told}"]
    words += ["--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=32"]
    command = str(Path(python).parent / "guidellm")
    subprocess.run([command, *words], check=True, env=outside(), stdout=subprocess.DEVNULL)
    [benchmark] = json.loads(told.read_text())["benchmarks"]
    metrics = benchmark["metrics"]
    medians = {name: metrics[key]["successful"]["median"] for name, key in GUIDELLM.items()}
    total = metrics["request_totals"]
    return {
        "who": "guidellm", "clients": clients, "requests": total["total"], "answered": total["successful"],
        "output_throughput": round(metrics["output_tokens_per_second"]["successful"]["mean"], 1),
        **{name: round(value, 2) for name, value in medians.items()},
    }  # fmt: skip


def by_lm_eval(python: str, address: str, texts: list[str], place: Path, before: int) -> list[float]:
    """The log-probability of each text behind a token that stands before it, as `headway score` has it."""
    (place / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    (place / "tasks").mkdir()
    (place / "tasks" / "own.yaml").write_text(TASK.format(file=place / "texts.jsonl"), encoding="utf-8")
    served_model = model_of(address)
    how = {"model": served_model["id"], "base_url": f"{address}/v1/completions", "tokenizer": place / "hf"}
    how |= {"tokenizer_backend": "huggingface", "num_concurrent": 4, "max_length": served_model["max_model_len"]}
    how |= {"custom_prefix_token_id": before}
    settings = ",".join(f"{name}={value}" for name, value in how.items())
    words = ["--model", "local-completions", "--model_args", settings, "--tasks", "own_lines"]
    words += ["--include_path", str(place / "tasks"), "--log_samples", "--output_path", str(place / "out")]
    subprocess.run([python, "-m", "lm_eval", *words], check=True, env=outside(), stdout=subprocess.DEVNULL)
    [samples] = (place / "out").rglob("samples_own_lines*.jsonl")
    rows = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    found = {row["doc"]["text"]: float(row["filtered_resps"][0]) for row in rows}
    return [found[text] for text in texts]


def by_headway(model: Path, texts: list[str]) -> list[float]:
    command = headway("score", model, "--json", "--device", "cpu")
    done = subprocess.run(command, input="\n".join(texts) + "\n", capture_output=True, text=True, check=True)
    return [json.loads(line)["log_probability"] for line in done.stdout.splitlines()]


def drawn_requests(python: str, address: str, place: Path, examples: int) -> dict[str, Any]:
    words = ["run", f"{address}/openapi.json", "--max-examples", str(examples), "--workers", "1"]
    words += ["--checks", "all", "--exclude-checks", LEFT_OUT, "--request-timeout", "120"]
    command = [python, "-m", "schemathesis.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=outside(), cwd=place)  # it leaves notes there
    told = done.stdout
    counted = re.search(r"([\d,]+) generated", told)
    kinds = re.findall(r"❌ (.*): (\d+)|🚫 (.*): (\d+)", told)
    found = {name or other: int(count or more) for name, count, other, more in kinds}
    generated = int(counted.group(1).replace(",", "")) if counted else 0
    return {"who": "schemathesis", "requests": generated, "faults": found, "status": done.returncode}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has the programs")
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--examples", type=int, default=60, help="requests that schemathesis draws of each kind")
    parser.add_argument("--clients", type=int, default=8, help="at a time, of guidellm")
    parser.add_argument("--requests", type=int, default=64, help="of guidellm")
    parser.add_argument("--port", type=int, default=8123)
    options = parser.parse_args()
    options.python = os.path.abspath(shutil.which(options.python) or options.python)
    texts = [line.strip() for line in lines(options.text) if 80 < len(line.strip()) < 400][: options.lines]
    with tempfile.TemporaryDirectory() as place, served(options.model, options.port) as address:
        export = headway("export", options.model, Path(place, "hf"), "--format", "hf")
        subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
        before = load(options.model, "cpu").ids("")[-1]
        theirs = by_lm_eval(options.python, address, texts, Path(place), before)
        rows = [by_guidellm(options.python, address, Path(place), options.clients, options.requests)]
        rows += [drawn_requests(options.python, address, Path(place), options.examples)]
    mine = by_headway(options.model, texts)
    bits = sum(len(text.encode()) for text in texts) * math.log(2)
    apart = max(abs(one - other) for one, other in zip(mine, theirs, strict=True))
    per_byte = {name: round(-sum(found) / bits, 6) for name, found in (("lm-eval", theirs), ("headway score", mine))}
    rows.insert(0, {"who": "lm-eval", "texts": len(texts), "largest_difference": apart, "bits_per_byte": per_byte})
    case = versions(options.python, ("lm_eval", "guidellm", "schemathesis"))
    write("clients", options.device, rows, options.out, case=case)


if __name__ == "__main__":
    main()
