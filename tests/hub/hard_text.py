"""Lines that tokenizers stumble over: spaces of every kind, marks, emoji, scripts, half-formed and invisible things."""

from __future__ import annotations

import random

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "don't",
    "we'll",
    "I'm",
    "they've",
    "naïve",
    "coöperate",
    "Straße",
    "İstanbul",
    "ﬁne",
    "Ωmega",
    "μ",
    "北京",
    "東京都",
    "한국어",
    "пример",
    "Ёлка",
    "שלום",
    "مرحبا",
    "हिन्दी",
    "ไทย",
    "1234567890",
    "3.14159",
    "1,000,000",
    "0x1F",
    "e=mc²",
    "a_b__c",
    "CamelCaseWord",
    "http://a.b/c?d=e&f",
    "foo@bar.com",
    "#tag",
    "C++",
    "U.S.A.",
    "...",
    "---",
    "?!",
    "‽",
    "“quoted”",
    "‘single’",
    "«guillemets»",
    "–",
    "—",
    "…",
    "§",
    "¶",
    "©",
    "™",
    "€",
    "£",
    "¥",
    "½",
    "²",
    "₂",
    "Å",
    "Å",
    "é",
    "é",
    "ñ",
]
SPECIALS = [
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<mask>",
    "[MASK]",
    "[CLS]",
    "[SEP]",
    "<|endoftext|>",
    "<|im_end|>",
    "▁",
    "Ġ",
    "##ing",
]
SPACES = [" ", "  ", "   ", "\t", " \t ", "\u00a0", "\u2003", "\u3000", "\n", "\r\n", "\u2028", "\x0b", "\u200b", ""]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"]
CONTROLS = [
    "\x00",
    "\x01",
    "\x1b[0m",
    "\x7f",
    "\u0085",
    "\ufeff",
    "\u202e",
    "\u200d",
    "\ufffd",
    "\ufffc",
    "\ue000",
    "\U0010fffd",
]
LETTERS = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x5D0, 0x5F0), (0x620, 0x6FF), (0x900, 0x970),
           (0x1100, 0x1200), (0x2000, 0x2100), (0x2190, 0x2300), (0x3040, 0x3100), (0x4E00, 0x4F00), (0xAC00, 0xAD00),
           (0xFB00, 0xFB50), (0xFF00, 0xFFF0), (0x1D400, 0x1D500), (0x1F300, 0x1F650), (0x20000, 0x20100)]  # fmt: skip


def hard_lines(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    fixed = [
        "",
        " ",
        "  ",
        "\n",
        "a",
        " a",
        "a ",
        " a ",
        "A",
        ".",
        "'",
        "''",
        "' '",
        "a 's b",
        "don 't",
        *SPECIALS,
        *EMOJI,
        *CONTROLS,
    ]
    return [*fixed, *(_line(draw) for _ in range(count - len(fixed)))]


def _line(draw: random.Random) -> str:
    pieces: list[str] = []
    for _ in range(draw.randint(1, 14)):
        kind = draw.random()
        if kind < 0.55:
            word = draw.choice(WORDS)
            pieces.append(draw.choice([word, word, word.upper(), word.title(), word[::-1], word * 2]))
        elif kind < 0.75:
            first, last = draw.choice(LETTERS)
            pieces.append("".join(chr(draw.randrange(first, last)) for _ in range(draw.randint(1, 6))))
        else:
            pieces.append(draw.choice(draw.choice([SPECIALS, EMOJI, CONTROLS, SPACES])))
        pieces.append(draw.choice(SPACES) if draw.random() < 0.3 else " ")
    return "".join(pieces if draw.random() < 0.3 else pieces[:-1])
