"""Python of a card: a call of this package, and a program for LiteRT or ONNX Runtime without this package."""

from __future__ import annotations

from pathlib import Path

from kerasformer.bundle import PROBABILITIES, SENTENCE_EMBEDDING, Kind, Manifest
from kerasformer.export.card.program import (
    Program,
    ProgramFile,
    inputs,
    kind,
    lacks_language,
    length_check,
    prefills,
    rules,
    text_prefix,
    values,
)
from kerasformer.export.card.quoting import python
from kerasformer.tokenization.tokenizer import TARGET_FILE

_EXTRA = {"tflite": "litert", "onnx": "onnx", "saved-model": "tensorflow"}


def with_this_package(manifest: Manifest) -> str:
    """Returns the section with `kf.pipeline`."""
    call = 'pipe("Once upon a time", max_new_tokens=40)' if manifest.capacity else 'pipe("A text.")'
    if manifest.info.is_encoder_decoder and manifest.capacity:
        call = f"pipe({_prefixed(manifest)}, max_new_tokens=40)"
    if manifest.info.task == "question-answering":
        call = 'pipe(question="Who?", context="A text.")'
    elif manifest.info.task in _CALLS:
        call = _CALLS[manifest.info.task]
    elif manifest.info.languages is not None and lacks_language(manifest):
        call = f'pipe("A text.", tgt_lang={python(next(iter(manifest.info.languages.ids)))})'
    extra, wheel = _EXTRA[manifest.format], f"kerasformer-{manifest.versions.get('kerasformer', '0')}-py3-none-any.whl"
    absent = "Keras is" if manifest.format == "saved-model" else "Keras and TensorFlow are"
    return f"""## kerasformer

Install kerasformer with the extra `{extra}`, from a wheel (`pip install "{wheel}[{extra}]"`) or from a clone of its
repository (`pip install "path/to/kerasformer[{extra}]"`). {absent} not needed.

```python
import kerasformer as kf

pipe = kf.pipeline("path/to/this/folder", {python(manifest.info.task)})
print({call})
```
"""


def program(manifest: Manifest, folder: Path) -> ProgramFile | None:
    """Returns a program that calls the runtime directly, without this package."""
    template = _PROGRAMS.get((manifest.format, kind(manifest)))
    if template is None:
        return None
    package = "ai-edge-litert" if manifest.format == "tflite" else "onnxruntime"
    text, shown = _TEXTS.get(manifest.info.task, 'text = tokenizer.encode("A text.")'), _shown(manifest)
    source = Program(template).substitute(
        values(manifest, python),
        **rules(manifest, _FORBIDDEN, _FIRST),
        imports=_imports(manifest.format == "tflite", "json." in text + shown),
        interpreter=_LITERT_MODEL.replace("@file", values(manifest, python)["file"]),
        checked=length_check(manifest, _CHECKED_PROMPT if kind(manifest) == "decoder" else _CHECKED_TEXT),
        prefills=prefills(manifest, '"{name}": {length}'),
        inputs=inputs(manifest, _INPUTS[manifest.format], python, "    "),
        text=text,
        writer=_WRITER if (folder / TARGET_FILE).is_file() else "tokenizer",
        shown=shown,
    )
    further = [f", `{name}`" for name in ("config.json", "tokenizer_config.json") if f"/{name}" in source]
    return ProgramFile("run.py", "Python", f"`pip install {package} tokenizers`{''.join(further)}", f"{source}\n")


def _imports(litert: bool, json: bool) -> str:
    """Returns the imports from Python's library."""
    modules = ["json"] * json + ["os"] * litert
    return "".join(f"import {name}\n" for name in modules) + "from pathlib import Path\n\n"


def _prefixed(manifest: Manifest) -> str:
    """Returns the argument for a text whose prefix the pipeline does not know, if the model has prefixes."""
    prefix, known = text_prefix(manifest), manifest.info.prefixes()
    if len(known) > 1:
        return f'"A text.", prefix={python(prefix)}'
    return python("A text." if known else f"{prefix}A text.")


_CALLS = {
    "sentence-similarity": 'pipe.similarity("A text.", ["Another text.", "A third one."])',
    "text-ranking": 'pipe.rank("A query.", ["A text.", "Another text."])',
    "zero-shot-classification": 'pipe("A text.", ["a class", "another class"])',
}
"""Calls of pipelines that take more than a text."""

_INPUTS = {
    "tflite": {
        Kind.IDS: "@name=np.array([text.ids + [pad] * padding], np.int32),",
        Kind.MASK: "@name=np.array([text.attention_mask + [0] * padding], np.int32),",
        Kind.SEGMENTS: "@name=np.array([text.type_ids + [0] * padding], np.int32),",
        Kind.OTHER: "@name=np.full((1, length), @default, np.int32),",
    },
    "onnx": {
        Kind.IDS: '"@name": np.array([text.ids]),',
        Kind.MASK: '"@name": np.array([text.attention_mask]),',
        Kind.SEGMENTS: '"@name": np.array([text.type_ids]),',
        Kind.OTHER: '"@name": np.full((1, len(text)), @default, np.int64),',
    },
}

_LITERT_MODEL = """stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
os.dup2(null, 2)  # LiteRT logs to standard error while it loads a model, and has no setting for this
try:
    interpreter = Interpreter(f"{folder}/@file")
    interpreter.allocate_tensors()
finally:
    os.dup2(stderr, 2)
"""

_WRITER = f'Tokenizer.from_file(f"{{folder}}/{TARGET_FILE}")'
"""The tokenizer of a vocabulary that only the decoder has."""

_CHECKED_TEXT = """if not 1 <= len(text) <= @limit:
    raise ValueError(f"A text can have 1 to @limit tokens. Received: {len(text)}")
"""
_CHECKED_PROMPT = """if not 1 <= len(prompt) <= @limit:
    raise ValueError(f"A prompt can have 1 to @limit tokens. Received: {len(prompt)}")
"""

_LITERT_ENCODER = """@{imports}import numpy as np
from ai_edge_litert.interpreter import Interpreter
from tokenizers import Tokenizer

folder = Path(__file__).resolve().parents[1]
lengths, pad = [@lengths], @pad  # signatures @{forward}N
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
@{interpreter}
@text
@{checked}length = next(n for n in lengths if n >= len(text))
padding = length - len(text)
answer = interpreter.get_signature_runner(f"@forward{length}")(
    @inputs
)
@shown"""

_ONNX_ENCODER = """@{imports}import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder = Path(__file__).resolve().parents[1]
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
options = onnxruntime.SessionOptions()
options.log_severity_level = 3  # errors alone: it would warn of every optional input
session = onnxruntime.InferenceSession(f"{folder}/@file", options)

@text
@{checked}names = [@outputs]
feeds = {
    @inputs
}
answer = dict(zip(names, session.run(names, feeds)))
@shown"""

_LITERT_DECODER = """@{imports}import numpy as np
from ai_edge_litert.interpreter import Interpreter
from tokenizers import Tokenizer

folder = Path(__file__).resolve().parents[1]
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
@{interpreter}details = interpreter.get_signature_runner("@step").get_input_details()
names = [f"{name}{i}" for i in range(@layers) for name in (@caches)]
caches = {name: np.zeros(details[name]["shape"], np.float32) for name in names}


def step(signature, tokens, position):
    \"\"\"Runs tokens from a position; the caches that a signature returns are its next inputs.\"\"\"
    positions = np.arange(position, position + len(tokens), dtype=np.int32)
    outputs = interpreter.get_signature_runner(signature)(
        @ids=np.array([tokens], np.int32), @slots=positions, **caches
    )
    caches.update({name: outputs[name] for name in caches})
    return outputs.get("@logits")


prompt = tokenizer.encode("Once upon a time").ids
@{checked}position = 0
for signature, length in {@prefills}.items():
    while len(prompt) - 1 - position >= length:
        step(signature, prompt[position : position + length], position)
        position += length
tokens = list(prompt)
while len(tokens) - len(prompt) < 40 and len(tokens) <= @capacity:
    scores = step("@step", tokens[-1:], len(tokens) - 1)[0, -1]
@{forbidden}    token = int(scores.argmax())
    if token in [@ends]:
        break
    tokens.append(token)
print(@writer.decode(tokens))"""

_ONNX_DECODER = """@{imports}import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder = Path(__file__).resolve().parents[1]
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
options = onnxruntime.SessionOptions()
options.log_severity_level = 3  # errors alone: it would warn of every optional input
session = onnxruntime.InferenceSession(f"{folder}/@file", options)
layers = [f"{i}{kind}" for i in range(@layers) for kind in (@kinds)]
past = {f"@past{name}": np.zeros((1, @heads, 0, @size), np.float32) for name in layers}
present = [f"@present{name}" for name in layers]

prompt = tokenizer.encode("Once upon a time").ids
@{checked}tokens, new = list(prompt), list(prompt)
while len(tokens) - len(prompt) < 40 and len(tokens) <= @capacity:
    feeds = {
        "@ids": np.array([new]),
        "@mask": np.ones((1, len(tokens)), np.int64),
        "@positions": np.arange(len(tokens) - len(new), len(tokens))[None],
    }
    logits, *caches = session.run(["@logits", *present], {**feeds, **past})
    past = dict(zip(past, caches))
    scores = logits[0, -1]
@{forbidden}    new = [int(scores.argmax())]
    if new[0] in [@ends]:
        break
    tokens += new
print(@writer.decode(tokens))"""

_FORBIDDEN = """    scores[[@ids]] = -np.inf  # never generated
"""
_FIRST = """    token = @id if len(tokens) == 1 else token  # the first token of every answer
"""

_LITERT_ENCODER_DECODER = """@{imports}import numpy as np
from ai_edge_litert.interpreter import Interpreter
from tokenizers import Tokenizer

folder = Path(__file__).resolve().parents[1]
lengths, pad = [@lengths], @pad  # signatures @{encode}N
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
@{interpreter}
text = tokenizer.encode("@{prefix}A text.")
@{checked}length = next(n for n in lengths if n >= len(text))
padding = length - len(text)
cross_caches = interpreter.get_signature_runner(f"@encode{length}")(
    @text_ids=np.array([text.ids + [pad] * padding], np.int32),
    @text_mask=np.array([text.attention_mask + [0] * padding], np.int32),
)
mask = np.array([text.attention_mask + [0] * (@encoder_capacity - len(text))], np.int32)
decode = interpreter.get_signature_runner("@step")
details = decode.get_input_details()
names = [f"{name}{i}" for i in range(@layers) for name in (@caches)]
caches = {name: np.zeros(details[name]["shape"], np.float32) for name in names}
tokens = [@start]
while len(tokens) <= min(40, @capacity):
    outputs = decode(
        @ids=np.array([tokens[-1:]], np.int32),
        @slots=np.array([len(tokens) - 1], np.int32),
        @memory_mask=mask,
        **caches,
        **cross_caches,
    )
    caches = {name: outputs[name] for name in caches}
    scores = outputs["@logits"][0, -1]
@{forbidden}    token = int(scores.argmax())
@{first}    if token in [@ends]:
        break
    tokens.append(token)
print(@writer.decode(tokens))"""

_ONNX_ENCODER_DECODER = """@{imports}import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder = Path(__file__).resolve().parents[1]
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
options = onnxruntime.SessionOptions()
options.log_severity_level = 3  # errors alone: it would warn of every optional input
encoder = onnxruntime.InferenceSession(f"{folder}/@encoder_file", options)
decoder = onnxruntime.InferenceSession(f"{folder}/@file", options)
layers = [f"{i}{kind}" for i in range(@layers) for kind in (@kinds)]
past = {f"@past{name}": np.zeros((1, @heads, 0, @size), np.float32) for name in layers}
present = [f"@present{name}" for name in layers]

text = tokenizer.encode("@{prefix}A text.")
@{checked}ids, mask = np.array([text.ids]), np.array([text.attention_mask])
(states,) = encoder.run(["@states"], {"@text_ids": ids, "@text_mask": mask})
tokens = [@start]
while len(tokens) <= min(40, @capacity):
    feeds = {"@ids": np.array([tokens[-1:]]), "@memory_mask": mask, "@memory": states}
    logits, *caches = decoder.run(["@logits", *present], {**feeds, **past})
    past = dict(zip(past, caches))
    scores = logits[0, -1]
@{forbidden}    token = int(scores.argmax())
@{first}    if token in [@ends]:
        break
    tokens.append(token)
print(@writer.decode(tokens))"""

_PROGRAMS: dict[tuple[str, str | None], str] = {
    ("tflite", "encoder"): _LITERT_ENCODER,
    ("tflite", "decoder"): _LITERT_DECODER,
    ("tflite", "encoder-decoder"): _LITERT_ENCODER_DECODER,
    ("onnx", "encoder"): _ONNX_ENCODER,
    ("onnx", "decoder"): _ONNX_DECODER,
    ("onnx", "encoder-decoder"): _ONNX_ENCODER_DECODER,
}

_TEXTS = {
    "question-answering": 'question, context = "Who?", "A text."\ntext = tokenizer.encode(question, context)',
    "fill-mask": 'mask = json.load(open(f"{folder}/tokenizer_config.json"))["mask_token"]\n'
    'text = tokenizer.encode(f"A {mask} text.")',
}

_LABELS = 'labels = json.load(open(f"{folder}/config.json"))["id2label"]\n'
_SHOWN = {
    "text-classification": _LABELS + 'print(labels[str(answer["@output"][0].argmax())])',
    "token-classification": _LABELS + 'for token, scores in zip(text.tokens, answer["@output"][0]):\n'
    "    print(token, labels[str(scores.argmax())])",
    "fill-mask": "position = text.ids.index(tokenizer.token_to_id(mask))\n"
    'print(tokenizer.decode([answer["@output"][0, position].argmax()], skip_special_tokens=False))',
    "feature-extraction": 'print(answer["@output"][0, : len(text)].mean(axis=0))',
    "question-answering": """in_context = np.array([part == 1 for part in text.sequence_ids])
starts, ends = (np.where(in_context, answer[name][0, : len(text)], -np.inf) for name in ("start_logits", "end_logits"))
pairs = np.where(np.tri(len(text), dtype=bool).T, starts[:, None] + ends, -np.inf)  # no end before its start
first, last = np.unravel_index(pairs.argmax(), pairs.shape)
print(context[text.offsets[first][0] : text.offsets[last][1]])""",
}


def _shown(manifest: Manifest) -> str:
    """Returns code that prints the answer of an encoder."""
    output, task = values(manifest, python)["output"], manifest.info.task
    if manifest.info.problem_type == "multi_label_classification":
        threshold = 0.5 if output == PROBABILITIES else 0
        shown = (
            _LABELS + f'print([labels[str(i)] for i, score in enumerate(answer["@output"][0]) if score > {threshold}])'
        )
    elif manifest.info.problem_type == "regression" or output == SENTENCE_EMBEDDING:
        shown = 'print(answer["@output"][0])'
    else:
        shown = _SHOWN.get(task, "print(answer)")
    return Program(shown).substitute(output=output)
