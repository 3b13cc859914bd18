"""Base class of engines that add something to another engine, such as guidance or kept caches."""

from __future__ import annotations

from kerasformer.engines.protocols import Step, can_rewind, input_vocab_size


class WrappedStep:
    """An engine with the attributes of another one, which its methods call.

    Args:
        engine: The other engine.
    """

    def __init__(self, engine: Step) -> None:
        self.engine = engine
        self.is_encoder_decoder, self.capacity = engine.is_encoder_decoder, engine.capacity
        self.vocab_size, self.step_lengths = engine.vocab_size, engine.step_lengths
        self.input_vocab_size, self.rewinds = input_vocab_size(engine), can_rewind(engine)

    @property
    def prefix_lm(self) -> bool:
        """Whether the tokens of a prompt attend to each other in both directions; see `continues_prompts`."""
        return bool(getattr(self.engine, "prefix_lm", False))

    @property
    def num_reused(self) -> int:
        """Number of tokens of the last prompt that `start` did not read, because they were in kept caches."""
        return self.engine.num_reused if isinstance(self.engine, WrappedStep) else 0
