"""The command line: one thin module for each command, and one place that turns errors into a line and an exit code."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

import typer

from headway.errors import InputError, Notice, is_full, refuse
from headway.outside import encodable

# Every command by what it is for, in the order of the help. Its function has its name and is in the module of that
# name, or is named in ELSEWHERE.
GROUPS = {
    "Train": {
        "demo": "All of it in minutes, offline.",
        "train": "Train a model on a recipe's data or yours.",
        "recipes": "What can be trained, to which score.",
        "compare": "Several recipes, one text, one budget.",
        "scaling": "Predict a large run from small ones.",
        "runs": "Training runs, and the next command for each.",
        "plot": "Draw what training runs have logged.",
    },
    "Use": {
        "translate": "Translate text, line by line.",
        "generate": "Continue a prompt.",
        "chat": "Talk with a language model.",
        "predict": "What the model answers: labels, tags, …",
        "fill": "Words for the gaps of a text.",
        "embed": "A vector of each text.",
        "score": "How likely a text is, or each answer.",
        "evaluate": "BLEU of translations, perplexity of a text.",
        "serve": "Answer HTTP requests, in OpenAI's form.",
    },
    "Act": {
        "collect": "Episodes of a policy in a world, to learn from.",
        "play": "A trained policy in its world.",
    },
    "Look inside": {
        "explore": "Look inside, on a page in the browser.",
        "analyse": "What a model's heads do: table, picture.",
        "neighbours": "Words whose vectors are near.",
        "cost": "Operations, memory, energy of a model.",
    },
    "Convert": {
        "import": "Make a model of another program's file.",
        "export": "Write a model for other programs.",
        "vectors": "A model's embedding as a vector file.",
        "verify": "Compare a folder's files with their checksums.",
    },
}
EARLIER_COMMANDS = ("classify",)  # names of before, which help does not show
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
SHORT = """Usage: headway COMMAND … (headway --help: each command in a line; headway COMMAND --help: its options)

{groups}

  headway demo                                    all of it in minutes, offline
  headway train gpt --data my.txt --out runs/my   a language model of your own text
  headway generate runs/my --prompt 'It was'      and a text by it
  headway explore runs/my --text 'It was'         and a look inside
"""


class Grouped(typer.core.TyperGroup):
    """Shows its commands by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        wide = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{wide}}", summary) for name, summary in group.items()])


def short_help() -> str:
    """What `headway` alone prints: the commands by group, and the first ones to try."""
    wide = max(map(len, GROUPS))
    lines = [f"  {title:<{wide}}  {', '.join(group)}" for title, group in GROUPS.items()]
    return SHORT.format(groups="\n".join(lines))


app = typer.Typer(
    name="headway",
    cls=Grouped,
    help="Train, run and explain sequence models, from the Markov chain to the Transformer.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ELSEWHERE = {"classify": "predict.predict", "export": "exchange.export", "import": "exchange.take_in"}
for _name in (*COMMANDS, *EARLIER_COMMANDS):
    _module, _, _function = ELSEWHERE.get(_name, f"{_name}.{_name}").partition(".")
    _command = getattr(import_module(f"headway.cli.{_module}"), _function)
    app.command(_name, short_help=COMMANDS.get(_name), hidden=_name in EARLIER_COMMANDS)(_command)


def _version(asked: bool) -> None:
    if asked:
        import headway

        print(headway.__version__)
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    no_verify: bool = typer.Option(False, "--no-verify", help="Take a model's weights without a look at checksums."),
    allow_unknown: bool = typer.Option(
        False, "--allow-unknown", help="Open a model whose config.json has keys that headway does not know."
    ),
    ids: bool = typer.Option(False, "--ids", help="Take and give ids of tokens, for a model without a tokenizer."),
) -> None:
    pass


# Options of every command, and what holds while it runs.
HELD = {
    "--no-verify": ("headway.checksums", "unverified"),
    "--allow-unknown": ("headway.hub.config_keys", "unknown_allowed"),
    "--ids": ("headway.hub.ids", "ids_only"),
}
SEVERAL = (
    "--data",
    "--text-column",
    "--valid",
    "--test",
    "--set",
    "--prompt",
    "--stop",
    "--choice",
    "--minus",
    "--length",
    "--text",
)
# An example of how to call the command, for an error of its use.
USES = {
    "train": "headway train RECIPE --data FILE... --set engine.steps=5000",
    "score": "headway score MODEL --text 'The cat sat'",
    "import": "headway import FOLDER MODEL",
    "generate": "headway generate MODEL --prompt 'Once upon a time'",
    "translate": "headway translate MODEL FILE",
    "fill": "headway fill MODEL --text 'The capital of France is [MASK].'",
    "predict": "headway predict MODEL FILE",
    "embed": "headway embed MODEL FILE --out vectors.npy",
    "evaluate": "headway evaluate MODEL SOURCE REFERENCE",
    "analyse": "headway analyse MODEL FILE --what heads",
    "neighbours": "headway neighbours MODEL king woman --minus man",
    "vectors": "headway vectors MODEL --out words.txt",
    "cost": "headway cost gpt2-124m --length 128 1024",
    "explore": "headway explore MODEL --text 'He drives the car'",
    "serve": "headway serve MODEL --port 8000",
    "chat": "headway chat MODEL --system 'Answer in one line.'",
    "plot": "headway plot runs/en-de --value bleu",
    "scaling": "headway scaling gpt --data my.txt --operations 1e13 --dry-run",
}


EARLIER = {  # names that options of a command had before; they still work, and help does not show them
    "generate": {"--tokens": "--max-new-tokens"},
    "translate": {"--beam": "--beam-size", "--batch": "--batch-size"},
    "evaluate": {"--beam": "--beam-size", "--batch": "--batch-size"},
    "explore": {"--beam": "--beam-size"},
    "cost": {"--batch": "--batch-size"},
}


def renamed(arguments: list[str]) -> list[str]:
    """The arguments with today's names of options, also in the form `--beam=5`."""
    names = EARLIER.get(next(iter(arguments), ""), {})
    parted = (argument.partition("=") for argument in arguments)
    return [names.get(name, name) + equals + value for name, equals, value in parted]


def spread(arguments: list[str]) -> list[str]:
    """`--data a b` as `--data a --data b`, which is what the option parser understands."""
    result: list[str] = []
    option = ""
    for argument, after in zip(arguments, [*arguments[1:], None], strict=False):
        if argument.startswith("-") and argument != "-":
            option = argument if argument in SEVERAL else ""
            refuse(option and (after is None or after.startswith("-")), f"{option} needs a value, or several")
            result += [] if option else [argument]
        else:
            result += [option, argument] if option else [argument]
    return result


LATER = 0.05  # seconds


class Ended(KeyboardInterrupt):
    """A scheduler or a closed terminal ended the process; it cleans up as after Ctrl-C."""


def _handle_signals() -> None:
    """An exception that a signal raises where Python ignores exceptions, as in its import system, is raised again a
    moment later."""
    report = sys.unraisablehook

    def end(number: int, _frame: FrameType | None) -> None:
        raise Ended(number)

    def again(ignored: Any) -> None:
        if not isinstance(ignored.exc_value, KeyboardInterrupt):
            return report(ignored)
        number = next(iter(ignored.exc_value.args), signal.SIGINT)
        return threading.Timer(LATER, os.kill, [os.getpid(), number]).start()

    sys.unraisablehook = again

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # under nohup it stays ignored
            signal.signal(number, end)


def main(arguments: list[str] | None = None) -> None:
    """Exit 0 done, 1 failed, 2 wrong use or bad input, 128 + N ended by signal N."""
    if arguments is None:
        _handle_signals()
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    held = [place for option, place in HELD.items() if option in given]
    given = [argument for argument in given if argument != "--debug" and argument not in HELD]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as for input: the locale changes neither
    try:
        with ExitStack() as stack:
            stack.enter_context(_notices())
            for module, name in held:
                stack.enter_context(getattr(import_module(module), name)())
            code = _run(given)
    except Exception as error:
        if debug:
            raise
        code = _explain(error)
    except Ended as ended:
        [number] = ended.args
        print(f"headway: ended by {signal.Signals(number).name}", file=sys.stderr)
        code = 128 + number
    except KeyboardInterrupt:
        print("headway: interrupted", file=sys.stderr)
        code = 130
    _leave(code, at_once=arguments is None and code > 128)


@contextmanager
def _notices() -> Iterator[None]:
    """Print a notice as one line, without the place in the code where it arose."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, Notice):
            print(f"headway: {' '.join(str(message).split())}", file=sys.stderr)
        else:
            before(message, category, *place, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _run(given: list[str]) -> int:
    """Run a command without typer's `main`, which handles broken pipes and interrupts in its own way."""
    for word in given:
        # run.json, the log and other libraries' files could not hold it.
        refuse(not encodable(word), f"the argument {word!r} is not UTF-8")
    if not given:
        print(short_help(), end="", file=sys.stderr)
        return 2
    command = typer.main.get_command(app)
    code = 0
    try:
        with command.make_context("headway", spread(renamed(given))) as context:
            command.invoke(context)
    except typer.Exit as done:
        code = done.exit_code
    sys.stdout.flush()
    return code


def _leave(code: int, at_once: bool = False) -> None:
    try:
        sys.stdout.flush()
    except OSError:
        # Python would report the broken pipe once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if at_once:
        sys.stderr.flush()
        os._exit(code)  # without waiting for threads that still write
    raise SystemExit(code)


def _explain(error: Exception) -> int:
    """Print one line, and return the exit code."""
    line, code = _line(error)
    print(f"headway: {' '.join(line.split())}", file=sys.stderr)
    return code


def _line(error: Any) -> tuple[str, int]:
    if isinstance(error, InputError) or type(error).__name__ in ("Diverged", "Lost"):
        return str(error), 2 if isinstance(error, InputError) else 1
    if hasattr(error, "format_message"):  # the option parser's own errors
        use = USES.get(getattr(getattr(error, "ctx", None), "info_name", ""))
        line = error.format_message().rstrip(".") + (f" (as in: {use})" if use else "")
        return line, getattr(error, "exit_code", 2)
    if isinstance(error, BrokenPipeError):
        return "the reader of the output has closed it (broken pipe): the rest was not written", 2
    if isinstance(error, OSError) and is_full(error):
        file = f" for {error.filename}" if error.filename else ""
        return f"no room left on the disk{file}: make room and start again", 2
    if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
        return (
            "out of memory: lower engine.batch, raise engine.accumulate or set engine.recompute=true (training), "
            "lower --batch-size (translating), or take a smaller model",
            1,
        )
    if isinstance(error, OSError):
        return f"{error.filename or 'the system'}: {error.strerror or error}", 2
    return f"{type(error).__name__}: {error} (run again with --debug to see where)", 1
