"""A language model of random weights, with a chat template, as `headway.load` would give it."""

from __future__ import annotations

import torch

from headway.generate.generator import Generator
from headway.models.gpt import GPT, GPTConfig
from headway.text.chat import Chat
from headway.text.tokenizer import TextOptions, Tokenizer

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def small_writer(context: int = 64, template: str = TEMPLATE) -> Generator:
    tokenizer = Tokenizer.train(["the cat sat on the mat, the dog did not sit"] * 3, TextOptions(size=290, exact=True))
    tokenizer.chat = Chat(template, {})
    torch.manual_seed(5)
    model = GPT(GPTConfig(layers=2, heads=2, width=16, max_length=context), len(tokenizer))
    model = model.double()  # so that a text is the same whatever is computed beside it
    generator = Generator(model.eval(), tokenizer, context=context, device=torch.device("cpu"))
    generator.name = "small"
    return generator
