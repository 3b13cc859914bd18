"""Runs MediaPipe's Text Classifier or Text Embedder on a model file.

The request has `model` (a path), `texts` and, for an embedder, `normalize`. The answer is the scores by class or the
vector of each text, or `{"error": …}` with the message of MediaPipe.
"""

import json
import sys

from mediapipe.tasks.python import BaseOptions, text


def scores(base, texts):
    with text.TextClassifier.create_from_options(text.TextClassifierOptions(base_options=base)) as classifier:
        heads = [classifier.classify(each).classifications for each in texts]
    return [{each.category_name: each.score for each in only.categories} for (only,) in heads]


def vectors(base, texts, normalize):
    options = text.TextEmbedderOptions(base_options=base, l2_normalize=normalize)
    with text.TextEmbedder.create_from_options(options) as embedder:
        heads = [embedder.embed(each).embeddings for each in texts]
    return [[float(value) for value in only.embedding] for (only,) in heads]


def main():
    request = json.load(sys.stdin)
    base = BaseOptions(model_asset_path=request["model"])
    try:
        if "normalize" in request:
            print(json.dumps(vectors(base, request["texts"], request["normalize"])))
        else:
            print(json.dumps(scores(base, request["texts"])))
    except (OSError, RuntimeError, ValueError) as error:
        print(json.dumps({"error": str(error)}))


main()
