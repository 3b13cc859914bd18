from __future__ import annotations

import pytest

from kerasformer.pipelines.text_parts import Parts, chunks, fitting, sentences

TEXTS = {
    "plain": ("It rains. Does it?  Yes! ", ["It rains.", "Does it?", "Yes!"]),
    "paragraphs": ("A title\n\nIt rains.\nIt snows.\r\n", ["A title", "It rains.", "It snows."]),
    "abbreviations": (
        "Dr. Smith met J. K. Rowling, e.g. on 3. May, see Fig. 2 by Bell et al. Then he left.",
        ["Dr. Smith met J. K. Rowling, e.g. on 3. May, see Fig. 2 by Bell et al.", "Then he left."],
    ),
    "a year": ("That was in 1999. The end.", ["That was in 1999.", "The end."]),
    "a small letter": ("He said yes... and left. Well", ["He said yes... and left.", "Well"]),
    "quotes": ("He said “Go.” Then „Komm!“ (Or not.) So.", ["He said “Go.”", "Then „Komm!“", "(Or not.)", "So."]),
    "numbers": ("It costs 3.50 at kerasformer.org now. Buy!", ["It costs 3.50 at kerasformer.org now.", "Buy!"]),
    "Chinese": (
        "今天天气很好。我们去公园！“好吗？”他说。走",
        ["今天天气很好。", "我们去公园！", "“好吗？”", "他说。", "走"],
    ),
    "Hindi": ("क्या हाल है। ठीक है।", ["क्या हाल है।", "ठीक है।"]),
    "spaces": ("  ", ["  "]),
}


def whole(parts: Parts) -> str:
    return parts.separators[0] + "".join(map("".join, zip(parts.texts, parts.separators[1:], strict=True)))


@pytest.mark.parametrize("name", TEXTS)
def test_sentences(name: str) -> None:
    text, expected = TEXTS[name]
    parts = sentences(text)
    assert list(parts.texts) == expected
    assert whole(parts) == text


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("limit", [1, 4, 9, 30])
def test_parts_that_fit(name: str, limit: int) -> None:
    text = TEXTS[name][0]
    parts = fitting(sentences(text), lambda part: len(part) <= limit)
    assert whole(parts) == text
    assert all(len(part) <= limit or part.isspace() for part in parts.texts)
    for across_lines in (True, False):
        combined = chunks(parts, len, limit, across_lines)
        assert whole(combined) == text
        assert len(combined.texts) <= len(parts.texts)
        assert across_lines or not any("\n" in part for part in combined.texts)


def test_long_sentences_are_split_at_commas_or_spaces() -> None:
    parts = fitting(sentences("This is a sentence, which goes on and on"), lambda part: len(part) <= 24)
    assert parts == Parts(("This is a sentence,", "which goes on and on"), ("", " ", ""))
    parts = fitting(sentences("One, which goes on and on"), lambda part: len(part) <= 14)
    assert parts.texts == ("One, which", "goes on and on")
    assert fitting(sentences("abcdefgh"), lambda part: len(part) <= 3).texts == ("abc", "def", "gh")


def test_chunks_are_few_and_of_similar_length() -> None:
    text = " ".join(f"Sentence {number} is here." for number in range(100, 107))
    parts = chunks(sentences(text), len, 100, across_lines=True)
    assert [part.count(".") for part in parts.texts] == [4, 3]
    assert len(chunks(sentences("a. \n\n b."), len, 100, across_lines=False).texts) == 2
    assert len(chunks(sentences("a. \n\n b."), len, 100, across_lines=True).texts) == 1


def test_results_are_joined_with_the_spaces_of_the_text() -> None:
    assert sentences(" It rains.\n\nIt snows. Why? ").joined(["1.", "2.", "3?"]) == " 1.\n\n2. 3? "
    assert sentences("下雨。下雪。").joined(["It rains.", "It snows."]) == "It rains. It snows."
    assert sentences("It rains. It snows.\nWhy?").joined(["下雨。", "下雪。", "为？"]) == "下雨。下雪。\n为？"
