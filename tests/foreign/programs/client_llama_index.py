"""Asks a server with LlamaIndex: {url, messages, texts} -> answers."""

import json
import sys

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

request = json.load(sys.stdin)
server = {"api_base": request["url"], "api_key": "none"}
settings = {"context_window": 256, "max_tokens": 90, "temperature": 0, "additional_kwargs": {"seed": 1}}
model = OpenAILike(model="chat", is_chat_model=True, is_function_calling_model=True, **settings, **server)
messages = [ChatMessage(**message) for message in request["messages"]]


def answer(late: bool) -> bool:
    """Answers the question."""
    return late


response = model.chat_with_tools([FunctionTool.from_defaults(answer)], chat_history=messages, tool_required=True)
calls = model.get_tool_calls_from_response(response)
print(
    json.dumps(
        {
            "chat": model.chat(messages).message.content,
            "stream": "".join(part.delta for part in model.stream_chat(messages)),
            "complete": OpenAILike(model="chat", **settings, **server).complete("Who is it?").text,
            "calls": [{"name": call.tool_name, "args": call.tool_kwargs} for call in calls],
            "embeddings": OpenAILikeEmbedding(model_name="vectors", **server).get_text_embedding_batch(
                request["texts"]
            ),
        }
    )
)
