"""Tokens of pairs of texts for a classifier: as two texts, or by a chat template with the roles `query` and `document`.

A pair that is longer than the model permits is truncated, or its document is split into parts, each of which is read
with the whole query.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerasformer.basics.arguments import STRING, check, integer
from kerasformer.errors import CapacityError, InputError
from kerasformer.pipelines.base import LengthOptions, Pipeline
from kerasformer.pipelines.chunks import Combine, combined_rows
from kerasformer.tokenization import Encoding, TruncationWarning
from kerasformer.tokenization.fitting import check_known


@dataclass(frozen=True)
class Pairs:
    """Tokenized pairs, some in several parts.

    Attributes:
        encoded: The tokens of all parts.
        indices: Index of the pair of each part.
        weights: Number of tokens of the document in each part.
    """

    encoded: Encoding
    indices: np.ndarray
    weights: np.ndarray

    def combined(self, values: np.ndarray, combine: Combine) -> list[np.ndarray]:
        """Returns the value of each pair from those of its parts `(num_parts, …)`."""
        rows = [np.flatnonzero(self.indices == pair) for pair in range(int(self.indices.max(initial=-1)) + 1)]
        return combined_rows(values, rows, self.weights, combine)


class PairPipeline(Pipeline):
    """Base of pipelines that read pairs of texts."""

    def _encode_pairs(
        self, queries: Sequence[str], documents: Sequence[str], options: LengthOptions, prompt: str | None = None
    ) -> Pairs:
        """Tokenizes pairs, by the template of the tokenizer if there is one for pairs.

        Args:
            queries: First texts.
            documents: Second texts.
            options: Treatment of pairs that exceed the maximum length.
            prompt: Instruction for the template; its own by default.

        Raises:
            CapacityError: a pair is too long.
            InputError: a prompt without a template for pairs.
        """
        if self.tokenizer.pair_template is not None:
            return self._by_template(queries, documents, options, prompt)
        if prompt is not None:
            raise InputError(
                "A prompt needs a tokenizer whose chat template has the roles 'query' and 'document'. Expected: "
                f"prompt=None. Received: prompt={prompt!r}"
            )
        encoded = self._encode(queries, options, documents)
        weights = np.maximum((encoded.sequence_ids == 1).sum(axis=1), 1)
        return Pairs(encoded, encoded.overflow_to_sample, weights)

    def _by_template(
        self, queries: Sequence[str], documents: Sequence[str], options: LengthOptions, prompt: str | None
    ) -> Pairs:
        if prompt is not None:
            check("prompt", prompt, STRING)
        longest = self.info.max_length
        limit = (
            longest
            if options.chunk_length is None
            else check("chunk_length", options.chunk_length, integer(1, longest))
        )
        parts, indices, weights = [], list[int](), list[int]()
        for index, (query, document) in enumerate(zip(queries, documents, strict=True)):
            for text, weight in self._parts(query, document, options, prompt, limit):
                parts.append(text)
                indices.append(index)
                weights.append(weight)
        encoded = self.tokenizer(parts, add_special_tokens=False, padding_side="right")
        check_known(encoded.input_ids, self.tokenizer, self.info.vocab_size)
        width = int(encoded.attention_mask.sum(axis=1).max(initial=0))
        if limit is not None and width > limit:
            raise CapacityError(
                f"A pair exceeds the model's maximum length. Expected at most {limit} tokens. Received: {width}. "
                "Shorten it, or pass truncation=True to truncate it."
            )
        return Pairs(encoded, np.array(indices), np.array(weights))

    def _parts(
        self, query: str, document: str, options: LengthOptions, prompt: str | None, limit: int | None
    ) -> list[tuple[str, int]]:
        """Returns the texts of a pair, one for each part of its document, with the number of tokens of that part."""

        def render(part: str) -> str:
            return self.tokenizer.apply_pair_template(query, part, prompt)

        def count(text: str) -> int:
            return len(self.tokenizer.encode(text, add_special_tokens=False))

        text = render(document)
        if limit is None or count(text) <= limit or not (options.truncation or options.in_chunks):
            return [(text, max(count(document), 1))]
        space = limit - count(render("")) - 1  # the first token of a part may differ from that in the document
        if space < 1:
            raise CapacityError(
                "The query and the chat template leave no space for a document. Expected: fewer than "
                f"{limit - 1} tokens. Received: {limit - space - 1}. Shorten the query."
            )
        stride = space // 4 if options.stride is None else check("stride", options.stride, integer(0, space - 1))
        tokens = self.tokenizer(
            document,
            truncation="only_first",
            max_length=space,
            stride=0 if options.truncation else stride,
            return_overflowing_tokens=True,
            add_special_tokens=False,
            padding_side="right",
        )
        lengths = tokens.attention_mask.sum(axis=1)
        parts = [
            (render(document[row[0, 0] : row[length - 1, 1]]), int(length))
            for row, length in zip(tokens.offsets, lengths, strict=True)
        ]
        if not options.truncation:
            return parts
        warnings.warn(
            f"A document was truncated: {int(lengths[0])} of its {count(document)} tokens were read",
            TruncationWarning,
            stacklevel=2,
        )
        return parts[:1]
