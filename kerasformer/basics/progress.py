"""Types of progress callbacks."""

from __future__ import annotations

from collections.abc import Callable

StageProgress = Callable[[str, int, int], None]
"""Called with the name of a stage, the number of completed units and the total number of units of that stage."""

CountProgress = Callable[[int, int], None]
"""Called with the number of completed units and the total number of units."""
