"""A model that a text kills; workers import this file, which therefore imports little."""

from __future__ import annotations

import os
import signal
from typing import Any

from kerasformer.tools.integrations.columns import ColumnModel


class Deadly(ColumnModel):
    """A model whose process is killed by one of its texts."""

    def results(self, batch: Any) -> list[Any]:
        if "deadly" in batch["text"]:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().results(batch)
