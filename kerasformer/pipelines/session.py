"""Sessions: the caches of one text between calls of a pipeline, which can be cloned and kept in files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from kerasformer.engines import ResumableStep, SavedState, Step
from kerasformer.engines.protocols import continues_prompts
from kerasformer.errors import InputError
from kerasformer.generation.prefix_cache import Reusing


class Session:
    """The caches of the last text of a call with `session=`; see `TextGenerationPipeline.session`.

    They save time and never change what a text means: a call reads the tokens of its text that are not at the start of
    the session, and all of them after the model has changed. Between calls a session takes memory for its tokens alone.

    Args:
        step: Engine of the pipeline.
        saved: Saved state with its tokens; optional.

    Attributes:
        note: Further text, which is saved with the session.
        reused: Number of tokens of the last text that were not read again.
        read: Number of tokens of the last prompt that were read.
    """

    def __init__(self, step: Step, saved: SavedState | None = None) -> None:
        if not isinstance(step, ResumableStep) or step.is_encoder_decoder:
            raise InputError("A session continues a text. Expected: a model for text-generation. Received: another one")
        if not continues_prompts(step):
            raise InputError(
                "A session continues a text, but in a prompt of a prefix language model tokens attend to later ones. "
                "Expected: a causal model. Received: a model with prefix_lm=True. Call the pipeline without session"
            )
        self._step, self._saved = step, saved
        self.note = "" if saved is None else saved.note
        self.reused = self.read = 0

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the caches."""
        return 0 if self._saved is None or self._saved.ids is None else len(self._saved.ids)

    @property
    def num_bytes(self) -> int:
        """Memory in bytes, which clones share until they are used."""
        return 0 if self._saved is None else self._saved.num_bytes

    def clone(self) -> Self:
        """Returns a session with the same text, which later calls with either of them do not change."""
        other = type(self)(self._step, self._saved)
        other.note = self.note
        return other

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the session to a file, for `TextGenerationPipeline.load_session`; see `SavedState.write`.

        Raises:
            InputError: the session has no text.
            SourceError: the file cannot be written.
        """
        if self._saved is None:
            raise InputError("This session has no text. Use it in a call first, or create it with a text")
        return replace(self._saved, note=self.note).write(path)

    def check_engine(self, step: Step) -> None:
        """Checks that the session can be used with an engine.

        Raises:
            InputError: the session belongs to another pipeline.
        """
        if step is not self._step:
            raise InputError("This session belongs to another pipeline. Save it, and load it with load_session")

    @contextmanager
    def reused_by(self, step: Step) -> Iterator[Step]:
        """Provides an engine that continues the session; at the end, the session has its text.

        Args:
            step: The engine of `check_engine`.
        """
        copies, identity = () if self._saved is None else (self._saved,), self._step.identity()

        def keep(saved: SavedState) -> None:
            if saved.model == identity:  # otherwise the model was changed while the text was generated
                self._saved = saved

        reusing = Reusing(self._step, None, copies, keep)
        try:
            yield reusing
        finally:
            self.reused, self.read = reusing.reused, reusing.read
            if reusing.latest is not None:
                reusing.keep_copy(reusing.latest)
