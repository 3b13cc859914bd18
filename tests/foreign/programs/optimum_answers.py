"""Runs models of optimum, with the tokenizers and pipelines of transformers; reads a request on each line.

A request has `folder`, `class`, `texts` (one batch) and optionally `pairs` (the second text of each), `options` of
`from_pretrained`, `searches` (settings of `generate`), `task` and `calls` (arguments of the pipeline). Or it has a
`program`, whose output is the answer.
"""

import contextlib
import io
import json
import sys

import optimum.onnxruntime
import torch
import transformers


def answer(request):
    model_class = getattr(optimum.onnxruntime, request["class"])
    model = model_class.from_pretrained(request["folder"], **request.get("options", {}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(request["folder"])
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if "searches" in request and not model.config.is_encoder_decoder:
        tokenizer.padding_side = "left"
    inputs = tokenizer(request["texts"], request.get("pairs"), padding=True, return_tensors="pt")
    result = {"inputs": {name: array.tolist() for name, array in inputs.items()}}
    if "searches" in request:
        result["tokens"] = [model.generate(**inputs, **each).tolist() for each in request["searches"]]
    else:
        with torch.no_grad():
            result["outputs"] = {name: array.tolist() for name, array in model(**inputs).items()}
    if "task" in request:
        pipe = transformers.pipeline(request["task"], model=model, tokenizer=tokenizer)
        result["pipeline"] = [pipe(*each["args"], **each["kwargs"]) for each in request["calls"]]
    return result


def printed(program):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(program, {})
    return output.getvalue()


for line in sys.stdin:
    request = json.loads(line)
    try:
        reply = {"printed": printed(request["program"])} if "program" in request else answer(request)
    except Exception as error:  # the answer is the error that a user would see
        reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply, default=float), flush=True)
