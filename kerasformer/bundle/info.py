"""What pipelines know about a model, the same for Keras models and bundles: task, labels, special tokens, languages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
"""Similarities of embeddings, by the names of sentence-transformers."""


@dataclass(frozen=True)
class EmbeddingInfo:
    """Properties of the embeddings that a model computes, one for each text.

    Attributes:
        dimension: Size of an embedding.
        pooling: Kinds of pooling in the graph, whose results are concatenated.
        normalized: Whether all embeddings have length 1.
        similarity: How two embeddings are compared, one of `SIMILARITIES`.
        prompts: Texts put before an input, by name.
        default_prompt: Name of the prompt that is used if none is requested.
        truncate_dim: Number of first entries to keep by default; `None` for all.
    """

    dimension: int
    pooling: tuple[str, ...] = ("mean",)
    normalized: bool = False
    similarity: Literal["cosine", "dot", "euclidean", "manhattan"] = "cosine"
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    truncate_dim: int | None = None


@dataclass(frozen=True)
class SparseInfo:
    """Properties of the sparse vectors that a model computes, one for each text, with a weight for each token.

    Attributes:
        pooling: How the weights of a text are pooled in the graph, `"max"` or `"sum"`.
        max_active_dims: Number of largest weights to keep by default; `None` for all.
        prompts: Texts put before an input, by name.
        default_prompt: Name of the prompt that is used if none is requested.
    """

    pooling: Literal["max", "sum"] = "max"
    max_active_dims: int | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None


@dataclass(frozen=True)
class MultiVectorInfo:
    """Properties of the vectors that a model computes, one for each token of a text.

    Attributes:
        dimension: Size of a vector.
        unified: Whether there are also an embedding of the text and weights of its tokens, and the first token has no
            vector (BGE-M3).
        similarity: How queries and documents are compared: `"maxsim"`, the sum over the vectors of the query of their
            largest dot product with a vector of the document, or `"meanmaxsim"`, the mean.
        prompts: Texts put before an input, by name.
        default_prompt: Name of the prompt that is used if none is requested.
        prefix_tokens: Whether a prompt that is a token of the vocabulary is read as this token.
        query_length: Maximum length of a query in tokens; `None` for that of the model.
        document_length: Maximum length of a document, likewise.
        expansion: Whether queries are extended to `expansion_length` tokens, and not longer (`"fixed"`), or unless they
            are longer (`"min"`).
        expansion_length: Number of tokens of an extended query.
        expansion_token: Token that extends queries; the mask token by default.
        skiplist: Tokens of documents that have no vector.
    """

    dimension: int
    unified: bool = False
    similarity: Literal["maxsim", "meanmaxsim"] = "maxsim"
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    prefix_tokens: bool = False
    query_length: int | None = None
    document_length: int | None = None
    expansion: Literal["fixed", "min"] | None = None
    expansion_length: int = 32
    expansion_token: str | None = None
    skiplist: tuple[str, ...] = ()


@dataclass(frozen=True)
class SpanInfo:
    """Properties of a model that finds spans of named types.

    Attributes:
        max_width: Number of words of the longest span.
        max_words: Maximum number of words of a text.
        label_token: Token before the name of each type.
        separator: Token between the names and the text.
        max_labels: Maximum number of types in one call; `None` without a limit.
    """

    max_width: int
    max_words: int
    label_token: str
    separator: str
    max_labels: int | None = None


@dataclass(frozen=True)
class LanguageInfo:
    """Languages of a multilingual model, whose texts contain a token for their language.

    Attributes:
        ids: Ids of the tokens of the languages, by the codes of the languages.
        after: Whether this token follows the text and its end token; otherwise it precedes the text.
        setting: Generation setting that selects the language of the output by the id of its token,
            `"forced_bos_token_id"` or `"decoder_start_token_id"`.
        src_lang: Code of the language of the input by default; optional.
        tgt_lang: Code of the language of the output by default; optional.
    """

    ids: dict[str, int]
    after: bool
    setting: Literal["forced_bos_token_id", "decoder_start_token_id"]
    src_lang: str | None = None
    tgt_lang: str | None = None


@dataclass(frozen=True)
class ModelInfo:
    """Properties of a model that pipelines use, the same for Keras models and bundles.

    Attributes:
        task: Hugging Face task name, such as `"text-classification"`.
        model_type: Hugging Face model type, such as `"bert"`.
        name: Class name of the Keras model, such as `"BertTextClassification"`.
        labels: Label names in the order of their ids.
        problem_type: `"single_label_classification"`, `"multi_label_classification"` or `"regression"`.
        max_length: Maximum input length in tokens, that of the encoder in an encoder-decoder; `None` without a limit.
        vocab_size: Number of token ids.
        num_segments: Number of values of `token_type_ids`; `None` if unknown.
        is_encoder_decoder: Whether the model has an encoder and a decoder.
        pad_token_id: Id of the padding token.
        bos_token_id: Id of the token that starts a text.
        decoder_start_token_id: First token of the decoder of an encoder-decoder; `None` if it is not known, or if a
            model that does not generate reads the last token of the text there (mBART).
        eos_token_id: Ids of the tokens that end a generated text.
        task_prefixes: Text put before the input, by task (`{"summarization": "summarize: "}`). That of the task `""` is
            for the tasks that it does not name.
        task_settings: Generation settings of a task, which override `generation`
            (`{"summarization": {"num_beams": 4}}`).
        input_names: Hugging Face names of the encoder's inputs.
        generation: Content of `generation_config.json`.
        embedding: Properties of the embeddings, of a model for sentence-similarity.
        score_activation: Function of PyTorch that turns the logits of a cross-encoder into scores, such as
            `"torch.nn.modules.linear.Identity"`, as in the files of sentence-transformers; optional.
        languages: Languages of the tokenizer, of a multilingual model.
        spans: Properties of a model for zero-shot-token-classification.
        sparse: Properties of the vectors of a model for sparse-similarity.
        vectors: Properties of the vectors of a model for multi-vector-similarity.
    """

    task: str
    model_type: str = ""
    name: str = ""
    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    max_length: int | None = None
    vocab_size: int = 0
    num_segments: int | None = None
    is_encoder_decoder: bool = False
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    decoder_start_token_id: int | None = None
    eos_token_id: tuple[int, ...] = ()
    task_prefixes: dict[str, str] = field(default_factory=dict)
    task_settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    input_names: tuple[str, ...] = ()
    generation: dict[str, Any] = field(default_factory=dict)
    embedding: EmbeddingInfo | None = None
    score_activation: str | None = None
    languages: LanguageInfo | None = None
    spans: SpanInfo | None = None
    sparse: SparseInfo | None = None
    vectors: MultiVectorInfo | None = None

    @property
    def embeds(self) -> bool:
        """Whether the outputs are vectors, which are compared by their directions."""
        return any(each is not None for each in (self.embedding, self.sparse, self.vectors))

    def input_vocab_size(self, num_scores: int) -> int:
        """Returns the number of ids of prompts, from the number of scores of each token.

        Both are equal, except in an encoder-decoder with two vocabularies (Marian).
        """
        return self.vocab_size if self.is_encoder_decoder and self.vocab_size else num_scores

    @property
    def input_padding(self) -> int:
        """Id that fills the rest of a text's ids, which the mask hides.

        It is that of padding, except where padding is a token of only the vocabulary that the model writes (Marian).
        """
        padding = self.pad_token_id or 0
        return 0 if self.vocab_size and padding >= self.vocab_size else padding

    @property
    def output_language(self) -> str | None:
        """Code of the language that the generation settings select for the output; `None` without one."""
        if self.languages is None:
            return None
        codes = {index: code for code, index in self.languages.ids.items()}
        names = ("forced_bos_token_id", "decoder_start_token_id")
        return next((codes[self.generation[name]] for name in names if self.generation.get(name) in codes), None)

    @property
    def counts(self) -> dict[str, int | None]:
        """Number of values that each input of ids may have, by its name; `None` if unknown."""
        return {"input_ids": self.vocab_size or None, "token_type_ids": self.num_segments}

    @property
    def start_token_id(self) -> int:
        """First token of the decoder of an encoder-decoder; manifests of version 1 may not specify one."""
        known = (self.decoder_start_token_id, self.bos_token_id, self.pad_token_id, 0)
        return next(token for token in known if token is not None)

    def prefixes(self, task: str | None = None) -> dict[str, str]:
        """Returns the prefixes for a task; for `translation` those of all languages, such as `translation_en_to_de`.

        Args:
            task: Task name; defaults to the model's task. All tasks start with `""`.
        """
        task = self.task if task is None else task
        return {name: text for name, text in self.task_prefixes.items() if name and name.startswith(task)}

    def default_prefix(self, task: str | None = None) -> str | None:
        """Returns the text put before an input by default; `None` if the caller must choose one of several.

        It is that of the task, of all tasks, or of the only variant of the task, such as `translation_en_to_de`.

        Args:
            task: Task name; defaults to the model's task.
        """
        task = self.task if task is None else task
        variants = list(self.prefixes(task).values())
        known = self.task_prefixes.get(task, self.task_prefixes.get(""))
        if known is not None:
            return known
        return None if len(variants) > 1 else next(iter(variants), "")

    @property
    def prefix(self) -> str:
        """Text put before an input by default, or nothing if the caller must choose one of several."""
        return self.default_prefix() or ""

    @property
    def sample_prefix(self) -> str:
        """Text put before sample inputs: a prefix for the task, or otherwise any prefix of the model."""
        return self.prefix or next(iter({**self.prefixes(), **self.task_prefixes}.values()), "")
