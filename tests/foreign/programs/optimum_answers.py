"""Models of optimum, with the tokenizers and pipelines of transformers: a request a line, an answer a line.

A request has `folder`, `class`, maybe `options` of `from_pretrained`, and `texts` that go through the model at once, or
with `searches`, settings of `generate`; maybe `task` and `calls`, arguments of its pipeline.
"""

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
    if "searches" in request:
        tokenizer.padding_side = "left"
    inputs = tokenizer(request["texts"], padding=True, return_tensors="pt")
    result = {"inputs": {name: array.tolist() for name, array in inputs.items()}}
    if "searches" in request:
        result["tokens"] = [model.generate(**inputs, **each).tolist() for each in request["searches"]]
    else:
        with torch.no_grad():
            result["outputs"] = {name: array.tolist() for name, array in model(**inputs).items()}
    if "task" in request:
        pipe = transformers.pipeline(request["task"], model=model, tokenizer=tokenizer)
        result["pipeline"] = [pipe(*each["given"], **each["named"]) for each in request["calls"]]
    return result


for line in sys.stdin:
    try:
        reply = answer(json.loads(line))
    except Exception as error:  # whatever a user would see
        reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply, default=float), flush=True)
