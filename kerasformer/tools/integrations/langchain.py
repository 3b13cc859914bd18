"""Models of LangChain on a bundle or a checkpoint, without a server: embeddings, texts and conversations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kerasformer.extras import require
from kerasformer.pipelines import pipeline
from kerasformer.tools.server.stop_texts import StopTexts

require("langchain_core", "langchain")

from langchain_core import outputs  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.language_models import BaseChatModel, BaseLLM  # noqa: E402
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages  # noqa: E402


def _opened(source: Any, task: str, options: dict[str, Any] | None = None) -> Any:
    return source if hasattr(source, "engine") else pipeline(source, task, **(options or {}))


class KerasformerEmbeddings(Embeddings):
    """Embeddings of texts, with the prompts of the model for queries and documents.

    Args:
        source: Bundle, checkpoint, preset, hub id, or a pipeline for sentence-similarity.
        options: Options of the runtime of a bundle, such as `num_threads`.
    """

    def __init__(self, source: Any, **options: Any) -> None:
        self.pipe = _opened(source, "sentence-similarity", options)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Returns the embeddings of documents."""
        vectors: list[list[float]] = self.pipe.encode_document(texts).tolist() if texts else []
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Returns the embedding of a query."""
        vector: list[float] = self.pipe.encode_query(text).tolist()
        return vector


class _Generating:
    """What both models have in common.

    Args:
        source: Bundle, checkpoint, preset, hub id, or a pipeline for text-generation.
        arguments: Settings of generation, such as `max_new_tokens` or `json_schema`, which those of a call or of `bind`
            override; and fields of the class of LangChain, such as `tags`.
    """

    source: Any
    settings: dict[str, Any]

    def __init__(self, source: Any, **arguments: Any) -> None:
        fields = {name: arguments.pop(name) for name in [*arguments] if name in type(self).model_fields}  # type: ignore
        super().__init__(source=_opened(source, "text-generation"), settings=arguments, **fields)  # type: ignore

    @property
    def _llm_type(self) -> str:
        return "kerasformer"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.source.info.name, **self.settings}

    def _pieces(self, inputs: Any, stop: Sequence[str] | None, settings: dict[str, Any]) -> Iterator[str]:
        """Yields the new text piece by piece, up to the first stop text."""
        stops, strings = StopTexts(stop or []), {"stop_strings": stop} if stop else {}
        for piece in self.source.stream(inputs, **{**self.settings, **settings, **strings}):
            if text := stops.put(piece):
                yield text
        if text := stops.end():
            yield text


class KerasformerLLM(_Generating, BaseLLM):
    """Continuations of texts."""

    source: Any
    settings: dict[str, Any]

    def _generate(
        self, prompts: list[str], stop: list[str] | None = None, run_manager: Any = None, **settings: Any
    ) -> outputs.LLMResult:
        texts = ["".join(self._pieces(prompt, stop, settings)) for prompt in prompts]
        return outputs.LLMResult(generations=[[outputs.Generation(text=text)] for text in texts])

    def _stream(
        self, prompt: str, stop: list[str] | None = None, run_manager: Any = None, **settings: Any
    ) -> Iterator[outputs.GenerationChunk]:
        for piece in self._pieces(prompt, stop, settings):
            chunk = outputs.GenerationChunk(text=piece)
            if run_manager is not None:
                run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk


class ChatKerasformer(_Generating, BaseChatModel):
    """Answers to conversations, by the chat template of the model."""

    source: Any
    settings: dict[str, Any]

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **settings: Any
    ) -> outputs.ChatResult:
        text = "".join(self._pieces(convert_to_openai_messages(messages), stop, settings))
        return outputs.ChatResult(generations=[outputs.ChatGeneration(message=AIMessage(content=text))])

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **settings: Any
    ) -> Iterator[outputs.ChatGenerationChunk]:
        for piece in self._pieces(convert_to_openai_messages(messages), stop, settings):
            yield outputs.ChatGenerationChunk(message=AIMessageChunk(content=piece))
