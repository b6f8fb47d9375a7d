"""headway chat"""

from __future__ import annotations

from headway.cli import options
from headway.cli.options import option
from headway.errors import refuse


def chat(
    model: str = options.LANGUAGE_MODEL,
    system: str = option(None, "TEXT", "The first message: how the model should answer."),
    max_new_tokens: int = option(512, "N", "The most tokens of an answer.", min=1),
    temperature: float = option(0.7, "T", "Divides the logits; 0 takes the most probable token."),
    top_p: float = option(1.0, "P", "Sample from the smallest set of tokens with total probability P."),
    seed: int = option(0, "N", "The same seed and messages give the same answers."),
    device: str = options.DEVICE,
    dtype: str = options.DTYPE,
    threads: int = options.THREADS,
) -> None:
    """Talk with a language model in the terminal: answers as they come, and it reads all that was said before."""
    from headway.cli.talking import talk
    from headway.tasks.loading import load

    options.check_model(model, "headway chat MODEL")
    writer = load(model, device, dtype, verb="generate")
    refuse(
        writer.tokenizer.chat is None,
        f"{model} has no template of conversations, so it was not made to be talked to: headway generate {model} "
        "--interactive continues what you write",
    )
    settings = {"max_new": max_new_tokens, "temperature": temperature, "top_p": top_p, "seed": seed}
    talk(writer, settings, chat=True, system=system)
