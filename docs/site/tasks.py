"""A page for each task: from a text to the phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from docs.site.tables import contents, listed, table
from kerasformer.basics.tasks import ALIASES, NEEDS, task_of_model
from kerasformer.bundle.sample_texts import examples
from kerasformer.bundle.tested import runtimes
from kerasformer.export.card import in_apps
from kerasformer.export.card.quoting import python
from kerasformer.files import sources

MODELS = {
    "text-classification": "sentiment-bert",
    "sentence-similarity": "embedder-bert",
    "summarization": "summarizer-t5",
    "text-generation": "story-gpt2",
    in_apps.CONVERSATION: "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "translation": "Helsinki-NLP/opus-mt-en-de",
    "text2text-generation": "google/flan-t5-small",
    "token-classification": "dslim/bert-base-NER",
    "zero-shot-token-classification": "urchade/gliner_small-v2.1",
    "question-answering": "distilbert/distilbert-base-cased-distilled-squad",
    "fill-mask": "distilbert/distilroberta-base",
    "feature-extraction": "sentence-transformers/all-MiniLM-L6-v2",
    "zero-shot-classification": "facebook/bart-large-mnli",
    "text-ranking": "cross-encoder/ms-marco-MiniLM-L6-v2",
}
"""A preset or a checkpoint of the hub for each task."""

_TITLES = {"text2text-generation": "Text to text", in_apps.CONVERSATION: "Chat", "fill-mask": "Fill mask"}
_CALLS = {
    "text-classification": "pipe({text})",
    "zero-shot-classification": "pipe({text}, [{labels}])",
    "text-ranking": "pipe.rank({query}, documents)",
    "sentence-similarity": "pipe.rank({query}, documents)",
    "token-classification": 'pipe({text}, aggregation_strategy="simple")',
    "zero-shot-token-classification": "pipe({text}, [{labels}])",
    "question-answering": "pipe(question={question}, context=context)",
    "fill-mask": "pipe({text})",
    "feature-extraction": 'pipe({text}, pooling="mean")',
    in_apps.CONVERSATION: 'pipe([{{"role": "user", "content": {text}}}], max_new_tokens=40)',
    "text-generation": "pipe({text}, max_new_tokens=40, seed=1)",
    "translation": "pipe({text})",
}
_GENERATES = "pipe(text, max_new_tokens=40)"
_FORMAT = "tflite"


def pages() -> dict[str, str]:
    """Returns the pages of all tasks and their index, by name."""
    written = {f"tasks/{task}": _page(task, model) for task, model in MODELS.items()}
    rows = [(f"[{title(task)}]({task}.md)", f"`{task}`", f"`{model}`") for task, model in MODELS.items()]
    index = "# From text to phone\n\nEach page shows one task, in Python and in the languages of apps.\n\n"
    return {"tasks/index": index + table(["task", "name", "model"], rows) + contents(MODELS), **written}


def title(task: str) -> str:
    """Returns the title of a task's page."""
    return _TITLES.get(task, task.replace("-", " ").capitalize())


def code(task: str, model: str) -> str:
    """Returns the lines of Python: the model answers, becomes a bundle, and the bundle answers."""
    sample = sample_of(task)
    literals = {
        name: python(value) if isinstance(value, str) else ", ".join(map(python, value))
        for name, value in sample.items()
    }
    before = "".join(
        f"{name} = {literals[name]}\n" for name in ("context", "text") if _is_long(task, name) and name in sample
    )
    if "documents" in sample:
        before += "documents = [\n" + "".join(f"    {python(text)},\n" for text in sample["documents"]) + "]\n"
    call = _CALLS.get(task, _GENERATES).format(**literals)
    name = "text-generation" if task == in_apps.CONVERSATION else task
    return f"""\
import kerasformer as kf

{before}model = kf.load("{model}", task="{name}")
pipe = kf.pipeline(model)
print({call})

model.export("{model.rpartition("/")[2]}-app", format="litert", quantize="int8")
pipe = kf.pipeline("{model.rpartition("/")[2]}-app")
print({call})
"""


def sample_of(task: str) -> dict[str, str | Sequence[str]]:
    """Returns the shortest sample inputs of a task, by the names of the arguments of `kf.pipeline`."""
    inputs: Mapping[str, str] = min(examples(task)["inputs"], key=lambda each: len(str(each)))
    sample: dict[str, str | Sequence[str]] = {
        name: value for name, value in inputs.items() if name in ("text", "query", "question", "context")
    }
    if "documents" in inputs:
        sample["documents"] = inputs["documents"][:2]
    if names := inputs.get("candidate_labels", inputs.get("labels")):
        sample["labels"] = names.split(", ")
    if task == "fill-mask":
        sample["text"] = str(sample["text"]).replace("{gap}", "<mask>")
    return sample


def _is_long(task: str, name: str) -> bool:
    return name == "context" or task not in _CALLS


def _page(task: str, model: str) -> str:
    is_preset = model in sources.presets()
    needs = f"\n\nThe model must be {NEEDS[task]}." if task in NEEDS else ""
    aliases = [alias for alias, name in ALIASES.items() if name == task]
    also = f" It is also known as {listed(aliases)}." if aliases else ""
    what = "a preset of the package" if is_preset else "a checkpoint of the Hugging Face hub, fetched on first use"
    rows = [
        (f"[{each.name}](../targets/{each.name}.md)" if each.is_target else each.name, each.summary, listed(models))
        for each in runtimes().values()
        if (models := sorted({*each.bundles.get(task, {}), *each.bundles.get(_of_model(task), {})}))
    ]
    apps = "\n\n".join(
        f"### {language.title}\n\n{language.about(_FORMAT, task)}\n\n"
        f"```{language.fence}\n{language.code(_FORMAT, task, sample_of(task))}```"
        for language in in_apps.LANGUAGES
        if task in language.calls
    )
    return f"""# {title(task)}

The task `{task}` with `{model}`, {what}.{also}{needs}

## In Python

The Keras model answers, is exported as a bundle with weights of eight bits, and the bundle answers:

```python
{code(task, model)}```

All arguments and the structure of the results are on the page about [pipelines](../docs/pipelines.md).

## In an app

The folder is copied to the device. `path/to/kerasformer` is this repository; see also
[Android and iOS](../docs/phones.md) and [web](../docs/web.md).

{apps}

## Where it runs

Architectures whose answers were compared with Keras in each runtime; the table with all recipes is on the page
[Runtimes](../docs/runtimes.md).

{table(["runtime", "what it is", "architectures"], rows)}
"""


def _of_model(task: str) -> str:
    return "text-generation" if task == in_apps.CONVERSATION else task_of_model(task)
