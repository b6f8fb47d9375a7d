"""Words by where they stand."""

from headway.text.words import word_spans


def spelled(text: str, *split: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text, *split)]


def test_words_are_cut_at_spaces_or_at_marks_too():
    text = " Est-ce qu'il  dort ? "
    assert spelled(text) == ["Est-ce", "qu'il", "dort", "?"]
    assert spelled(text, "marks") == ["Est-ce", "qu'", "il", "dort", "?"]
    assert spelled("It's old.", "marks") == ["It'", "s", "old", "."] and spelled("") == []
