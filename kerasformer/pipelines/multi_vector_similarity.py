"""Vectors of the tokens of texts and their late interaction, and all kinds of vectors of one pass (BGE-M3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import numpy as np

from kerasformer.basics.arguments import BOOLEAN, check, integer, one_of
from kerasformer.basics.tasks import MULTI_VECTOR_SIMILARITY, NEEDS
from kerasformer.bundle import EXPANSION_MASK, SENTENCE_EMBEDDING, TOKEN_EMBEDDINGS, TOKEN_WEIGHTS, MultiVectorInfo
from kerasformer.engines.arrays import similar_rows
from kerasformer.errors import CapacityError, InputError
from kerasformer.pipelines.inputs import progress_bar, read_inputs, read_text
from kerasformer.pipelines.opening import Opened
from kerasformer.pipelines.prompted import (
    DENSE,
    DOCUMENT,
    KINDS,
    MULTI_VECTOR,
    QUERY,
    SPARSE,
    RetrievalPipeline,
)
from kerasformer.pipelines.sparse_vectors import SparseVector, dot_products, sparse_vector
from kerasformer.tokenization.fitting import check_known


class TextVectors(TypedDict):
    """The vectors of a text: of its tokens `(T, D)`, and those of BGE-M3, `(E,)` and the weights of its tokens."""

    multi_vector: np.ndarray
    dense: NotRequired[np.ndarray]
    sparse: NotRequired[SparseVector]


@dataclass(frozen=True)
class _Tokens:
    """Tokens of a text.

    Attributes:
        ids: All tokens that the model reads, the last of which may extend a query.
        count: Number of tokens of the text itself.
    """

    ids: list[int]
    count: int


class MultiVectorSimilarityPipeline(RetrievalPipeline):
    """Computes a vector of each token of a text, and compares queries with documents by them.

    The score of a document is the sum over the vectors of the query of their largest dot product with a vector of the
    document (MaxSim). A model with the files of BGE-M3 also computes an embedding of the text (`"dense"`) and the
    weights of its tokens (`"sparse"`), by which it can score, too.

    Raises:
        InputError: the model computes no such vectors.

    Reference: Khattab and Zaharia 2020, arXiv:2004.12832; Chen et al. 2024, arXiv:2402.03216.
    """

    _of_scores = ("weights",)

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        if self.info.vectors is None:
            needs = NEEDS[MULTI_VECTOR_SIMILARITY]
            raise InputError(f"{self.task} needs {needs}. Received: {self.info.name}")
        self._vectors: MultiVectorInfo = self.info.vectors
        skipped = map(self.tokenizer.token_to_id, self._vectors.skiplist)
        self._skipped = sorted({token for token in skipped if token is not None} - {self.tokenizer.unk_token_id})
        names = ("cls_token_id", "sep_token_id", "eos_token_id", "pad_token_id", "unk_token_id")
        self._special = [getattr(self.tokenizer, name) for name in names]
        self._expansion_id = self._id_of_expansion()

    @property
    def embedding(self) -> MultiVectorInfo:
        """Properties of the vectors: dimension, prompts, lengths of queries and documents."""
        return self._vectors

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of vectors of a text: `"multi_vector"`, and for BGE-M3 also `"dense"` and `"sparse"`."""
        return KINDS if self._vectors.unified else (MULTI_VECTOR,)

    def encode(
        self,
        texts: object,
        *,
        text_type: str = "document",
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 16,
        truncation: bool = False,
        progress: bool = False,
        **others: Any,
    ) -> Any:
        """Computes the vectors of texts.

        Args:
            texts: A text, or a list or another iterable of texts.
            text_type: `"query"` or `"document"`, which have different lengths; only queries are extended by mask
                tokens, and only documents lack the vectors of punctuation, as far as the model does so.
            prompt_name: Name of the prompt of the model to put before each text; its default prompt, if there is one,
                if neither `prompt_name` nor `prompt` is passed.
            prompt: Text to put before each text; `""` for none.
            batch_size: Number of texts in one call of the model.
            truncation: Whether to truncate a text that is longer than the model reads, with a warning.
            progress: Whether to show a progress bar on standard error.
            others: Options of other vectors, which raise an error.

        Returns:
            For a text, a dictionary with the vectors of its tokens `"multi_vector"`, float32 `(T, D)`, and for BGE-M3
            its embedding `"dense"` `(E,)` and the weights `"sparse"` by token, the largest first, without special
            tokens; for several texts, a list of them. The first token has no vector in BGE-M3.

        Raises:
            InputError: an input is not a text; an unknown prompt or option.
            CapacityError: a text is too long.
        """
        if others:
            raise InputError(
                "Vectors of tokens have the options text_type, prompt_name, prompt, batch_size, truncation and "
                f"progress. Received: {', '.join(others)}"
            )
        checked, before = read_inputs(texts, read_text), self._prompt(prompt_name, prompt)
        is_query = check("text_type", text_type, one_of("query", "document")) == "query"
        cuts = check("truncation", truncation, BOOLEAN)
        size, shows = check("batch_size", batch_size, integer(1)), check("progress", progress, BOOLEAN)
        tokens = self._tokens(list(checked.items), before, is_query, cuts)
        vectors: list[TextVectors] = [{"multi_vector": np.zeros((0, 0))} for _ in tokens]
        with progress_bar(self.task, len(tokens), shows) as advance:
            for rows in similar_rows(np.array([len(each.ids) for each in tokens], int), size):
                outputs = self._run_tokens([tokens[row] for row in rows])
                for index, row in enumerate(rows):
                    answer = {name: value[index] for name, value in outputs.items()}
                    vectors[row] = self._vectors_of(tokens[row], answer, is_query)
                advance(len(rows))
        return vectors[0] if checked.form == "one" else vectors

    def encode_query(self, texts: object, **options: Any) -> Any:
        """Computes the vectors of queries: as `encode`, with the prompt `query` of the model if it has one."""
        return self.encode(texts, **{"text_type": "query", **self._with_prompt(options, QUERY)})

    def encode_document(self, texts: object, **options: Any) -> Any:
        """Computes the vectors of documents: as `encode`, with the prompt `document`, `passage` or `corpus`."""
        return self.encode(texts, **{"text_type": "document", **self._with_prompt(options, DOCUMENT)})

    def similarity(self, some: object, others: object, weights: Mapping[str, float] | None = None) -> np.ndarray:
        """Returns the scores of documents for queries, float32 `(N, M)`.

        With several kinds of vectors, a score is `(w_dense * dense + w_sparse * sparse + w_multi * multi) / (w_dense +
        w_sparse + w_multi)`, as in `compute_score` of `M3Embedder` of FlagEmbedding: `dense` is the dot product of the
        embeddings, `sparse` that of the weights of tokens, and `multi` the mean over the vectors of the query of their
        largest dot product with a vector of the document. (There, padding of a batch counts as a vector of zeros; here,
        a score does not depend on other texts.)

        Args:
            some: Queries: a text, a list of texts, or what `encode_query` returned.
            others: Documents: the same, or what `encode_document` returned.
            weights: Weights of the scores by kind of vectors, `"dense"`, `"sparse"` and `"multi_vector"`, such as
                `{"dense": 1, "sparse": 0.3}`; kinds that it does not name do not count. By default all count the same.

        Raises:
            InputError: neither texts nor such vectors; or weights of other kinds, negative, or 0 for all.
        """
        chosen = self.score_weights(weights)
        queries, documents = self._as_vectors(some, True, chosen), self._as_vectors(others, False, chosen)
        total = np.zeros((len(queries), len(documents)), "float64")
        for kind, weight in chosen.items():
            total += weight * self._scores(kind, [each[kind] for each in queries], [each[kind] for each in documents])
        return (total / sum(chosen.values())).astype("float32")

    def _scores(self, kind: str, queries: Sequence[Any], documents: Sequence[Any]) -> np.ndarray:
        if kind == SPARSE:
            return dot_products(queries, documents)
        if kind == DENSE:
            return np.array([[query @ document for document in documents] for query in queries]).reshape(
                len(queries), len(documents)
            )
        scores = np.zeros((len(queries), len(documents)))
        for row, query in enumerate(queries):
            for column, document in enumerate(documents):
                if len(query) and len(document):
                    scores[row, column] = (query @ document.T).max(axis=1).sum(dtype="float64")
            scores[row] /= max(len(query), 1) if self._vectors.similarity == "meanmaxsim" else 1
        return scores

    def _as_vectors(self, value: object, is_query: bool, kinds: Mapping[str, float]) -> list[Any]:
        """Returns the vectors of texts, or the given ones."""
        values = list(value) if isinstance(value, list | tuple) else [value]
        if isinstance(value, np.ndarray) or any(not isinstance(each, str) for each in values):
            for each in values:
                if not isinstance(each, Mapping) or not set(kinds) <= set(each):
                    raise InputError(
                        "Texts, or vectors that encode_query and encode_document returned, were expected: dictionaries "
                        f"with {', '.join(kinds)}. Received: {type(each).__name__}, {each!r:.100}"
                    )
            return values
        encoded = (self.encode_query if is_query else self.encode_document)(value)
        return [encoded] if isinstance(encoded, dict) else list(encoded)

    def _id_of_expansion(self) -> int | None:
        """Returns the id of the token that extends queries; `None` if they are not extended.

        Raises:
            InputError: the tokenizer lacks it.
        """
        if self._vectors.expansion is None:
            return None
        token = self._vectors.expansion_token
        usual = self.tokenizer.mask_token_id
        usual = self.tokenizer.eos_token_id if usual is None else usual
        found = usual if token is None else self.tokenizer.token_to_id(token)
        if found is None:
            raise InputError(
                f"The tokenizer must have {'a mask token' if token is None else repr(token)}, by which the model "
                "extends queries. Received: one without. Is this the tokenizer of this model?"
            )
        return int(found)

    def _tokens(self, texts: list[str], prompt: str, is_query: bool, truncation: bool) -> list[_Tokens]:
        """Returns the tokens of texts after a prompt.

        Raises:
            CapacityError: a text is too long.
        """
        prefix, before = self._prefix(prompt)
        limit, extended = self._limits(is_query)
        room = None if limit is None else limit - len(prefix)
        encoded = self.tokenizer(
            [before + text for text in texts],
            truncation="only_first" if truncation and room is not None else False,
            max_length=room if truncation else None,
            padding_side="right",
            pad_to=1,
        )
        check_known(encoded.input_ids, self.tokenizer, self.info.vocab_size)
        rows = []
        for ids, mask, parts in zip(encoded.input_ids, encoded.attention_mask, encoded.sequence_ids, strict=True):
            real = ids[mask > 0].tolist()
            start = int(np.argmax(parts == 0)) if (parts == 0).any() else min(1, len(real))
            real[start:start] = prefix
            if limit is not None and len(real) > limit:
                what = "query" if is_query else "document"
                raise CapacityError(
                    f"A {what} is too long. Expected: at most {limit} tokens. Received: {len(real)}. Shorten it, or "
                    "pass truncation=True to truncate it"
                )
            more = max(0, (extended if self._expansion_id is not None else 0) - len(real))
            rows.append(_Tokens(real + [self._expansion_id or 0] * more, len(real)))
        return rows

    def _limits(self, is_query: bool) -> tuple[int | None, int]:
        """Returns the maximum number of tokens of a text, and the number of tokens of an extended query."""
        vectors, extended = self._vectors, 0
        length = vectors.query_length if is_query else vectors.document_length
        if is_query and vectors.expansion is not None:
            extended = vectors.expansion_length
            if vectors.expansion == "fixed":
                length = extended
            elif length is not None:
                length = max(length, extended)
        limit = min(filter(None, (length, self.info.max_length)), default=None)
        return limit, extended if limit is None else min(extended, limit)

    def _prefix(self, prompt: str) -> tuple[list[int], str]:
        """Returns the ids of a prompt that is a token of the vocabulary, and the text before each text otherwise."""
        if self._vectors.prefix_tokens and prompt.strip():
            for token in (prompt, prompt.split(maxsplit=1)[0]):
                found = self.tokenizer.token_to_id(token)
                if found is not None and found != self.tokenizer.unk_token_id:
                    return [found], prompt[len(token) :]
        return [], prompt

    def _run_tokens(self, tokens: Sequence[_Tokens]) -> dict[str, np.ndarray]:
        """Returns the outputs of the model for a batch of texts."""
        width = max(1, *(len(each.ids) for each in tokens))
        arrays = {
            name: np.zeros((len(tokens), width), "int32") for name in self.info.input_names if name != "position_ids"
        }
        arrays["input_ids"][:] = self.info.input_padding
        for row, each in enumerate(tokens):
            arrays["input_ids"][row, : len(each.ids)] = each.ids
            arrays["attention_mask"][row, : len(each.ids)] = 1
            if EXPANSION_MASK in arrays:
                arrays[EXPANSION_MASK][row, each.count : len(each.ids)] = 1
        return self._finite(self._forward().run(arrays))

    def _vectors_of(self, tokens: _Tokens, answer: Mapping[str, np.ndarray], is_query: bool) -> TextVectors:
        """Returns the vectors of a text from the outputs of the model for it."""
        ids = np.array(tokens.ids, int)
        kept = np.ones(len(ids), bool) if is_query else ~np.isin(ids, self._skipped)
        kept[:1] &= not self._vectors.unified  # the state of the first token is the dense vector
        vectors = answer[TOKEN_EMBEDDINGS][: len(ids)]
        result: TextVectors = {"multi_vector": vectors[kept]}
        if self._vectors.unified:
            weighed = ~np.isin(ids, [each for each in self._special if each is not None])
            weights = answer[TOKEN_WEIGHTS][: len(ids)][weighed]
            result["dense"] = answer[SENTENCE_EMBEDDING]
            result["sparse"] = sparse_vector(weights, ids[weighed], self.tokenizer)
        return result
