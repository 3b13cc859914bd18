"""Generation in the graph: a loop of steps until every text has ended.

Shape letters: `B` batch size, `N` new tokens so far, `V` vocabulary size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kerasformer.export.graph.functions import Function
from kerasformer.extras import require
from kerasformer.layers.tensor import Tensor

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class InitialState:
    """State of a loop before its first step.

    Attributes:
        tokens: Tokens that the first step reads, int32 `(B, 1)`.
        caches: Caches of the tokens before them.
        other_inputs: Takes the number of new tokens so far and returns the other inputs of a step.
    """

    tokens: Tensor
    caches: Tensors
    other_inputs: Callable[[Tensor], Tensors]


@dataclass(frozen=True)
class Loop:
    """Generation loop of a model.

    Attributes:
        start: Computes the initial state from the inputs.
        step: Computes logits and caches from tokens and caches.
        stops: Tokens that end a text.
        pad: Token that fills a row after its end.
    """

    start: Callable[[Tensors], InitialState]
    step: Function
    stops: tuple[int, ...]
    pad: int

    def greedy(self, max_new_tokens: Tensor, **inputs: Tensor) -> Tensors:
        """Generates the most probable token in each step.

        Returns:
            `output_ids` `(B, N)`, padded after the end of a text, and `lengths` `(B,)`, which include the end token.
        """
        return self._run(inputs, max_new_tokens, lambda scores, step: scores)

    def sampled(
        self, max_new_tokens: Tensor, temperature: Tensor, top_k: Tensor, seed: Tensor, **inputs: Tensor
    ) -> Tensors:
        """Samples each token from the `top_k` most probable ones, or from all if `top_k` is 0.

        Returns:
            As `greedy`.
        """
        tf = require("tensorflow", "export")

        def perturbed(scores: Tensor, step: Tensor) -> Tensor:
            size = scores.shape[-1]
            least = tf.cond(
                top_k > 0,
                lambda: tf.math.top_k(scores, tf.clip_by_value(top_k, 1, size)).values[:, -1:],
                lambda: tf.fill([tf.shape(scores)[0], 1], scores.dtype.min),
            )
            # The argmax of logits plus Gumbel noise is a sample from the softmax.
            uniform = tf.random.stateless_uniform(tf.shape(scores), tf.stack([seed, step]), minval=1e-20)
            noisy = scores / temperature - tf.math.log(-tf.math.log(uniform))
            return tf.where(scores < least, scores.dtype.min, noisy)

        return self._run(inputs, max_new_tokens, perturbed)

    def _run(self, inputs: Tensors, count: Tensor, ranked: Callable[[Tensor, Tensor], Tensor]) -> Tensors:
        """Appends the token with the highest rank, `count` times or until all texts have ended."""
        tf = require("tensorflow", "export")
        initial = self.start(inputs)
        batch = tf.shape(initial.tokens)[0]

        def condition(index: Tensor, ids: Tensor, lengths: Tensor, ended: Tensor, caches: Tensors) -> Tensor:
            return tf.logical_and(index < count, tf.logical_not(tf.reduce_all(ended)))

        def step(index: Tensor, ids: Tensor, lengths: Tensor, ended: Tensor, caches: Tensors) -> Tensor:
            results = self.step.call(tokens=ids[:, -1:], **initial.other_inputs(index), **caches)
            best = tf.argmax(ranked(results.pop("logits")[:, -1], index), axis=-1, output_type=tf.int32)
            token = tf.where(ended, self.pad, best)
            lengths += tf.cast(tf.logical_not(ended), tf.int32)
            for stop in self.stops:
                ended = tf.logical_or(ended, token == stop)
            return index + 1, tf.concat([ids, token[:, None]], axis=1), lengths, ended, results

        variables = (0, initial.tokens, tf.zeros(batch, tf.int32), tf.zeros(batch, tf.bool), initial.caches)
        sizes = {name: self.step.inputs[name].shape for name in initial.caches}
        caches = {
            name: tf.TensorShape([size if isinstance(size, int) else None for size in shape])
            for name, shape in sizes.items()
        }
        row = tf.TensorShape([None])
        shapes = (tf.TensorShape([]), tf.TensorShape([None, None]), row, row, caches)
        _, ids, lengths, _, _ = tf.while_loop(condition, step, variables, shapes)
        return {"output_ids": ids[:, 1:], "lengths": lengths}
