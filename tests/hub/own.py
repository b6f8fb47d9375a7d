"""Small models of headway's own, as folders, for what goes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from headway.folder import text_card, weights_of, with_tokenizers, write_model
from headway.models.gpt import GPT, GPTConfig
from headway.models.t5 import T5, T5Config
from headway.models.transformer import Transformer, TransformerConfig
from headway.recipes.grammar import sample
from headway.text.tokenizer import END, PAD, START, TextOptions, Tokenizer

PAIRS = sample(16, seed=11)
SENTENCES = [row.source for row in PAIRS]
HARD = [
    "", " ", "  two  spaces\tand a tab ", "Ünïcödé — “quotes” … 😀👩‍👩‍👧", "</s> is no end <pad> here", "İstanbul ıçin",
    "e\u0301 combined", "\u00a0hard\u00a0space", "line\u2028separator \x1c\x1f", "日本語テキスト",
    "a" * 200, "1,234.56 $",
]  # fmt: skip


def drawn(build: Callable[[], Any]) -> Any:
    """The same for ever, and every weight away from its first value: zeros and ones would hide a mistake."""
    torch.manual_seed(4)
    model = build()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model.eval()


def translator(folder: Path, config: TransformerConfig, text: TextOptions | None = None, **card: Any) -> Transformer:
    text = text or TextOptions(size=400, min_count=1)
    tokenizer = Tokenizer.train([*SENTENCES, *HARD], text)
    model = drawn(lambda: Transformer(config, len(tokenizer), len(tokenizer)))
    search = {"beam": 3, "length_penalty": 0.7}
    facts = text_card("transformer", config, (len(tokenizer),) * 2, text, ("en", "fr"), search=search, **card)
    write_model(folder, weights_of(model), facts, with_tokenizers(facts, tokenizer))
    return model


def taught(folder: Path, config: TransformerConfig, steps: int = 200) -> Transformer:
    """A translator that has learned the pairs by heart: sure of itself, so that no search hangs on the last digit."""
    model, text = translator(folder, config), TextOptions(size=400, min_count=1)
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    source_BS, lengths_B = _rows([[*tokenizer.encode(row.source), END] for row in PAIRS])
    target_BT, _ = _rows([[START, *tokenizer.encode(row.target), END] for row in PAIRS])
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        logits_BTV = model(source_BS, target_BT[:, :-1], lengths_B)
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), target_BT[:, 1:].flatten(), ignore_index=PAD)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    card = text_card(
        "transformer", config, (len(tokenizer),) * 2, text, ("en", "fr"), search={"beam": 3, "length_penalty": 0.7}
    )
    write_model(folder, weights_of(model), card, with_tokenizers(card, tokenizer))
    return model


def _rows(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows]), torch.tensor([len(row) for row in rows])


def t5(folder: Path, config: T5Config) -> T5:
    text = TextOptions(size=400, min_count=1)
    tokenizer = Tokenizer.train([*SENTENCES, *HARD], text)
    model = drawn(lambda: T5(config, len(tokenizer), len(tokenizer)))
    card = text_card("t5", config, (len(tokenizer),) * 2, text, ("en", "fr"), search={"beam": 3})
    write_model(folder, weights_of(model), card, with_tokenizers(card, tokenizer))
    return model


def gpt(folder: Path, config: GPTConfig, text: TextOptions | None = None) -> GPT:
    text = text or TextOptions(size=400, min_count=1, exact=True)
    tokenizer = Tokenizer.train([*SENTENCES, *HARD], text)
    model = drawn(lambda: GPT(config, len(tokenizer)))
    card = text_card("gpt", config, (len(tokenizer),), text)
    write_model(folder, weights_of(model), card, with_tokenizers(card, tokenizer, tokenizer))
    return model
