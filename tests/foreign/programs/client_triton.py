"""Asks a server with the HTTP client of Triton: {host, texts} -> tensors, a description, and an error."""

import json
import sys

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

request = json.load(sys.stdin)
client = InferenceServerClient(request["host"])
texts = np.array(request["texts"], dtype=object)


def tensor(binary):
    """Returns the input with the texts."""
    given = InferInput("text", [len(texts)], "BYTES")
    given.set_data_from_numpy(texts, binary_data=binary)
    return given


found = client.infer("vectors", [tensor(False)], request_id="42", model_version="1")
written = client.infer("chat", [tensor(False)], parameters={"max_tokens": 3, "temperature": 0})
try:
    client.infer("vectors", [tensor(True)])
    error = None
except InferenceServerException as refusal:
    error = refusal.message()
print(
    json.dumps(
        {
            "is_ready": client.is_server_live() and client.is_server_ready() and client.is_model_ready("vectors", "1"),
            "server": client.get_server_metadata()["name"],
            "model": client.get_model_metadata("vectors"),
            "id": found.get_response()["id"],
            "embeddings": found.as_numpy("embedding").tolist(),
            "texts": [text.decode() if isinstance(text, bytes) else text for text in written.as_numpy("text")[:, 0]],
            "error": error,
        }
    )
)
