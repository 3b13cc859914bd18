"""Conversations as inputs of text generation, on every engine: answers of `transformers`, caches that are reused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import transformers

import kerasformer as kf
from kerasformer.errors import CapacityError, ChatTemplateError, InputError, SourceError
from kerasformer.tokenization import TruncationWarning
from tests.core.tokenization.chat_templates.chat_model import shared_chat
from tests.keras_pipelines import keras_pipeline

ENGINES = ["keras", "onnx", *(pytest.param(engine, marks=pytest.mark.grid) for engine in ("tflite", "saved-model"))]
SOME = ["keras", "onnx"]
"""Engines for tests of what is the same code on all of them."""
SYSTEM = {"role": "system", "content": "Be brief."}
MESSAGES = [SYSTEM, {"role": "user", "content": "Who is it?"}]
NEXT = {"role": "user", "content": "Is it late?"}
SETTINGS = {"max_new_tokens": 6, "do_sample": False}


@pytest.fixture(scope="module")
def folder():
    return shared_chat("checkpoint")


@pytest.fixture(scope="module")
def opened():
    """Pipelines by their engine."""
    return {}


@pytest.fixture
def pipes(opened, folder):
    """Returns the pipeline of an engine, of which each test has a new cache of conversations."""

    def get(engine):
        if engine not in opened:
            opened[engine] = keras_pipeline(folder) if engine == "keras" else kf.pipeline(shared_chat(engine))
        return opened[engine]

    yield get
    for pipe in opened.values():
        pipe.conversation_cache = kf.generation.PrefixCache()


@pytest.fixture(scope="module")
def theirs(folder):
    return transformers.pipeline("text-generation", model=str(folder))


@pytest.mark.parametrize("engine", ENGINES)
def test_turns_are_those_of_transformers_and_read_once(pipes, theirs, engine):
    pipe, messages, earlier = pipes(engine), MESSAGES, 0
    for _ in range(3):
        answer = pipe(messages, **SETTINGS)
        # The template's end token is not that of the configuration.
        assert answer == theirs(messages, eos_token_id=[1, 3], **SETTINGS)
        length = pipe.apply_chat_template(messages, add_generation_prompt=True).input_ids.shape[1]
        cache = pipe.conversation_cache
        assert cache.read + cache.reused == length - 1  # the first step reads the last token
        assert cache.reused >= earlier
        earlier, messages = length - 1, [*answer[0]["generated_text"], NEXT]


@pytest.mark.parametrize("engine", SOME)
def test_a_shorter_and_a_changed_conversation(pipes, engine):
    pipe = pipes(engine)
    long = [*MESSAGES, {"role": "assistant", "content": "A rabbit."}, NEXT]
    changed = [*MESSAGES, {"role": "assistant", "content": "Alice."}, NEXT]
    expected = {}
    for name, messages in (("short", MESSAGES), ("long", long), ("changed", changed)):
        pipe("Nothing to do with it.", **SETTINGS)
        pipe.conversation_cache = kf.generation.PrefixCache()
        expected[name] = pipe(messages, **SETTINGS)
        assert pipe.conversation_cache.reused == 0
    for name, messages in (("long", long), ("short", MESSAGES), ("changed", changed), ("changed", changed)):
        assert pipe(messages, **SETTINGS) == expected[name]
        assert pipe.conversation_cache.reused > 0


def test_a_batch_and_an_iterator(pipes):
    pipe = pipes("keras")
    conversations = [MESSAGES, MESSAGES[1:], [*MESSAGES, {"role": "assistant", "content": "It"}]]
    expected = [pipe(messages, **SETTINGS) for messages in conversations]
    assert pipe(conversations, **SETTINGS) == expected
    assert list(pipe(iter(conversations), **SETTINGS)) == expected
    with pytest.raises(InputError, match="prompts or conversations. Received: both"):
        pipe([MESSAGES, "A prompt"], **SETTINGS)


@pytest.mark.parametrize("engine", SOME)
def test_a_text_is_answered(pipes, engine):
    """It is the only message of a conversation, unless it is to be continued as it is."""
    pipe, text = pipes(engine), "Who is it?"
    answer = pipe([{"role": "user", "content": text}], return_full_text=False, **SETTINGS)
    assert pipe(text, **SETTINGS) == pipe(text, return_full_text=False, **SETTINGS) == answer
    assert pipe([text, "Is it late?"], **SETTINGS)[0] == answer == next(pipe(iter([text]), **SETTINGS))
    with pipe.stream(text, **SETTINGS) as stream:
        assert "".join(stream) == answer[0]["generated_text"]
    asked = pipe.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True).input_ids[0]
    assert pipe.prompt(text, **SETTINGS).before == asked.tolist()
    raw = pipe(text, raw=True, **SETTINGS)
    assert raw[0]["generated_text"].startswith(text) and raw[0]["generated_text"] != text + answer[0]["generated_text"]
    assert pipe.prompt(text, raw=True).before == pipe.tokenizer.encode(text)
    with pipe.stream(text, raw=True, **SETTINGS) as stream:
        assert text + "".join(stream) == raw[0]["generated_text"]
    assert pipe(text, session=pipe.session(text), **SETTINGS) == answer
    assert pipe(text, raw=True, session=pipe.session(text, raw=True), **SETTINGS) == raw
    with pytest.raises(InputError, match="raw must be True or False"):
        pipe(text, raw="yes")


def test_only_the_answer(pipes):
    pipe = pipes("keras")
    (whole,), (only,) = pipe(MESSAGES, **SETTINGS), pipe(MESSAGES, return_full_text=False, **SETTINGS)
    assert whole["generated_text"] == [*MESSAGES, {"role": "assistant", "content": only["generated_text"]}]


def test_a_message_is_continued(pipes, theirs):
    begun = [*MESSAGES, {"role": "assistant", "content": "It is"}]
    assert pipes("keras")(begun, **SETTINGS) == theirs(begun, eos_token_id=[1, 3], **SETTINGS)
    added = pipes("keras")(begun, continue_final_message=False, **SETTINGS)[0]["generated_text"]
    assert len(added) == 4 and added[2] == begun[2]


@pytest.mark.parametrize("engine", SOME)
def test_streams(pipes, engine):
    pipe = pipes(engine)
    pipe.conversation_cache = kf.generation.PrefixCache(max_bytes=0)
    expected = pipe(MESSAGES, return_full_text=False, **SETTINGS)[0]["generated_text"]
    read = pipe.conversation_cache.read + pipe.conversation_cache.reused
    with pipe.stream(MESSAGES, **SETTINGS) as stream:
        assert "".join(stream) == expected
    assert pipe.conversation_cache.reused == read
    stream = pipe.stream([*MESSAGES, {"role": "assistant", "content": "A"}, NEXT], **SETTINGS)
    next(stream, None)
    during = pipe(MESSAGES, return_full_text=False, **SETTINGS)  # the caches are in use
    assert pipe.conversation_cache.reused == 0
    stream.close()
    assert during[0]["generated_text"] == expected
    assert pipe(MESSAGES, return_full_text=False, **SETTINGS) == during


@pytest.mark.grid
def test_conversations_that_are_too_long(pipes):
    pipe = pipes("tflite")
    assert pipe.model.capacity == 256
    turn = [{"role": "user", "content": "Who? " * 8}, {"role": "assistant", "content": "Who? " * 8}]
    long = [SYSTEM, *turn * 6, NEXT]
    with pytest.raises(CapacityError, match="Expected at most 250 tokens.*13|14 messages.*drop_oldest_turns=True"):
        pipe(long, **SETTINGS)
    with pytest.warns(TruncationWarning, match="its (\\d+) oldest messages"):
        answer = pipe(long, drop_oldest_turns=True, **SETTINGS)
    assert answer[0]["generated_text"][:-1] == long
    kept = next(i for i in range(0, 12, 2) if answer_of(pipe, [SYSTEM, *turn * 6][1 + i :]) is not None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shorter = [SYSTEM, *(turn * 6)[kept:], NEXT]
        assert pipe(shorter, **SETTINGS)[0]["generated_text"][-1] == answer[0]["generated_text"][-1]
    with pytest.raises(CapacityError, match="The last turn alone is too long"):
        pipe([SYSTEM, {"role": "user", "content": "Who? " * 200}], drop_oldest_turns=True, **SETTINGS)


def answer_of(pipe, messages):
    """Returns the number of tokens of a prompt, or `None` if it is too long."""
    length = len(pipe.apply_chat_template([SYSTEM, *messages, NEXT], add_generation_prompt=True).input_ids[0])
    return length if length <= 250 else None


@pytest.mark.parametrize(
    ("inputs", "options", "error", "message"),
    [
        (MESSAGES, {"chat_template": "{{ raise_exception('No!') }}"}, ChatTemplateError, "No!"),
        (MESSAGES, {"chat_template_kwargs": 5}, InputError, "chat_template_kwargs must be a dict"),
        (MESSAGES, {"chat_template_kwargs": {"tokenize": True}}, InputError, "must be variables that .* tokenize"),
        (MESSAGES, {"continue_final_message": "yes"}, InputError, "continue_final_message must be True or False"),
        ([{"role": "user", "content": object()}], {}, InputError, "must consist of texts"),
        ([{"role": "user", "content": "<s>"}, {"content": "Hi"}], {}, InputError, "prompt"),
    ],
)
def test_bad_input(pipes, inputs, options, error, message):
    with pytest.raises(error, match=message):
        pipes("keras")(inputs, **SETTINGS, **options)


@pytest.mark.parametrize("engine", ENGINES)
def test_sessions(pipes, engine, tmp_path):
    pipe = pipes(engine)
    pipe.conversation_cache = None  # it is not used
    session = pipe.session([SYSTEM])
    tokens = session.num_tokens
    assert session.read == tokens > 4
    clones = [session.clone() for _ in range(3)]
    asked = [[SYSTEM, {"role": "user", "content": text}] for text in ("Who is it?", "Is it late?", "Who? Who?")]
    answers = []
    for messages, clone in zip(asked, clones, strict=True):
        answers.append(pipe(messages, session=clone, **SETTINGS))
        assert clone.reused > 4 and clone.num_tokens > tokens == session.num_tokens
    for messages, clone, expected in zip(asked, clones, answers, strict=True):
        clone.note = "kept"
        loaded = pipe.load_session(clone.save(tmp_path / "session"))
        assert (loaded.note, loaded.num_tokens, loaded.num_bytes) == ("kept", clone.num_tokens, clone.num_bytes)
        following = [*expected[0]["generated_text"], NEXT]
        received = pipe(following, session=loaded, **SETTINGS)
        assert received == pipe(following, session=clone, **SETTINGS)
        assert loaded.reused == clone.reused > tokens
        with pipe.stream(messages, session=clone, **SETTINGS) as stream:
            assert stream.read() == expected[0]["generated_text"][-1]["content"]
        assert clone.reused > tokens
    prompt = pipe.session("Who is late?")
    whole = pipe("Who is late? It is", session=prompt.clone(), num_beams=3, num_return_sequences=2, **SETTINGS)
    assert whole == pipe("Who is late? It is", num_beams=3, num_return_sequences=2, **SETTINGS)


def test_sessions_that_cannot_be_used(pipes, folder, tmp_path):
    pipe, other = pipes("keras"), pipes("onnx")
    session = pipe.session(MESSAGES)
    with pytest.raises(InputError, match="belongs to another pipeline"):
        other(MESSAGES, session=session, **SETTINGS)
    with pytest.raises(InputError, match="belongs to another model or adapter"):
        other.load_session(session.save(tmp_path / "session"))
    with pytest.raises(SourceError, match="There is no saved state"):
        pipe.load_session(tmp_path / "missing")
    with pytest.raises(InputError, match="Received: several"):
        pipe([MESSAGES, MESSAGES], session=session, **SETTINGS)
    with pytest.raises(InputError, match="session must be a session of this pipeline"):
        pipe(MESSAGES, session="session", **SETTINGS)
    with pytest.raises(InputError, match="This session has no text"):
        pipe.session().save(tmp_path / "empty")
    changed = keras_pipeline(folder)
    variable = changed.model.model.trainable_variables[-1]
    session = changed.session(MESSAGES)
    variable.assign(variable + np.linspace(-1, 1, variable.shape[-1]))
    answer = changed(MESSAGES, session=session, **SETTINGS)
    assert session.reused == 0
    changed.conversation_cache = kf.generation.PrefixCache()
    assert answer == changed(MESSAGES, **SETTINGS)
    with changed.stream(MESSAGES, session=session, **SETTINGS) as stream:
        next(stream)
        variable.assign(variable + np.linspace(1, -1, variable.shape[-1]))
    changed(MESSAGES, session=session, **SETTINGS)
    assert session.reused == 0  # the caches were not those of one model


def test_prompts_with_a_prefix_cache(folder):
    engine = keras_pipeline(folder).model
    pipe = kf.pipeline(engine.model, "text-generation", prefix_cache=10**6)
    pipe.model = engine  # without XLA
    text = "Who is it? Is it late? Who is late? "
    first = pipe(text, **SETTINGS)
    assert pipe(text, **SETTINGS) == first and pipe.prompt_cache.read == 0
    pipe.stream(text + text, **SETTINGS).read()
    assert pipe.prompt_cache.reused > 10
    with pytest.raises(InputError, match="prefix_cache must be an integer"):
        kf.pipeline(pipe.model.model, "text-generation", prefix_cache=-1)
