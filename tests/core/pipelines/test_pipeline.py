from __future__ import annotations

import shutil
from functools import partial

import pytest

import kerasformer as kf
from kerasformer.basics.tasks import PRETRAINING
from kerasformer.errors import CheckpointError, InputError, SourceError, TokenizerError
from kerasformer.pipelines import PIPELINES, pipeline


def test_the_default_task_is_that_of_the_source(checkpoint):
    for name, task in [("classes", "text-classification"), ("gaps", "fill-mask"), ("rewrite", "text2text-generation")]:
        pipe = kf.pipeline(source=checkpoint(name))
        assert (pipe.task, pipe.engine) == (task, "keras")
        assert task in repr(pipe) and "keras" in repr(pipe)


def test_every_task_has_a_pipeline():
    assert {task for tasks in kf.zoo.models().values() for task in tasks} <= {*PIPELINES, *PRETRAINING}


def test_invalid_sources_raise(checkpoint, tmp_path):
    model, vectors = kf.zoo.load(checkpoint("classes")), checkpoint("vectors")
    for task, source, error, message in [
        ("text-clasification", model, InputError, "Unknown task. Expected one of .*text-classification"),
        ("text-classification", None, InputError, "A source was expected"),
        ("fill-mask", model, InputError, "for text-classification"),
        ("text-generation", checkpoint("classes"), InputError, "bert has no such task"),
        ("text-classification", vectors, CheckpointError, "(?s)^There is no head for .*=True to kerasformer.zoo"),
        ("zero-shot-classification", vectors, CheckpointError, "^zero-shot-.* needs a model for natural language inf"),
        (
            "reranking",
            vectors,
            CheckpointError,
            "^text-ranking needs a classifier of pairs.* no head for text-",
        ),
        ("zero-shot-classification", kf.zoo.load(vectors), InputError, "needs a model for natural language inference"),
        ("text-ranking", checkpoint("story"), CheckpointError, "needs a classifier of pairs"),
        (None, 3, InputError, "Received: int"),
        (None, tmp_path / "nothing", SourceError, "nothing"),
    ]:
        with pytest.raises(error, match=message):
            pipeline(source, task)


def test_num_threads_is_for_bundles(checkpoint):
    for source in (checkpoint("classes"), kf.zoo.load(checkpoint("classes"))):
        with pytest.raises(InputError, match="num_threads=2"):
            pipeline(source, num_threads=2)


WRONG = {
    "classes": [
        ({"top_k": True}, "an integer of at least 1, or None"),
        ({"batch_size": None}, "an integer of at least 1"),
        ({"truncation": "yes"}, "True or False"),
    ],
    "gaps": [({"top_k": None}, "an integer")],
    "vectors": [({"normalize": 1}, "True or False"), ({"pooling": ["mean"]}, "'mean', 'cls' or None")],
    "entities": [
        ({"aggregation_strategy": None}, "'none', 'simple'"),
        ({"ignore_labels": 3}, "a list, each item a string"),
    ],
    "answers": [({"top_k": "x"}, ""), ({"doc_stride": None}, ""), ({"max_answer_len": 0}, "")],
    "story": [({"return_full_text": 2}, "True or False"), ({"batch_size": "8"}, "an integer")],
    "rewrite": [({"prefix": 3}, "a string, or None")],
}


@pytest.mark.parametrize("source", WRONG)
def test_arguments_of_a_wrong_type_raise(checkpoint, source):
    pipe = pipeline(checkpoint(source))
    text = "It was [MASK]."
    call = partial(pipe, question="Who?", context=text) if source == "answers" else partial(pipe, text)
    for arguments, expected in WRONG[source]:
        ((name, _),) = arguments.items()
        with pytest.raises(InputError, match=f"^{name} must be .*{expected}.*Received: {name}="):
            call(**arguments)


@pytest.mark.parametrize("source", ["classes", "answers", "story"])
@pytest.mark.grid
def test_a_tokenizer_with_more_tokens_than_the_model(checkpoint, source, tmp_path, caplog):
    folder = shutil.copytree(checkpoint(source), tmp_path / "more")
    tokenizer = kf.Tokenizer.load(folder)
    size = tokenizer.vocab_size
    tokenizer.backend.add_tokens(["zyx"])
    tokenizer.save(folder)
    pipe = pipeline(folder)
    assert f"The tokenizer has {size + 1} tokens, but the model has {size}: texts with other tokens" in caplog.text
    calls = [lambda text: pipe(text, max_new_tokens=1), lambda text: pipe.model.model.generate(text, max_new_tokens=1)]
    if source != "story":
        calls = [lambda text: pipe(question=text, context="Rain.")] if source == "answers" else [pipe]
    for call in calls:
        assert call("Rain.")
        with pytest.raises(TokenizerError, match=f"'zyx' with the id {size}.*below {size}.*of {size + 1} tokens"):
            call("Rain zyx.")


def test_no_tokenizer(checkpoint, tmp_path):
    folder = shutil.copytree(checkpoint("classes"), tmp_path / "bare")
    for path in folder.glob("*token*"):
        path.unlink()
    with pytest.raises(TokenizerError, match="no tokenizer"):
        pipeline(folder)
    model = kf.zoo.load(folder)
    model.tokenizer = kf.Tokenizer.load(checkpoint("classes"))
    assert pipeline(model)("Rain.")


@pytest.mark.parametrize(
    ("model_type", "task"), [("bert", "pretraining"), ("electra", "replaced-token-detection")], ids=str
)
def test_a_task_without_pipeline(checkpoint, model_type, task):
    model = kf.zoo.build(model_type, task=task, vocab_size=180, hidden_dim=8, num_layers=1, num_heads=1)
    model.tokenizer = kf.Tokenizer.load(checkpoint("classes"))
    with pytest.raises(InputError, match=f"no pipeline for {task}"):
        pipeline(model)
