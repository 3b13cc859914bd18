"""Runs a bundle with LiteRT or ONNX Runtime, without kerasformer.

    python run_bundle.py FOLDER [TEXT]
    python run_bundle.py FOLDER QUESTION CONTEXT     for question-answering
    python run_bundle.py FOLDER TEXT LANGUAGE        for the language of a translation, such as deu_Latn

All names, sizes and ids are read from kerasformer.json.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

folder = Path(sys.argv[1])
manifest = json.loads((folder / "kerasformer.json").read_text(encoding="utf-8"))
info, settings, signatures = manifest["info"], manifest["info"]["generation"], manifest["signatures"]
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
NEW_TOKENS = 40


def name_of(tensors, kind):
    """Returns the name of the tensor of this kind."""
    return next(name for name, tensor in tensors.items() if tensor.get("kind") == kind)


def of_role(role):
    """Returns the names of the signatures of a role with their number of tokens, the shortest first."""
    named = {name: signature["inputs"] for name, signature in signatures.items() if signature["role"] == role}
    return sorted((inputs[name_of(inputs, "ids")]["shape"][-1], name) for name, inputs in named.items())


def arrays(inputs, values):
    """Returns an array for each input whose kind is in `values`; any other input of a text has its default."""
    feeds = {}
    for name, tensor in inputs.items():
        if tensor.get("kind") in values:
            feeds[name] = np.asarray(values[tensor["kind"]], tensor["dtype"])
        elif tensor.get("kind") == "other":
            feeds[name] = np.full_like(values["ids"], tensor.get("default", 0), tensor["dtype"])
    return feeds


def is_cache(tensor):
    """Returns whether a tensor has what a layer keeps of earlier tokens, or of an encoded text."""
    return tensor.get("kind") in ("key", "value", "state", "cross_key", "cross_value")


class LiteRt:
    """The model file in LiteRT, whose signatures have fixed sizes."""

    def __init__(self):
        """Opens the file. LiteRT logs to standard error while it does this, and has no setting for it."""
        from ai_edge_litert.interpreter import Interpreter

        file = next(signature["file"] for signature in signatures.values() if signature["role"] != "tokenize")
        stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        try:
            self.interpreter = Interpreter(f"{folder}/{file}")
            self.interpreter.allocate_tensors()
        finally:
            os.dup2(stderr, 2)

    def limit(self, role):
        """Returns the largest number of tokens of a text."""
        return of_role(role)[-1][0]

    def run(self, text, role):
        """Runs the shortest signature of a role that has room for a text; returns its outputs."""
        length, name = next((length, name) for length, name in of_role(role) if length >= len(text))
        padding = info["pad_token_id"] or 0
        if info["vocab_size"] and padding >= info["vocab_size"]:  # a token of only the vocabulary that the model writes
            padding = 0
        values = {"ids": padded(text.ids, length, padding), "mask": padded(text.attention_mask, length)}
        feeds = arrays(signatures[name]["inputs"], {**values, "segments": padded(text.type_ids, length)})
        return self.interpreter.get_signature_runner(name)(**feeds)

    def start(self, text=None):
        """Empties the caches, and encodes a text for an encoder-decoder."""
        inputs, self.fixed = signatures["decode"]["inputs"], {}
        if text is not None:
            mask = np.array(padded(text.attention_mask, manifest["encoder_capacity"]), np.int32)
            self.fixed = {**self.run(text, "encode"), name_of(inputs, "memory_mask"): mask}
        self.caches = {
            name: np.zeros(tensor["shape"], np.float32)
            for name, tensor in inputs.items()
            if is_cache(tensor) and name not in self.fixed
        }

    def scores(self, tokens, position):
        """Reads tokens from a position on; returns the score of each token as the next one."""
        for length, name in [*reversed(of_role("prefill")), (1, "decode")]:
            signature = signatures[name]
            while len(tokens) > length or (name == "decode" and tokens):
                values = {"ids": [tokens[:length]], "slots": np.arange(position, position + length)}
                feeds = arrays(signature["inputs"], values)
                outputs = self.interpreter.get_signature_runner(name)(**feeds, **self.caches, **self.fixed)
                self.caches = {cache: outputs[cache] for cache in self.caches}
                tokens, position = tokens[length:], position + length
        return outputs[name_of(signature["outputs"], "logits")][0, -1]


def padded(values, length, padding=0):
    """Returns values as a row of this length."""
    return [[*values, *[padding] * (length - len(values))]]


class OnnxRuntime:
    """The model files in ONNX Runtime, which take any length; caches grow with the tokens."""

    def __init__(self):
        """Opens the files."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors alone: it would warn of every optional input
        self.sessions = {
            name: onnxruntime.InferenceSession(f"{folder}/{signature['file']}", options)
            for name, signature in signatures.items()
        }

    def limit(self, role):
        """Returns the largest number of tokens of a text, or `None`."""
        return manifest["encoder_capacity"] or info["max_length"]

    def call(self, name, feeds):
        """Runs a signature; returns its outputs by their names."""
        names = list(signatures[name]["outputs"])
        return dict(zip(names, self.sessions[name].run(names, feeds), strict=True))

    def run(self, text, role):
        """Runs the signature of a role; returns its outputs."""
        values = {"ids": [text.ids], "mask": [text.attention_mask], "segments": [text.type_ids]}
        _, name = of_role(role)[0]
        return self.call(name, arrays(signatures[name]["inputs"], values))

    def start(self, text=None):
        """Empties the caches, and encodes a text for an encoder-decoder."""
        _, self.name = of_role("decode")[0]
        inputs, outputs = signatures[self.name]["inputs"], signatures[self.name]["outputs"]
        self.fixed = {}
        if text is not None:
            (states,) = self.run(text, "encode").values()
            self.fixed = {"memory": states, "memory_mask": [text.attention_mask]}
        self.caches = {
            name: np.zeros([1, *(size if isinstance(size, int) else 0 for size in tensor["shape"][1:])], np.float32)
            for name, tensor in inputs.items()
            if is_cache(tensor)
        }
        self.present = {tensor["continues"]: name for name, tensor in outputs.items() if is_cache(tensor)}

    def scores(self, tokens, position):
        """Reads tokens from a position on; returns the score of each token as the next one."""
        end = position + len(tokens)
        values = {"ids": [tokens], "mask": np.ones((1, end)), "positions": [np.arange(position, end)], **self.fixed}
        outputs = self.call(self.name, {**arrays(signatures[self.name]["inputs"], values), **self.caches})
        self.caches = {past: outputs[present] for past, present in self.present.items()}
        return outputs[name_of(signatures[self.name]["outputs"], "logits")][0, -1]


def generate(model, tokens, first=None):
    """Adds the most probable tokens to a list, after `first` if it is a token; returns the longer list."""
    words = settings.get("bad_words_ids") or ()
    never = [*(settings.get("suppress_tokens") or ()), *(word[0] for word in words if len(word) == 1)]
    tokens, new, end = list(tokens), list(tokens), len(tokens) + NEW_TOKENS
    while len(tokens) < end and len(tokens) <= manifest["capacity"]:
        scores = model.scores(new, len(tokens) - len(new))
        scores[never] = -np.inf
        new, first = [int(scores.argmax()) if first is None else first], None
        if new[0] in info["eos_token_id"]:
            break
        tokens += new
    return tokens


def prefix():
    """Returns what precedes a text: the prefix for the task, or the first one of the model."""
    prefixes = info["task_prefixes"]
    for name in (info["task"], ""):
        if name in prefixes:
            return prefixes[name]
    return next(
        iter([text for name, text in prefixes.items() if name.startswith(info["task"])] or prefixes.values()), ""
    )


def first_tokens(language=None):
    """Returns the first token that the decoder reads, and the first one of every answer, or `None` for any."""
    known = (info["decoder_start_token_id"], info["bos_token_id"], info["pad_token_id"], 0)
    tokens = {
        "decoder_start_token_id": next(token for token in known if token is not None),
        "forced_bos_token_id": settings.get("forced_bos_token_id"),
    }
    if info["languages"]:
        ids = info["languages"]["ids"]
        if language is None and not {settings.get(name) for name in tokens} & {*ids.values()}:
            raise ValueError(f"Pass the language of the output, one of {', '.join(ids)}")
        if language is not None:
            tokens[info["languages"]["setting"]] = ids[language]
    return tokens["decoder_start_token_id"], tokens["forced_bos_token_id"]


def shown(text, context, answer):
    """Returns the outputs of an encoder as the answer of its task."""
    task, problem, (output, scores) = info["task"], info["problem_type"], next(iter(answer.items()))
    if problem == "multi_label_classification":
        threshold = 0.5 if output == "probabilities" else 0
        return [label for label, score in zip(info["labels"], scores[0], strict=False) if score > threshold]
    if problem == "regression" or output == "sentence_embedding":
        return scores[0]
    if task == "text-classification":
        return info["labels"][scores[0].argmax()]
    if task == "token-classification":
        rows = zip(text.tokens, scores[0], strict=False)
        return "\n".join(f"{token} {info['labels'][row.argmax()]}" for token, row in rows)
    if task == "fill-mask":
        position = text.ids.index(tokenizer.token_to_id(mask_token()))
        return tokenizer.decode([scores[0, position].argmax()], skip_special_tokens=False)
    if task == "feature-extraction":
        return scores[0, : len(text)].mean(axis=0)
    if task == "question-answering":
        in_context = np.array([part == 1 for part in text.sequence_ids])
        starts, ends = (
            np.where(in_context, answer[name][0, : len(text)], -np.inf) for name in ("start_logits", "end_logits")
        )
        # No end comes before its start.
        pairs = np.where(np.tri(len(text), dtype=bool).T, starts[:, None] + ends, -np.inf)
        first, last = np.unravel_index(pairs.argmax(), pairs.shape)
        return context[text.offsets[first][0] : text.offsets[last][1]]
    return answer


def mask_token():
    """Returns the token that a model for fill-mask replaces."""
    return json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["mask_token"]


def check_length(what, count, limit):
    """Raises an error if there are too many tokens, or none."""
    if limit is not None and not 1 <= count <= limit:
        raise ValueError(f"A {what} can have 1 to {limit} tokens. Received: {count}")


arguments = sys.argv[2:]
model = LiteRt() if manifest["format"] == "tflite" else OnnxRuntime()
if info["is_encoder_decoder"] and of_role("encode"):
    start, first = first_tokens(*arguments[1:])
    text = tokenizer.encode(prefix() + (arguments or ["A text."])[0])
    check_length("text", len(text), model.limit("encode"))
    model.start(text)
    tokens = generate(model, [start], first)
elif of_role("decode"):
    prompt = tokenizer.encode((arguments or ["Once upon a time"])[0]).ids
    check_length("prompt", len(prompt), manifest["capacity"])
    model.start()
    tokens = generate(model, prompt)
else:
    if not arguments:
        arguments = ["Who?", "A text."] if info["task"] == "question-answering" else ["A text."]
        arguments = [f"A {mask_token()} text."] if info["task"] == "fill-mask" else arguments
    text = tokenizer.encode(*arguments)
    check_length("text", len(text), model.limit("forward"))
    answer = model.run(text, "forward")
    print(shown(text, arguments[-1], answer))
if of_role("decode"):
    writer = folder / "target_tokenizer.json"  # of a vocabulary that only the decoder has
    print((Tokenizer.from_file(str(writer)) if writer.exists() else tokenizer).decode(tokens))
