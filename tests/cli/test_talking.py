"""A conversation in the terminal."""

from headway.cli.talking import remembered
from small_writer import small_writer


def test_a_conversation_forgets_its_oldest_messages_first(capsys):
    gpt = small_writer()
    said = [{"role": ("user", "assistant")[i % 2], "content": f"the cat {i}"} for i in range(7)]
    messages = [{"role": "system", "content": "be"}, *said]
    kept = remembered(gpt, messages)
    assert kept[0] == messages[0] and kept[1:] == said[-len(kept) + 1 :] and 0 < len(kept) - 1 < 7
    assert len(gpt.ids(kept)) < gpt.context and "left out" in capsys.readouterr().err
