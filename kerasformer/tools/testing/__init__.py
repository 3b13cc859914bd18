"""Checks of an architecture, of this package or of another one: `check_architecture`.

They need the extra `test`, for the references in `transformers`.
"""

# ruff: noqa: E402 - checked first, so that the error names the extra to install where a reference is missing
from kerasformer.extras import require

require("torch", "test")
require("transformers", "test")

from kerasformer.tools.testing.architecture import ArchitectureReport, check_architecture
from kerasformer.tools.testing.case import Case

__all__ = ["ArchitectureReport", "Case", "check_architecture"]
