"""Generation in the graph: step after step until every text has ended.

Shape letters: `B` batch, `N` new tokens so far, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kerasformer.errors import require
from kerasformer.export.graph.functions import Function

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Begun:
    """What a loop begins with.

    Attributes:
        tokens: `(B, 1)` int32: what the first step reads.
        caches: Of the tokens before it.
        others: The step's other inputs, for a number of new tokens.
    """

    tokens: Any
    caches: Tensors
    others: Callable[[Any], Tensors]


@dataclass(frozen=True)
class Loop:
    """Steps of a model, as often as wanted.

    Attributes:
        begin: From the inputs to what the loop begins with.
        step: Tokens and caches to logits and caches.
        stops: Tokens that end a text.
        pad: What stands behind an end.
    """

    begin: Callable[[Tensors], Begun]
    step: Function
    stops: tuple[int, ...]
    pad: int

    def greedy(self, max_new_tokens: Any, **inputs: Any) -> Tensors:
        """The most probable token each time.

        Returns:
            `output_ids` `(B, N)`, padded where a text has ended, and `lengths` `(B,)`, the end token included.
        """
        return self._run(inputs, max_new_tokens, lambda scores, place: scores)

    def drawn(self, max_new_tokens: Any, temperature: Any, top_k: Any, seed: Any, **inputs: Any) -> Tensors:
        """A token drawn each time, from the `top_k` most probable ones; from all if that is 0.

        Returns:
            As `greedy`.
        """
        tf = require("tensorflow", "export")

        def perturbed(scores: Any, place: Any) -> Any:
            size = scores.shape[-1]
            least = tf.cond(
                top_k > 0,
                lambda: tf.math.top_k(scores, tf.clip_by_value(top_k, 1, size)).values[:, -1:],
                lambda: tf.fill([tf.shape(scores)[0], 1], scores.dtype.min),
            )
            # The largest sum of a logit and Gumbel noise is a draw from the softmax.
            uniform = tf.random.stateless_uniform(tf.shape(scores), tf.stack([seed, place]), minval=1e-20)
            noisy = scores / temperature - tf.math.log(-tf.math.log(uniform))
            return tf.where(scores < least, scores.dtype.min, noisy)

        return self._run(inputs, max_new_tokens, perturbed)

    def _run(self, inputs: Tensors, count: Any, ranked: Callable[[Any, Any], Any]) -> Tensors:
        """Takes the token that `ranked` puts first, `count` times or until all texts have ended."""
        tf = require("tensorflow", "export")
        begun = self.begin(inputs)
        batch = tf.shape(begun.tokens)[0]

        def goes_on(place: Any, ids: Any, lengths: Any, ended: Any, caches: Tensors) -> Any:
            return tf.logical_and(place < count, tf.logical_not(tf.reduce_all(ended)))

        def step(place: Any, ids: Any, lengths: Any, ended: Any, caches: Tensors) -> Any:
            results = self.step.call(tokens=ids[:, -1:], **begun.others(place), **caches)
            best = tf.argmax(ranked(results.pop("logits")[:, -1], place), axis=-1, output_type=tf.int32)
            token = tf.where(ended, self.pad, best)
            lengths += tf.cast(tf.logical_not(ended), tf.int32)
            for stop in self.stops:
                ended = tf.logical_or(ended, token == stop)
            return place + 1, tf.concat([ids, token[:, None]], axis=1), lengths, ended, results

        start = (0, begun.tokens, tf.zeros(batch, tf.int32), tf.zeros(batch, tf.bool), begun.caches)
        caches = {name: tf.TensorShape([None, t.shape[1], None, t.shape[3]]) for name, t in begun.caches.items()}
        row = tf.TensorShape([None])
        shapes = (tf.TensorShape([]), tf.TensorShape([None, None]), row, row, caches)
        _, ids, lengths, _, _ = tf.while_loop(goes_on, step, start, shapes)
        return {"output_ids": ids[:, 1:], "lengths": lengths}
