from __future__ import annotations

import dataclasses
import warnings

import pytest
import transformers

from kerasformer.errors import CapacityError
from kerasformer.tokenization.truncation import TruncationWarning
from tests.tiny_text import CORPUS
from tests.tiny_text import PROMPTS as BEGINNINGS

PROMPTS = [BEGINNINGS[0], BEGINNINGS[2], "It", BEGINNINGS[4]]


@pytest.fixture(scope="module")
def their_story(checkpoint):
    return transformers.pipeline("text-generation", str(checkpoint("story")))


@pytest.fixture(scope="module")
def their_rewrite(checkpoint):
    """A function that generates texts with PyTorch; `transformers` 5 has no pipeline for this."""
    folder = str(checkpoint("rewrite"))
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def write(texts, **settings):
        written = []
        for text in texts:
            ids = model.generate(**tokenizer(text, return_tensors="pt"), **settings)
            written.append(tokenizer.batch_decode(ids, skip_special_tokens=True))
        return [[text.strip() for text in texts] for texts in written]

    return write


def text_of(results):
    return [result["generated_text"] for result in results]


class TestTextGeneration:
    @pytest.mark.parametrize(
        "settings",
        [{}, {"num_beams": 3}, {"num_beams": 3, "num_return_sequences": 2}, {"repetition_penalty": 1.4}],
        ids=str,
    )
    @pytest.mark.parametrize("full", [True, False])
    def test_texts_equal_those_of_transformers(self, story, their_story, settings, full):
        settings = {**settings, "max_new_tokens": 8}
        for prompt in PROMPTS[:2]:
            expected = their_story(prompt, do_sample=False, return_full_text=full, **settings)
            assert story(prompt, return_full_text=full, **settings) == expected
        received = story(PROMPTS, return_full_text=full, batch_size=3, **settings)
        assert received[:2] == [story(prompt, return_full_text=full, **settings) for prompt in PROMPTS[:2]]
        assert received[3] == story(PROMPTS[3], return_full_text=full, **settings)

    def test_the_prefix_of_a_checkpoint_comes_first(self, story, their_story, monkeypatch):
        model = their_story.model
        monkeypatch.setattr(model.config, "prefix", "It rains. ", raising=False)
        other = transformers.pipeline("text-generation", model=model, tokenizer=their_story.tokenizer)
        expected = other(PROMPTS[0], do_sample=False, max_new_tokens=8)
        monkeypatch.setattr(story, "info", dataclasses.replace(story.info, task_prefixes={"": "It rains. "}))
        assert story(PROMPTS[0], max_new_tokens=8) == expected != their_story(PROMPTS[0], max_new_tokens=8)
        assert PROMPTS[0] + "".join(story.stream(PROMPTS[0], max_new_tokens=8)) == expected[0]["generated_text"]

    @pytest.mark.parametrize("full", [True, False])
    def test_special_tokens_are_not_in_the_text(self, story, full):
        settings = {"max_new_tokens": 5, "forced_eos_token_id": 0}
        text = text_of(story(PROMPTS[0], return_full_text=full, **settings))[0]
        assert text.endswith(text_of(story(PROMPTS[0], max_new_tokens=4, return_full_text=False))[0])
        assert "".join(story.stream(PROMPTS[0], **settings)) == text.removeprefix(PROMPTS[0])


class TestText2TextGeneration:
    TEXTS = (CORPUS[7], CORPUS[0], "Rain.")

    @pytest.mark.parametrize("settings", [{}, {"num_beams": 3}], ids=str)
    def test_texts_equal_those_of_transformers(self, rewrite, their_rewrite, settings):
        settings = {**settings, "max_new_tokens": 8}
        expected = [texts[0] for texts in their_rewrite(self.TEXTS, **settings)]
        assert text_of(rewrite(list(self.TEXTS), **settings)) == expected
        assert text_of(rewrite(list(self.TEXTS), batch_size=1, **settings)) == expected
        assert text_of(rewrite(self.TEXTS[0], **settings)) == expected[:1]
        assert len(set(expected)) > 1

    def test_several_results(self, rewrite, their_rewrite):
        settings = {"max_new_tokens": 6, "num_beams": 3, "num_return_sequences": 2}
        expected = their_rewrite(self.TEXTS, **settings)
        assert [text_of(texts) for texts in rewrite(list(self.TEXTS), **settings)] == expected
        assert text_of(rewrite(self.TEXTS[1], **settings)) == expected[1]

    def test_a_prefix(self, rewrite, their_rewrite):
        expected = their_rewrite(["explain: " + self.TEXTS[0]], max_new_tokens=8)[0]
        assert text_of(rewrite(self.TEXTS[0], prefix="explain: ", max_new_tokens=8)) == expected
        assert "".join(rewrite.stream(self.TEXTS[0], prefix="explain: ", max_new_tokens=8)).strip() == expected[0]
        assert text_of(rewrite(self.TEXTS[0], max_new_tokens=8)) != expected

    def test_too_long(self, rewrite, monkeypatch):
        from dataclasses import replace

        monkeypatch.setattr(rewrite, "info", replace(rewrite.info, max_length=12))
        with pytest.raises(CapacityError, match="at most 12 tokens"):
            rewrite(CORPUS[0])
        with pytest.raises(CapacityError, match="at most 12 tokens"):
            rewrite.stream(CORPUS[0])
        with pytest.warns(TruncationWarning):
            cut = rewrite(CORPUS[0], truncation=True, max_new_tokens=4)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ids = rewrite.tokenizer.encode(CORPUS[0], add_special_tokens=False)[:11]
            assert rewrite(rewrite.tokenizer.decode(ids), max_new_tokens=4) == cut
