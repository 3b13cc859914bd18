"""Generation token by token, for callers that need more than text: log-probabilities, and several texts at once."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

import numpy as np

from kerasformer import decoding
from kerasformer.decoding import Controls, GenerationConfig, Step, TextCache, TokenStep


class TokenRun:
    """Iterator over the steps of generation; each yields the tokens of all rows and their nodes in the record.

    Args:
        step: The engine.
        ids: Token ids of the prompt, `(1, P)`.
        mask: Mask of the prompt, `(1, P)`.
        config: Generation settings.
        controls: Runtime controls.
        cache: Keeps the caches of texts for those that begin with the same tokens; `None` for no reuse.

    Attributes:
        finish_reasons: Finish reason of each row, as in `GenerationOutput`; `None` before the end.
        reused: Number of tokens of the prompt that were not read again; known after the first step.
    """

    def __init__(
        self,
        step: Step,
        ids: np.ndarray,
        mask: np.ndarray,
        config: GenerationConfig,
        controls: Controls,
        cache: TextCache | None = None,
    ) -> None:
        self.finish_reasons: list[str] | None = None
        self._resources = ExitStack()
        with ExitStack() as stack:
            self._reusing: Step = step if cache is None else stack.enter_context(cache.reused_by(step))
            self._steps = decoding.token_steps(self._reusing, ids, mask, config, controls)
            self._resources = stack.pop_all()

    @property
    def reused(self) -> int:
        """Number of tokens of the prompt that were not read again."""
        return int(getattr(self._reusing, "reused", 0))

    def __iter__(self) -> TokenRun:
        return self

    def __next__(self) -> TokenStep:
        try:
            return next(self._steps)
        except StopIteration as end:
            self.finish_reasons = end.value
            self.close()
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends generation and keeps or releases its caches."""
        self._steps.close()
        self._resources.close()

    def __enter__(self) -> TokenRun:
        return self

    def __exit__(
        self, exception_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
