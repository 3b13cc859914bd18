"""MediaPipe's Text Classifier or Text Embedder on a model file.

Request: `model`, a path; `texts`; for an embedder `normalize`. Answer: of each text the scores by class, or the vector.
"""

import json
import sys

from mediapipe.tasks.python import BaseOptions, text


def main() -> None:
    request = json.load(sys.stdin)
    base = BaseOptions(model_asset_path=request["model"])
    if "normalize" in request:
        options = text.TextEmbedderOptions(base_options=base, l2_normalize=request["normalize"])
        with text.TextEmbedder.create_from_options(options) as embedder:
            results = [embedder.embed(each).embeddings for each in request["texts"]]
        answers = [[float(value) for value in only.embedding] for (only,) in results]
    else:
        options = text.TextClassifierOptions(base_options=base)
        with text.TextClassifier.create_from_options(options) as classifier:
            results = [classifier.classify(each).classifications for each in request["texts"]]
        answers = [{each.category_name: each.score for each in only.categories} for (only,) in results]
    print(json.dumps(answers))


main()
