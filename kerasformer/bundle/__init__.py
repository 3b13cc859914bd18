"""Exported bundles: the manifest, the reference answers, and replacing a folder safely."""

from kerasformer.bundle.manifest import (
    FORMAT_VERSION,
    PROBABILITIES,
    SENTENCE_EMBEDDING,
    Manifest,
    ModelInfo,
    Signature,
    TensorInfo,
    checksums,
    load,
    read,
    read_references,
    sha256,
    write,
    write_references,
)
from kerasformer.publishing import MANIFEST, check_destination, publish, repair, staging

__all__ = [
    "FORMAT_VERSION",
    "MANIFEST",
    "PROBABILITIES",
    "SENTENCE_EMBEDDING",
    "Manifest",
    "ModelInfo",
    "Signature",
    "TensorInfo",
    "check_destination",
    "checksums",
    "load",
    "publish",
    "read",
    "read_references",
    "repair",
    "sha256",
    "staging",
    "write",
    "write_references",
]
