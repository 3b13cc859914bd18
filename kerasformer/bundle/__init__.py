"""Exported bundles: the `Bundle` class, the manifest, the reference answers, and safe replacement of folders."""

from kerasformer.bundle.interface import PROBABILITIES, SENTENCE_EMBEDDING, Kind, Role, Signature, TensorInfo
from kerasformer.bundle.limits import Limits
from kerasformer.bundle.manifest import (
    FORMAT_VERSION,
    REFERENCES,
    SIMILARITIES,
    EmbeddingInfo,
    GpuFinding,
    LanguageInfo,
    Manifest,
    ModelInfo,
    checksums,
    encoded,
    load,
    read,
    read_references,
    sha256,
    write,
    write_references,
)
from kerasformer.bundle.opened import Bundle, agreement_text, compared_answers, fidelity_line
from kerasformer.files.publishing import MANIFEST, check_destination, publish, repair, staging

__all__ = [
    "FORMAT_VERSION",
    "MANIFEST",
    "PROBABILITIES",
    "REFERENCES",
    "SENTENCE_EMBEDDING",
    "SIMILARITIES",
    "Bundle",
    "EmbeddingInfo",
    "GpuFinding",
    "LanguageInfo",
    "Kind",
    "Limits",
    "Manifest",
    "ModelInfo",
    "Role",
    "Signature",
    "TensorInfo",
    "agreement_text",
    "check_destination",
    "checksums",
    "compared_answers",
    "encoded",
    "fidelity_line",
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
