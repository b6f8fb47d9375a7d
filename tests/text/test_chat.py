"""Chat templates: what a folder's template makes of a conversation is what `transformers` makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from foreign_world import CHAT, give_tokenizer
from headway.errors import InputError
from headway.hub.vocabularies import read_tokenizer
from headway.text.chat import Chat, conversation, rendered
from headway.text.tokenizer import TextOptions, Tokenizer

TEMPLATES = {
    "plain": CHAT,
    "with-a-default": "{%- if messages[0]['role'] == 'system' %}{% set told = messages[0]['content'] %}{% else %}"
    "{% set told = 'Be kind.' %}{% endif %}[{{ told }}]\n    {% for m in messages %}\n    {% if loop.last %}{% break %}"
    "{% endif %}{{ m | tojson }}\n    {% endfor %}{{ messages[-1].content }}",
    "with-a-mark": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ bos_token + m.content }}{% endif %}{% endfor %}",
    "with-a-namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}"
    "{{ m.content.split('o')[0] }}{% endfor %}{{ messages[0]['content'][:2] }}",
}
TALK = [
    {"role": "system", "content": " Answer in rhymes. "},
    {"role": "user", "content": "Hello <world> & ünïcode"},
    {"role": "assistant", "content": "so, so"},
    {"role": "user", "content": "Go on\n"},
]


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
@pytest.mark.parametrize("messages", [TALK, TALK[1:], TALK[3:]], ids=["all", "no-system", "one"])
def test_a_conversation_becomes_the_text_of_transformers(
    tmp_path: Path, template: str, messages: list[dict[str, str]]
) -> None:
    give_tokenizer(tmp_path, template)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    mine = read_tokenizer(tmp_path)
    expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered(mine.chat, messages) == expected
    ids = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert mine.encode(rendered(mine.chat, messages)) == ids


def test_a_template_file_stands_before_the_config(tmp_path: Path) -> None:
    give_tokenizer(tmp_path, "old")
    (tmp_path / "chat_template.jinja").write_text("new {{ messages[0].content }}")
    assert rendered(read_tokenizer(tmp_path).chat, conversation("x")) == "new x"


def test_a_conversation_grows() -> None:
    first = conversation("a", "be kind")
    assert [m["role"] for m in first] == ["system", "user"]
    second = conversation("b", "be kind", [*first, {"role": "assistant", "content": "c"}])
    assert [m["content"] for m in second] == ["be kind", "a", "c", "b"]


@pytest.mark.parametrize(
    ("template", "line"),
    [
        (None, "has no chat template"),
        ("{% if %}", "cannot be read"),
        ("{{ raise_exception('only one user') }}", "refuses these messages: only one user"),
        ("{{ messages.__class__.__mro__ }}", "refuses these messages"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", "refuses these messages"),
    ],
)
def test_a_template_that_will_not_is_told_in_one_line(tmp_path: Path, template: str | None, line: str) -> None:
    give_tokenizer(tmp_path, template)
    with pytest.raises(InputError) as caught:
        rendered(read_tokenizer(tmp_path).chat, TALK)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_messages_need_a_role_and_a_content(tmp_path: Path) -> None:
    give_tokenizer(tmp_path, CHAT)
    with pytest.raises(InputError, match="message 2 must have a role and a content"):
        rendered(read_tokenizer(tmp_path).chat, [TALK[0], {"role": "user"}])
    with pytest.raises(InputError, match="has no chat template"):
        rendered(Tokenizer.train(["a b a b"], TextOptions(size=300, min_count=1)).chat, TALK)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{{ '%999999999999d' | format(1) }}",
        "{{ 'a' * 99999999999 }}",
        "{{ 'a'.center(99999999999) }}",
        "{{ [1] * 99999999999 }}",
    ],
    ids=["loops", "doubling", "width", "product", "filter", "list"],
)
def test_a_template_has_so_much_time_and_memory_and_the_next_one_works(
    monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    monkeypatch.setattr("headway.text.chat.SECONDS", 3.0)
    with pytest.raises(InputError) as caught:
        rendered(Chat(template, {}), TALK)
    assert "chat template" in str(caught.value) and "\n" not in str(caught.value)
    assert rendered(Chat("{{ messages[-1].content }}", {}), TALK) == "Go on\n"
