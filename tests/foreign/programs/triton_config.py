"""Parses a `config.pbtxt` with the schema of Triton, and prints it as JSON; the input is the path of the file."""

import importlib.util
import json
import sys
from pathlib import Path

from google.protobuf import json_format, text_format

# The package itself imports gRPC, which the schema does not need.
(package,) = importlib.util.find_spec("tritonclient").submodule_search_locations
spec = importlib.util.spec_from_file_location("model_config_pb2", Path(package) / "grpc" / "model_config_pb2.py")
schema = importlib.util.module_from_spec(spec)
spec.loader.exec_module(schema)
config = text_format.Parse(Path(json.load(sys.stdin)).read_text(encoding="utf-8"), schema.ModelConfig())
print(json.dumps(json_format.MessageToDict(config, preserving_proto_field_name=True)))
