"""Runs SavedModels with only TensorFlow; reads a request on each line.

The first request specifies whether operators of TF Text are needed. Later requests have a folder, a signature and its
inputs, or code that sets `answer`. Imports of packages that a server does not have fail.
"""

import json
import sys

with_text = json.loads(sys.stdin.readline())["tensorflow_text"]
# TensorFlow does not need Keras, but TF Text imports it.
sys.modules.update(dict.fromkeys(["kerasformer"] if with_text else ["kerasformer", "keras", "tf_keras"]))

import tensorflow as tf  # noqa: E402

if with_text:
    import tensorflow_text  # noqa: F401

loaded = {}


def call(folder, signature, inputs):
    if folder not in loaded:
        loaded.clear()  # only the last one stays in memory
        loaded[folder] = tf.saved_model.load(folder)
    run = loaded[folder].signatures[signature]
    specs = run.structured_input_signature[1]
    outputs = run(**{name: tf.constant(value, specs[name].dtype) for name, value in inputs.items()})
    return {name: tensor.numpy().tolist() for name, tensor in outputs.items()}


def run_code(code):
    names = {}
    exec(compile(code, "card", "exec"), names)
    return names["answer"].numpy().tolist()


print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    try:
        reply = run_code(**request) if "code" in request else call(**request)
    except tf.errors.InvalidArgumentError as error:
        reply = {"refused": str(error)}
    print(json.dumps(reply), flush=True)
