"""Exported bundles: the `Bundle` class, the manifest, the reference answers, and safe replacement of folders."""

from kerasformer.bundle.figures import (
    Fidelity,
    Limits,
    Rounding,
    agreement_text,
    compared_answers,
    fidelity_line,
    figure_rows,
    quality_text,
)
from kerasformer.bundle.info import SIMILARITIES, EmbeddingInfo, LanguageInfo, ModelInfo
from kerasformer.bundle.interface import PROBABILITIES, SENTENCE_EMBEDDING, Kind, Role, Signature, TensorInfo
from kerasformer.bundle.manifest import (
    FORMAT_VERSION,
    REFERENCES,
    GpuFinding,
    Manifest,
    checksums,
    encoded,
    load,
    read,
    read_references,
    sha256,
    write,
    write_references,
)
from kerasformer.bundle.opened import Bundle
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
    "Fidelity",
    "GpuFinding",
    "LanguageInfo",
    "Kind",
    "Limits",
    "Manifest",
    "ModelInfo",
    "Role",
    "Rounding",
    "Signature",
    "TensorInfo",
    "agreement_text",
    "check_destination",
    "checksums",
    "compared_answers",
    "encoded",
    "fidelity_line",
    "figure_rows",
    "load",
    "publish",
    "quality_text",
    "read",
    "read_references",
    "repair",
    "sha256",
    "staging",
    "write",
    "write_references",
]
