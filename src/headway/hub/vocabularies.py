"""The tokenizer of a Hugging Face folder: its `tokenizer.json`, or one built from the older vocabulary files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from headway.errors import InputError, refuse
from headway.hub.decoding import decoding_facts
from headway.hub.families import FOREIGN
from headway.hub.families.bert import BERT
from headway.hub.families.foreign import Usual
from headway.hub.families.marian import MARIAN
from headway.hub.hf_folder import CONFIG, optional_json
from headway.hub.languages import with_source
from headway.hub.sentencepiece import read_sentencepiece
from headway.outside import read_object
from headway.text.codec import enclosed
from headway.text.foreign import MOST_IDS, ROLES, ForeignTokenizer, Settings

SENTENCEPIECE = ("spiece.model", "tokenizer.model")
SIDES = ("source.spm", "target.spm")  # of Marian: a model for each side, whose tokens vocab.json numbers together
BYTE_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))  # the latter: as GPT-2 was first published
NO_LIMIT = 10**9  # some files say "no limit" with a number of thirty digits


class NoTokenizer(InputError):
    """A folder without a vocabulary."""


def two_sided(folder: Path) -> bool:
    """Whether source and target have tokenizers of their own."""
    return not (folder / "tokenizer.json").is_file() and all((folder / side).is_file() for side in SIDES)


def read_tokenizers(folder: Path, config: dict[str, Any] | None = None) -> tuple[ForeignTokenizer, ForeignTokenizer]:
    """Of source and target, or one and the same. `config`: of config.json, where it is read already."""
    if not two_sided(folder):
        return (one := read_tokenizer(folder, config)), one
    facts = optional_json(folder / "tokenizer_config.json")
    settings = _settings(folder, facts, MARIAN.usual)
    places = ids_in(folder / "vocab.json")
    if sorted(places.values()) != list(range(len(places))) or facts.get("separate_vocabs"):
        raise InputError(f"{folder / 'vocab.json'} must number the tokens of both sides from 0, each number once")
    source, target = (_numbered(folder / side, places, settings) for side in SIDES)
    return source, target


def ids_in(path: Path) -> dict[str, int]:
    """The ids of a vocab.json."""
    found = read_object(path)
    for token, i in found.items():
        if not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < MOST_IDS:
            raise InputError(
                f"{path}: {token[:40]!r} has the id {str(i)[:40]}, expected a number from 0 to {MOST_IDS - 1}"
            )
    return found


def _numbered(path: Path, places: dict[str, int], settings: Settings) -> ForeignTokenizer:
    """Language codes such as >>fr<< (the target language) are special tokens."""
    codes = [text for text in places if text.startswith(">>") and text.endswith("<<")]
    if lost := [special for special in settings.specials() if special not in places]:
        raise InputError(f"{path.with_name('vocab.json')} lacks the special '{lost[0]}'")
    found = read_sentencepiece(path)
    if not found.unigram or found.unknown_text not in places:
        raise InputError(f"{path} does not belong to vocab.json: expected a unigram model whose unknown token is in it")
    return ForeignTokenizer(found.tokenizer(True, (*settings.specials(), *codes), places), settings)


def read_tokenizer(folder: Path, config: dict[str, Any] | None = None) -> ForeignTokenizer:
    facts = optional_json(folder / "tokenizer_config.json")
    kind = str((config or optional_json(folder / CONFIG)).get("model_type", ""))
    usual = FOREIGN[kind].usual if kind in FOREIGN else Usual()
    settings = _settings(folder, facts, usual)
    if (folder / "tokenizer.json").is_file():
        return with_source(ForeignTokenizer.load(folder / "tokenizer.json", settings), facts)
    inner = _from_older_files(folder, facts, usual, settings)
    inner.add_special_tokens(_described(facts))
    return ForeignTokenizer(inner, settings)


def _settings(folder: Path, facts: dict[str, Any], usual: Usual) -> Settings:
    named = optional_json(folder / "special_tokens_map.json") | facts
    whole = (folder / "tokenizer.json").is_file()
    specials = {} if whole else usual.specials
    roles: dict[str, Any] = {role: _spelled(named.get(key)) or specials.get(role) for role, key in ROLES.items()}
    more = [_spelled(token) for token in _listed(folder, "additional_special_tokens", named.get)]
    keys = zip(("add_bos_token", "add_eos_token"), usual.frame or (None, None), strict=True)
    asked = [None if whole else facts.get(key, default) for key, default in keys]
    limit, ends = facts.get("model_max_length"), _listed(folder, "eos_token_id", decoding_facts(folder).get)
    refuse(
        not all(isinstance(i, int) for i in ends), f"{folder}: eos_token_id is {str(ends)[:40]}, expected ids of tokens"
    )
    return Settings(
        **roles,
        more=tuple(token for token in more if token),
        stops=tuple(map(int, ends)),
        frame=tuple(map(bool, asked)) if any(value is not None for value in asked) else (),
        tidy=bool(facts.get("clean_up_tokenization_spaces", False)),
        chat=_chat(folder, facts),
        limit=int(limit) if isinstance(limit, int) and 0 < limit < NO_LIMIT else 0,
        spelled=bool(facts.get("split_special_tokens", False)),
    )


def _listed(folder: Path, key: str, get: Callable[[str], Any]) -> list[Any]:
    """The values of a key, which may have one, several or none."""
    found = get(key)
    refuse(isinstance(found, dict), f"{folder}: {key} is an object, expected a list")
    return found if isinstance(found, list) else [] if found is None else [found]


def _spelled(token: Any) -> str | None:
    """A special token is given as text, or as an object with its text as content."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) and content else None


def _described(facts: dict[str, Any]) -> list[tokenizers.AddedToken]:
    """Specials that tokenizer_config.json describes (whether one takes the space before it), in the order of ids."""
    listed = facts.get("added_tokens_decoder") or {}
    if not isinstance(listed, dict) or not all(key.isdecimal() for key in listed):
        raise InputError("tokenizer_config.json: added_tokens_decoder must have tokens by their id")
    tokens = [*(listed[i] for i in sorted(listed, key=int)), *(facts.get(key) for key in ROLES.values())]
    kept = ("lstrip", "rstrip", "single_word", "normalized")
    return [
        tokenizers.AddedToken(token["content"], **{key: bool(token[key]) for key in kept if key in token}, special=True)
        for token in tokens
        if isinstance(token, dict) and _spelled(token) and token.get("special", True)
    ]


def _chat(folder: Path, facts: dict[str, Any]) -> str | None:
    if (folder / "chat_template.jinja").is_file():
        return _text(folder / "chat_template.jinja")
    template = facts.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = [entry for entry in template if isinstance(entry, dict)]
        template = next((entry.get("template") for entry in named if entry.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _from_older_files(folder: Path, facts: dict[str, Any], usual: Usual, settings: Settings) -> tokenizers.Tokenizer:
    for names in BYTE_PAIRS:
        if all((folder / name).is_file() for name in names):
            return _byte_pairs(folder / names[0], folder / names[1], facts, usual, settings)
    if (folder / "vocab.txt").is_file():
        return _word_pieces(folder, facts, usual, settings)
    there = [name for name in (*SENTENCEPIECE, *SIDES) if (folder / name).is_file()]
    if there and there[0] in SENTENCEPIECE and usual.frame is not None:
        return _sentencepiece(folder / there[0], facts, usual)
    if there:
        raise InputError(
            f"{folder} has its vocabulary only as {there[0]} (SentencePiece), which headway does not read for "
            "this model_type: save its tokenizer.json beside it (AutoTokenizer.from_pretrained(...)"
            ".save_pretrained(...) of transformers does)"
        )
    expected = f"tokenizer.json, vocab.json with merges.txt, vocab.txt or {SENTENCEPIECE[0]}"
    raise NoTokenizer(f"{folder} has no tokenizer: expected {expected}; --ids takes and gives ids of tokens instead")


def _sentencepiece(path: Path, facts: dict[str, Any], usual: Usual) -> tokenizers.Tokenizer:
    """With `legacy`, as in Llama's first program, the text after a special token gets a leading space too."""
    sentinels = facts.get("extra_ids", usual.sentinels) if usual.sentinels else 0
    if not isinstance(sentinels, int) or not 0 <= sentinels < MOST_IDS:
        raise InputError(
            f"{path.parent}: extra_ids is {str(sentinels)[:40]}, expected how many tokens <extra_id_…> there are"
        )
    more = tuple(f"<extra_id_{n}>" for n in reversed(range(sentinels)))
    inner = read_sentencepiece(path).tokenizer(usual.split or bool(facts.get("legacy")), more)
    if usual.split:  # transformers removes the few spaces that SentencePiece's normalization leaves
        inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), inner.pre_tokenizer])
    return inner


def _byte_pairs(
    vocabulary: Path, merges: Path, facts: dict[str, Any], usual: Usual, settings: Settings
) -> tokenizers.Tokenizer:
    """Byte-level BPE as in GPT-2."""
    entries, lines = ids_in(vocabulary), _text(merges).split("\n")
    parted = (line.split(" ") for line in lines if line and not line.startswith("#version"))
    try:
        pairs = [(first, second) for first, second in parted]
        inner = tokenizers.Tokenizer(models.BPE(entries, pairs, fuse_unk=False))
    except Exception as error:  # the library raises bare Exception
        raise InputError(f"{vocabulary} and {merges.name} do not fit together: {error}") from error
    spaced = bool(facts.get("add_prefix_space", False))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    inner.decoder = decoders.ByteLevel()
    if usual.enclosed:
        last = str(settings.separator)
        inner.post_processor = enclosed(inner, str(settings.first), last, f"{last}:0 $B:0 {last}:0")
    return inner


def _word_pieces(folder: Path, facts: dict[str, Any], usual: Usual, settings: Settings) -> tokenizers.Tokenizer:
    """BERT's WordPiece, the longest match first (Devlin et al. 2019)."""
    lines = _text(folder / "vocab.txt").split("\n")
    entries = {line.rstrip("\r"): i for i, line in enumerate(lines) if line or i < len(lines) - 1}
    square = BERT.usual.specials
    unknown, first, last = (getattr(settings, role) or square[role] for role in ("unknown", "first", "separator"))
    for token in (unknown, first, last):
        refuse(token not in entries, f"{folder / 'vocab.txt'} lacks the special '{token}'")
    inner = tokenizers.Tokenizer(models.WordPiece(entries, unk_token=unknown))
    inner.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(facts.get("tokenize_chinese_chars", True)),
        strip_accents=None if facts.get("strip_accents") is None else bool(facts["strip_accents"]),
        lowercase=bool(facts.get("do_lower_case", True)),
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(prefix="##")
    second = f"{last}:0 $B:0 {last}:0" if usual.enclosed else f"$B:1 {last}:1"
    inner.post_processor = enclosed(inner, first, last, second)
    return inner
