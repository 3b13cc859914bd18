"""Types of the functions that are told how far a long piece of work is."""

from __future__ import annotations

from collections.abc import Callable

StageProgress = Callable[[str, int, int], None]
"""Called with the name of a stage, the units that are done, and all units of that stage."""

CountProgress = Callable[[int, int], None]
"""Called with the units that are done, and all units."""
