"""Conversations: every shape is read, what is wrong is named with its line, and answers alone are learned."""

import json

import pytest
import torch
import transformers

from foreign_world import give_tokenizer
from headway.batch import IGNORED
from headway.data.conversations import Conversation, hold_out_begun_alike, read_conversations, read_preferences
from headway.data.exchanges import PackedRows, exchanges, fitted
from headway.errors import InputError
from headway.hub.vocabularies import read_tokenizer
from headway.text.chat import TURNS, Chat, rendered
from headway.text.tokenizer import END, TextOptions, Tokenizer

CHAT = Chat(TURNS, {})
ASKED = [{"role": "user", "content": "Hello?"}]
ANSWERED = [*ASKED, {"role": "assistant", "content": "Good day."}]


def write(tmp_path, *rows):
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [path]


def test_every_shape_is_read(tmp_path):
    turns = "\n\nHuman: Hello?\n\nAssistant: "
    files = write(
        tmp_path,
        {"messages": ANSWERED},
        {"prompt": "Hello?", "completion": "Good day."},
        {"prompt": ASKED, "chosen": "Good day.", "rejected": "What?"},
        {"prompt": ASKED, "chosen": ANSWERED[1:], "rejected": [{"role": "assistant", "content": "What?"}]},
        {"chosen": ANSWERED, "rejected": [*ASKED, {"role": "assistant", "content": "What?"}]},
        {"chosen": turns + "Good day.", "rejected": turns + "What?"},
    )
    assert [list(one.messages) for one in read_conversations(files)] == [ANSWERED] * 6
    pairs = read_preferences(write(tmp_path, *map(json.loads, files[0].read_text().splitlines()[2:])))
    assert {(len(one.prompt), one.chosen, one.rejected) for one in pairs} == {(1, "Good day.", "What?")}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([], "list, expected an object"),
        ({}, "no key 'chosen'"),
        ({"messages": []}, "'messages' must be a list of messages"),
        ({"messages": ["x"]}, "message 1 is str, expected a role and a content"),
        ({"messages": [{"role": "user"}]}, "message 1: no key 'content'"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "message 1 has the role 'robot'"),
        ({"messages": ASKED}, "the last message is not the assistant's"),
        ({"messages": [*ASKED, {"role": "assistant", "content": " "}]}, "'message 2' is empty"),
        ({"prompt": "x", "chosen": "y"}, "no key 'rejected'"),
        ({"prompt": "x", "chosen": "y", "rejected": 3}, "'rejected' is int, expected a string"),
        ({"prompt": ANSWERED, "chosen": "y", "rejected": "z"}, "the prompt ends with an answer"),
        ({"chosen": "y", "rejected": "z"}, "must begin with"),
        ({"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "\n\nHuman: c\n\nAssistant: b"}, "part before"),
        ({"chosen": "\n\nHuman: a", "rejected": "\n\nHuman: a"}, "does not end with the assistant's answer"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(tmp_path, row, said):
    good = {"prompt": "a", "chosen": "b", "rejected": "c"}
    files = write(tmp_path, good, row)
    with pytest.raises(InputError, match=said) as error:
        read_conversations(files)
    assert "line 2" in str(error.value)
    if row:
        told = []
        assert len(read_conversations(files, "skip", told.append)) == 1
        assert "left out 1 of 2 lines" in told[0] and "line 2" in told[0]


def test_another_kind_of_file_and_an_empty_one(tmp_path):
    (tmp_path / "talk.txt").write_text("Hello")
    with pytest.raises(InputError, match="cannot read .*talk.txt as conversations"):
        read_conversations([tmp_path / "talk.txt"])
    with pytest.raises(InputError, match="talk.jsonl is empty"):
        read_conversations(write(tmp_path))
    with pytest.raises(InputError, match="there is no conversation in it"):
        read_conversations(write(tmp_path, {}), "skip", str)


def test_conversations_that_begin_alike_are_held_out_together(tmp_path):
    found = [Conversation(({"role": "user", "content": f"Question {n // 3}"},), "") for n in range(300)]
    train, held = hold_out_begun_alike(found, 0.1)
    assert len(held) == 30 and not {one.first for one in train} & {one.first for one in held}


@pytest.fixture(scope="module")
def tokenizer():
    lines = ["Human: Assistant: System: Hello? Good day. And you? Well, thank you.\n\n"] * 9
    return Tokenizer.train(lines, TextOptions(size=300, exact=True, min_count=1))


def test_answers_alone_are_learned_each_with_its_end(tokenizer):
    messages = [*ANSWERED, {"role": "user", "content": "And you?"}, {"role": "assistant", "content": "Well."}]
    [found] = exchanges(tokenizer, CHAT, [Conversation(tuple(messages), "")])
    assert tokenizer.decode(found.ids) == "Human: Hello?\n\nAssistant: Good day.\n\nHuman: And you?\n\nAssistant: Well."
    learned = [label for label in found.labels if label != IGNORED]
    first, second = (tokenizer.encode(text) for text in (" Good day.", " Well."))
    assert learned == [*first, END, *second, END]
    asked = tokenizer.encode(rendered(CHAT, messages[:1]))
    assert found.ids[: len(asked)] == asked  # as a prompt is read when the model is asked
    assert found.labels[len(asked) - 1] == first[0] and found.labels[: len(asked) - 1] == [IGNORED] * (len(asked) - 1)
    [last] = exchanges(tokenizer, CHAT, [Conversation(tuple(messages), "")], last=True)
    assert last.ids == found.ids and [label for label in last.labels if label != IGNORED] == [*second, END]


def test_answers_are_those_that_transformers_marks(tmp_path):
    template = "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content + eos_token }}"
    template += "{% endgeneration %}{% else %}{{ '[' + m.content + ']' }}{% endif %}{% endfor %}"
    give_tokenizer(tmp_path, template)
    messages = [*ANSWERED, {"role": "user", "content": "And?"}, {"role": "assistant", "content": "So."}]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = theirs.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
    mine = read_tokenizer(tmp_path)
    [found] = exchanges(mine, mine.chat, [Conversation(tuple(messages), "")])
    ids, said = expected["input_ids"], expected["assistant_masks"]
    assert found.ids == ids
    assert found.labels == [i if mark else IGNORED for i, mark in zip(ids[1:], said[1:], strict=True)] + [IGNORED]


def test_a_template_that_rewrites_what_came_before_lets_the_last_answer_be_learned(tokenizer):
    rewriting = Chat(
        "{% for m in messages %}{{ m.content if loop.last or m.role == 'user' else 'x' }};{% endfor %}", {}
    )  # fmt: skip
    messages = [*ANSWERED, {"role": "user", "content": "And you?"}, {"role": "assistant", "content": "Well."}]
    [found] = exchanges(tokenizer, rewriting, [Conversation(tuple(messages), "")])
    assert tokenizer.decode([label for label in found.labels if label not in (IGNORED, END)]) == "Well.;"


def test_rows_are_filled_and_every_exchange_is_there_once(tokenizer):
    texts = [Conversation((ASKED[0], {"role": "assistant", "content": "well " * (n % 7 + 1)}), "") for n in range(40)]
    found = exchanges(tokenizer, CHAT, texts)
    longest = max(len(one.ids) for one in found)
    rows = PackedRows(found, 4, 2 * longest, seed=1)
    seen = []
    for step in range(rows.per_epoch):
        batch = rows.batch(step)
        assert batch.ids_BT.shape == (4, 2 * longest)
        for ids, labels, segments in zip(batch.ids_BT, batch.labels_BT, batch.segments_BT, strict=True):
            for number in segments.unique():
                inside = segments == number
                seen += [(ids[inside].tolist(), labels[inside].tolist())]
    real = sorted((one.ids, one.labels) for one in found)
    assert sorted(one for one in seen if any(label != IGNORED for label in one[1])) == real
    assert len(rows.filled) < 0.75 * len(found)
    again = PackedRows(found, 4, 2 * longest, seed=1).batch(rows.per_epoch + 1)
    assert torch.equal(again.ids_BT, rows.batch(rows.per_epoch + 1).ids_BT)


def test_a_row_is_never_overfull():
    rows = fitted([5, 9, 3, 7, 1, 1, 10], 10)
    assert sorted(number for row in rows for number in row) == list(range(7))
    sizes = [5, 9, 3, 7, 1, 1, 10]
    assert all(sum(sizes[number] for number in row) <= 10 for row in rows) and len(rows) == 4
    assert fitted([1, 1], 10, 0) == [[0], [1]]
