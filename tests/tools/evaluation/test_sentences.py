"""Sentences of texts with abbreviations, and the baseline that takes the first of them."""

from __future__ import annotations

import pytest

from kerasformer.tools.evaluation import lead
from kerasformer.tools.evaluation.sentences import sentences

# A bar separates sentences.
TEXTS = [
    "It rains.| She left!| Why?| Nobody knows...| Yes",
    "Dr. Smith met Mrs. J. K. Rowling in St. Ives on Jan. 5.| He paid $3.50 for No. 7.",
    "Apple Inc. rose.| So did Alphabet Inc.| The units, e.g. its search engine, fell at 5 p.m. on Monday.",
    "He left the U.S. Army.| He left the U.S.| The flight, i.e. the last one, was late.",
    '"Was it good?" she asked.| "It was."| (It was late.)| He said "No."| Then he left.',
    "1. Take eggs.| 2. Boil them.| No.| That is wrong.| I said no.| It was I.| She knew.",
    "Headline\n\n|Body text goes\nover two lines.| And ends here.\n\n\n",
    "Really?!| Yes.| ¿Qué?| «Oui.»| Non.",
    "他来了。|她走了！|真的？|是。",
    'He was provoked.--Mr. Ball too--(Mrs. Cole was not)--and left.| "Ah! (in a tone of pity,) no," he said.',
    "Version 2.0 of kerasformer.io costs 1,000.50 dollars.| See fig. 3 and ch. 4.| In the end, it works.",
]


@pytest.mark.parametrize("text", TEXTS)
def test_sentences(text):
    expected = [" ".join(part.split()) for part in text.split("|")]
    assert sentences(text.replace("|", "")) == expected


def test_texts_without_sentences():
    assert sentences("") == sentences(" \n\n ") == []
    assert sentences("no end") == ["no end"]
    assert sentences(".") == ["."]


def test_lead():
    text = "Mr. Ball of Acme Corp. spoke at 5 p.m. on Friday. He left. The U.S. team stayed. It won. Then it left."
    first = ["Mr. Ball of Acme Corp. spoke at 5 p.m. on Friday.", "He left.", "The U.S. team stayed."]
    assert lead(text) == "\n".join(first)
    assert lead(text, 1) == first[0]
    assert lead("One. Two.") == "One.\nTwo."
