"""Remake every record that this machine can remake, in pieces of at most ten minutes.

    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/all.py --device cpu
    HEADWAY_DATA=data PYTHONPATH=src python benchmarks/all.py --device cuda --minutes 9 --out results

A piece is one command of `benchmarks/`, which writes its records by itself. The same call goes on where it was stopped:
`--runs` remembers which pieces are done, and trainings resume. With `--minutes` nothing is begun that would not be done
in time, and what runs over is stopped. What a piece lacks (data, a model, a package, a browser) is told, and it is left
out. `--only NAME...` takes some pieces, in this order, `--list` shows them all, `--again` forgets what was done. With
`--at-once N` pieces whose figures are no times share the machine, a GPU through CUDA's multi-process service where it
is installed; those that measure times follow, one by one.

Models that several pieces look at lie in `--models`: all-MiniLM-L6-v2 as `minilm`, and those that `scores` pieces have
trained, which are copied there, so that what a GPU has trained can be carried to where it is looked at.

Ends with 0 when everything is done or left out, with 75 when there is more to do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from side_by_side import shared_gpu

HERE = Path(__file__).parent
MORE = 75  # exit status: call again
SHORTEST = 60  # seconds that are worth a training's start


@dataclass(frozen=True)
class Piece:
    """A command of this folder. minutes: what it takes, about. needs: paths or packages, see `missing`. resumes: the
    same call resumes it where it was stopped. shares: others may run beside it, its figures are no times. ahead: its
    kernels go before those of the pieces beside it, as its trainings follow one another or are long."""

    name: str
    words: str
    minutes: float
    needs: tuple[str, ...] = ()
    resumes: bool = False
    shares: bool = False
    ahead: bool = False

    @property
    def beside(self) -> bool:
        return self.resumes or self.shares


def scores(
    name: str, recipes: str, minutes: float, needs: tuple[str, ...], more: str = "", ahead: bool = False
) -> Piece:
    return Piece(name, f"scores.py {recipes} --runs {{runs}}/scores {more}", minutes, needs, resumes=True, ahead=ahead)


M30K, PTB, SHAKESPEARE, NOVELS = "data:multi30k", "data:ptb", "data:tinyshakespeare", "data:novels"
BABI = "data:babi"
SOURCE, REFERENCE = (f"{{data}}/multi30k/tok/test_2016_flickr.lc.norm.tok.{language}.gz" for language in ("en", "de"))
ONWARD = "--worlds MiniGrid-MemoryS7-v0 MiniGrid-MemoryS13Random-v0 MiniGrid-MemoryS17Random-v0 --onward 300000"
FURTHEST = "--worlds MiniGrid-MemoryS17Random-v0"
MEMORIES = "--policies LSTM 'without memory'"
PIECES = {
    "cuda": [
        Piece("gpt", "gpt.py --ways compile+graphs --repeats 10", 4, ("file:.peers/nanogpt_model.py",)),
        Piece("decoding", "decoding.py --ways graphs --repeats 3", 4, ("transformers",)),
        scores("scores of three seeds", "multi30k-en-de multi30k-en-fr", 5, (M30K,), "--seeds 3 --parallel 6"),
        scores("scores", "ptb-lstm-tied ptb-awd-lstm ptb-lstm-medium tatoeba-en-fr tatoeba-en-de ptb-gpt ptb-mlp "
               "shakespeare-char multi30k-en-de-wide multi30k-en-de-cased multi30k-de-en multi30k-de-en-rnn", 9,
               (M30K, PTB, SHAKESPEARE, "data:tatoeba"), "--parallel 9"),
        scores("convolutions", "multi30k-de-en-conv", 6, (M30K,)),
        Piece("convolutional training", "conv_seq2seq.py", 4),
        Piece("text-cnn", "text_cnn.py --seeds 3 --parallel 8 --runs {runs}/text-cnn", 8,
              ("data:textcls", "data:sst2_glue"), resumes=True),
        Piece("tags of words", "tagging.py --init {models}/minilm --seeds 3 --parallel 6 --runs {runs}/tagging", 20,
              ("model:minilm", "data:conll2003", "data:conll2000", "data:ud_english_ewt"), resumes=True),
        Piece("transfer", "transfer.py {models}/minilm --seeds 3 --parallel 10 --runs {runs}/transfer", 9,
              ("model:minilm", "data:sst2_glue", "data:cola", "data:textcls"), resumes=True, ahead=True),
        Piece("classifiers", "classifiers.py --init {models}/minilm --seeds 3 --parallel 6 --runs {runs}/classifiers",
              9, ("model:minilm", "data:textcls", "sklearn"), resumes=True),
        scores("treebank", "ptb-mlp-direct ptb-lstm-small lab-01-language-model lab-02-translation", 9,
               (PTB, "data:tatoeba"), "--parallel 4"),
        scores("treebank, 2 × 1500", "ptb-lstm-large", 20, (PTB,), ahead=True),
        scores("AWD-LSTM as published", "ptb-awd-lstm-averaged", 60, (PTB,)),
        Piece("depth", "depth.py", 6, (SHAKESPEARE,), resumes=True),
        Piece("lengths", "lengths.py", 5, (SHAKESPEARE,), resumes=True),
        Piece("rates", "rates.py", 4, (SHAKESPEARE,), resumes=True),
        Piece("widths", "widths.py", 4, (SHAKESPEARE,), resumes=True),
        Piece("scaling", "scaling.py --runs {runs}/scaling", 9, resumes=True),
        Piece("layer times", "layer_times.py", 2),
        Piece("matrix", "matrix.py", 2),
        scores("recurrent translators", "multi30k-de-en-lstm multi30k-de-en-lstm-plain multi30k-de-en-lstm-dot "
               "multi30k-de-en-lstm-multiplicative multi30k-de-en-lstm-scaled-dot multi30k-en-de-rnn tatoeba-en-fr-rnn",
               9, (M30K, "data:tatoeba"), "--parallel 7"),
        scores("recurrent translators, word by word", "multi30k-de-en-lstm-before multi30k-de-en-lstm-feeding "
               "multi30k-de-en-cnn-lstm", 9, (M30K,), "--parallel 3"),
        Piece("road", "road.py --seeds 3 --tokens 8M --parallel 7 --runs {runs}/road --recipes "
              "multi30k-de-en-lstm-plain multi30k-de-en-lstm multi30k-de-en-lstm-dot "
              "multi30k-de-en-lstm-multiplicative multi30k-de-en-lstm-scaled-dot multi30k-de-en-conv multi30k-de-en",
              10, (M30K,), resumes=True),
        Piece("rnn-seq2seq", "rnn_seq2seq.py", 3),
        Piece("g2p", "g2p.py --parallel 10 --runs {runs}/g2p", 9, ("data:sigmorphon2020_g2p",), resumes=True),
        scores("labels", "conll2003-tagger fashion-mnist-vit", 1, ("data:conll2003", "data:fashion_mnist")),
        Piece("pre-training",
              "pretraining.py --parts words labels --seeds 3 --parallel 6 --runs {runs}/pretraining", 18,
              (NOVELS, "data:wikitext2", "data:sst2_glue", "data:cola"), resumes=True, ahead=True),
        Piece("pre-training, speed", "pretraining.py --parts speed", 4, ("transformers",)),
        Piece("senses", "senses.py MiniLM={models}/minilm BERT={runs}/pretraining/novels-bert "
              "tagger={runs}/tagging/conll2003-bilstm-crf-crf-seed-1 "
              "MiniLM-tagger={runs}/tagging/conll2003-minilm-crf-seed-1", 1,
              ("model:minilm", "trained:pretraining/novels-bert", "trained:tagging/conll2003-bilstm-crf-crf-seed-1",
               "trained:tagging/conll2003-minilm-crf-seed-1")),
        scores("novels", "novels-gpt", 4, (NOVELS,)),
        scores("French to English, to be looked at", "tatoeba-fr-en", 4, ("data:tatoeba",)),
        Piece("ladder", "ladder.py --seeds 3 --runs {runs}/ladder", 6, (NOVELS, PTB), resumes=True),
        Piece("training", "training.py", 3, ("transformers",)),
        Piece("pictures, speed", "vit.py", 3, ("transformers",)),
        Piece("speech, speed", "whisper.py", 4, ("transformers",)),
        scores("pictures, Fashion-MNIST", "fashion-mnist-cct", 4, ("data:fashion_mnist",)),
        scores("pictures, CIFAR-10", "cifar10-vit", 15, ("data:cifar10",), ahead=True),
        scores("pictures, CIFAR-10 with convolutions", "cifar10-cct", 20, ("data:cifar10",), ahead=True),
        Piece("long attention", "big_bird.py", 3, ("transformers",)),
        Piece("texts without end", "endless.py --parallel 3 --runs {runs}/endless", 3, (NOVELS,), resumes=True),
        Piece("molecules", "graphs.py --parts zinc tables folds --parallel 8 --runs {runs}/graphs", 20,
              ("data:graphs",), resumes=True),
        Piece("scenes", "scenes.py --parallel 3 --runs {runs}/scenes", 9, resumes=True),
        Piece("captions, Flickr8k", "flickr8k.py --source {data}/flickr8k --data {runs}/flickr8k-packed --parallel 2 "
              "--runs {runs}/flickr8k", 6, ("data:flickr8k",), resumes=True),
        Piece("people, Penn-Fudan", "pennfudan.py --source {data}/pennfudan --data {runs}/pennfudan-packed "
              "--parallel 5 --runs {runs}/pennfudan", 9, ("data:pennfudan",), resumes=True),
        Piece("spoken digits", "digits.py --seeds 3 --parallel 4 --runs {runs}/digits", 3,
              ("data:fsdd", "data:audiomnist"), resumes=True),
        scores("sequences of spoken digits", "fsdd-sequences", 4, ("data:fsdd",)),
        Piece("beam", f"beam.py {{models}}/multi30k-en-de {SOURCE}", 3, ("model:multi30k-en-de", "transformers")),
        Piece("growth", "growth.py --layers 4 --repeats 5 --lengths 256 1024 4096 16384 32768 "
              "--widths 256 512 1024 2048", 5, ("file:.peers/nanogpt_model.py",)),
        Piece("safety", "safety.py", 2),
        Piece("babi", "babi.py --parts tasks-1k joint-1k --again", 4, (BABI,), shares=True),
        Piece("babi, tasks of 10k", "babi.py --parts tasks-10k --again", 9, (BABI,), shares=True),
        Piece("babi, 10k jointly", "babi.py --parts joint-10k --again", 9, (BABI,), shares=True),
        Piece("spans", "spans.py {models}/minilm --seeds 3 --parallel 6 --runs {runs}/spans", 9,
              ("model:minilm", "data:squad"), resumes=True),
        Piece("summaries", "summaries.py --seeds 3 --parallel 6 --runs {runs}/summaries", 9,
              ("data:aeslc", "data:scitldr"), resumes=True),
        Piece("conversations and preferences", "tuning.py novels={models}/novels-gpt minimind={models}/minimind "
              "--judge {models}/minilm --parts train ask --parallel 3 --runs {runs}/tuning", 9,
              ("model:novels-gpt", "model:minimind", "model:minilm", "data:hh_rlhf", "data:ifeval"), True),
        Piece("serving", "serving.py --repeats 3", 8, ("transformers",)),
        Piece("tracing", "tracing.py --repeats 3", 2),
    ],
    "cpu": [
        scores("demo", "demo", 6, ()),
        scores("counting scores", "ptb-kn5 names-markov", 1, (PTB, "data:names")),
        scores("skip-gram", "novels-skip-gram", 3, (NOVELS,)),
        Piece("counting", "counting.py", 2, (PTB,)),
        Piece("ladder", "ladder.py --seeds 1 --runs {runs}/ladder", 25, (NOVELS, PTB), resumes=True),
        Piece("shakespeare", "shakespeare.py", 6, (SHAKESPEARE, "file:.peers/nanogpt_model.py")),
        Piece("training", "training.py", 3, ("transformers",)),
        Piece("decoding", "decoding.py --size 124M --batch 1 --new 48 --repeats 5", 6, ("transformers", "ctranslate2")),
        Piece("imported", "imported.py", 3, ("transformers",)),
        Piece("beam", f"beam.py {{models}}/multi30k-en-de {SOURCE}", 8, ("model:multi30k-en-de", "transformers")),
        Piece("server under load", "http_serving.py", 8),
        Piece("server under a service's load", "azure.py --shrink 8", 6, ("data:azure_llm_trace",)),
        Piece("servers beside one another", "servers.py", 15, ("transformers", "xllamacpp")),
        Piece("a thousand streams", "streams.py", 8),
        Piece("clients of the server", "clients.py {models}/novels-gpt {data}/multi30k/train.en.gz", 6,
              ("model:novels-gpt", M30K, "lm_eval", "guidellm", "schemathesis")),
        Piece("engines", f"engines.py {{models}}/multi30k-en-de {SOURCE} {REFERENCE} --repeats 1", 8,
              ("model:multi30k-en-de", "transformers", "ctranslate2")),
        Piece("loading", "loading.py --repeats 1", 6, ("transformers",)),
        Piece("verifying", "verifying.py --repeats 7", 3),
        Piece("recurrent", "recurrent.py", 4),
        Piece("convolutional training", "conv_seq2seq.py", 3),
        Piece("rnn-seq2seq", "rnn_seq2seq.py", 3),
        Piece("distance", "distance.py", 8),
        Piece("clipping", "clipping.py", 4, (SHAKESPEARE,), resumes=True),
        Piece("last words", "last_words.py --runs {runs}/last-words", 25, ("data:textcls",), resumes=True),
        Piece("decisions", "decisions.py --seeds 10 --parallel 2 --runs {runs}/decisions", 25, ("gymnasium",),
              resumes=True),
        Piece("memory of policies", "memory.py --parallel 2 --runs {runs}/memory", 60, ("gymnasium", "minigrid"),
              resumes=True),
        Piece("memory of policies, longer corridors",
              f"memory.py --parallel 2 --runs {{runs}}/memory {ONWARD} {MEMORIES}", 60, ("gymnasium", "minigrid"),
              resumes=True),
        Piece("memory of policies, by distance",
              f"memory.py --runs {{runs}}/memory --distance {FURTHEST} {MEMORIES}", 5, ("gymnasium", "minigrid")),
        Piece("memory of policies, speed", "memory.py --speed --repeats 3", 6,
              ("gymnasium", "minigrid", "sb3_contrib")),
        Piece("hopper", "hopper.py --seeds 3 --parallel 2 --runs {runs}/hopper", 60, ("gymnasium", "mujoco"),
              resumes=True),
        Piece("robots", "robots.py --runs {runs}/robots --demonstrations {runs}/robots/data --states-only", 60,
              ("gymnasium", "metaworld"), resumes=True),
        Piece("layer times", "layer_times.py", 3),
        Piece("matrix", "matrix.py", 2),
        Piece("vectors", "vectors.py --gensim {python} --threads 1", 6, (NOVELS, "gensim")),
        Piece("pairs", "pairs.py --tokens 500000", 8),
        Piece("tracing", "tracing.py --repeats 7", 3),
        Piece("page", "page.py --repeats 5", 2, ("playwright",)),
        Piece("embedding", "embedding.py {models}/minilm {data}/multi30k/train.en.gz --threads 2", 8,
              ("model:minilm", M30K, "transformers", "sentence_transformers")),
        Piece("analyses of the demo", "analyses.py demo {runs}/scores/demo-seed-1", 3, ("run:demo",)),
        Piece("analyses of the Hansards", "analyses.py hansards {models}/tatoeba-en-fr {models}/tatoeba-fr-en", 4,
              ("model:tatoeba-en-fr", "model:tatoeba-fr-en", "data:word_alignment")),
        Piece("alignment of a recurrent demo", "analyses.py demo-rnn {runs}/scores/demo-seed-1 --runs {runs}/analyses",
              9, ("run:demo",), resumes=True),
        Piece("recurrent alignment of the Hansards", "analyses.py hansards {models}/tatoeba-en-fr-rnn --as rnn", 4,
              ("model:tatoeba-en-fr-rnn", "data:word_alignment")),
        Piece("analyses of layers", "analyses.py layers {models}/novels-gpt", 3, ("model:novels-gpt", "data:squad")),
        Piece("looking", "looking.py {models}/minilm {models}/novels-gpt", 9,
              ("model:minilm", "model:novels-gpt", "data:gap", "data:ud_english_ewt")),
        Piece("worked", "worked.py {runs}/scores/demo-seed-1 {models}/minilm {models}/novels-gpt", 9,
              ("run:demo", "model:minilm", "model:novels-gpt")),
        Piece("pictures", "pictures.py {runs}/scores/demo-seed-1 --runs {runs}/pictures", 9, ("run:demo", SHAKESPEARE),
              resumes=True),
        Piece("corpus", "corpus.py --pairs 1000000", 9),
        Piece("instructions that are followed", "tuning.py novels={models}/novels-gpt minimind={models}/minimind "
              "--parts check --runs {runs}/tuning", 1, ("model:minimind", "data:ifeval", "lm_eval")),
    ],
}  # fmt: skip
WITHOUT_DEVICE = ("scores.py", "ladder.py")  # scores.py takes what the machine has


class Calls:
    """The pieces of one call, one after the other, and which were done in calls before."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.file = options.runs / f"all-{options.device}.json"
        self.done: dict[str, float] = {}
        if self.file.exists() and not options.again:
            self.done = json.loads(self.file.read_text())
        self.end = time.monotonic() + 60 * options.minutes
        self.running: list[subprocess.Popen[bytes]] = []
        self.lock = threading.Lock()
        data = os.environ.get("HEADWAY_DATA", "data")
        self.places = {"runs": options.runs, "models": options.models, "data": data, "python": sys.executable}

    def missing(self, piece: Piece) -> str:
        """What the piece needs and the machine lacks."""
        for need in piece.needs:
            kind, _, name = need.rpartition(":")
            there = {
                "data": lambda name: Path(self.places["data"], name).is_dir(),
                "file": lambda name: Path(name).is_file(),
                "model": lambda name: Path(self.places["models"], name).is_dir(),
                "run": lambda name: Path(self.places["runs"], "scores", f"{name}-seed-1", "model").is_dir(),
                "trained": lambda name: Path(self.places["runs"], name, "model").is_dir(),
                "": lambda name: find_spec(name) is not None,
            }
            if not there[kind](name):
                return f"the {kind or 'package'} {name}"
        return ""

    def left(self) -> float:
        return self.end - time.monotonic()

    def carried_out(self, piece: Piece) -> bool:
        """Whether it was finished in time. What it prints goes to a file of its own."""
        words = [word.format(**self.places) for word in piece.words.split()]
        words += ["--device", self.options.device] * (words[0] not in WITHOUT_DEVICE[:1])
        words += ["--out", str(self.options.out)] * (self.options.out is not None and "pictures" not in words[0])
        behind = {} if piece.ahead else {"CUDA_MPS_CLIENT_PRIORITY": "1"}  # of kernels, where processes share a GPU
        log, start = self.options.runs / f"all-{piece.name.replace(' ', '-')}.txt", time.monotonic()
        with log.open("a") as file:
            child = subprocess.Popen(
                [sys.executable, str(HERE / words[0]), *words[1:]],
                stdout=file, stderr=file, start_new_session=True, env=os.environ | behind,
            )  # fmt: skip
            self.running.append(child)
            try:
                child.wait(max(1.0, self.left()))
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
                self.stopped(child)
                print(f"{piece.name}: stopped after {time.monotonic() - start:.0f} s", flush=True)
                if isinstance(reason, KeyboardInterrupt):
                    raise
                return False
            finally:
                self.running.remove(child)
        if child.returncode:
            tail = log.read_text(errors="replace").strip().splitlines()[-1:]
            print(f"{piece.name}: failed ({' '.join(tail)}); see {log}", flush=True)
            return False
        with self.lock:
            self.done[piece.name] = round(time.monotonic() - start, 1)
            self.file.write_text(json.dumps(self.done, indent=1) + "\n")
        print(f"{piece.name}: {self.done[piece.name]:.0f} s", flush=True)
        return True

    def tried(self, piece: Piece) -> bool:
        """Whether nothing of it is left to do; one that lacks something is left out."""
        if lacks := self.missing(piece):
            print(f"{piece.name}: left out, it needs {lacks}", flush=True)
            return True
        if self.left() < (SHORTEST if piece.resumes else 60 * piece.minutes):
            print(f"{piece.name}: not begun, {max(0, self.left()):.0f} s are left", flush=True)
            return False
        done = self.carried_out(piece)
        with self.lock:  # a piece that failed may have trained some models
            self.keep_models()
        return done

    def run(self, pieces: list[Piece], at_once: int) -> bool:
        """Whether all are done: first those that share the machine, `at_once` of them at a time, then the others."""
        sharing = [piece for piece in pieces if at_once > 1 and piece.beside]
        with ThreadPoolExecutor(max(1, at_once)) as pool:
            waiting = [pool.submit(self.tried, piece) for piece in sharing]
            try:
                ended = [one.result() for one in waiting]
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in list(self.running):
                    self.stopped(child)
                raise
        return all([*ended, *(self.tried(piece) for piece in pieces if piece not in sharing)])

    def stopped(self, child: subprocess.Popen[bytes]) -> None:
        """Politely first: trainings keep a checkpoint."""
        for sign, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
            try:
                os.killpg(child.pid, sign)
                child.wait(patience)
                return
            except (subprocess.TimeoutExpired, ProcessLookupError):
                continue

    def keep_models(self) -> None:
        """Copy what was trained to where others look for it."""
        for trained in sorted(self.options.runs.glob("scores/*-seed-1/model")):
            target = self.options.models / trained.parent.name.removesuffix("-seed-1")
            if not target.exists():
                self.options.models.mkdir(parents=True, exist_ok=True)
                shutil.copytree(trained, target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", required=True, choices=PIECES)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end this call by then")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these pieces, in this order")
    parser.add_argument("--list", action="store_true", help="show the pieces, and what is missing for them")
    parser.add_argument("--at-once", type=int, default=1, help="pieces that share the machine")
    parser.add_argument("--again", action="store_true", help="forget which pieces are done")
    parser.add_argument("--runs", type=Path, default=Path("runs/benchmarks"))
    parser.add_argument("--models", type=Path, default=Path("runs/benchmarks/models"))
    parser.add_argument("--out", type=Path, help="folder for the records (default: benchmarks/results)")
    options = parser.parse_args()
    pieces = PIECES[options.device]
    if options.only:
        unknown = set(options.only) - {piece.name for piece in pieces}
        if unknown:
            parser.error(f"there is no piece {sorted(unknown)[0]!r}; --list shows those there are")
        named = {piece.name: piece for piece in pieces}
        pieces = [named[name] for name in options.only]
    options.runs.mkdir(parents=True, exist_ok=True)
    calls = Calls(options)
    if options.list:
        for piece in pieces:
            lacks = calls.missing(piece)
            state = "done" if piece.name in calls.done else f"needs {lacks}" if lacks else "to do"
            print(f"{piece.name:<26} {piece.minutes:>3.0f} min  {state:<30}  {piece.words}")
        return 0
    todo = [piece for piece in pieces if piece.name not in calls.done]
    with shared_gpu() if options.at_once > 1 and options.device == "cuda" else nullcontext():
        more = not calls.run(todo, options.at_once)
    print("more to do: call it again" if more else "all is done")
    return MORE if more else 0


if __name__ == "__main__":
    raise SystemExit(main())
