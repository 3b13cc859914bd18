"""Asks a server with LiteLLM: {url, messages, tools, texts, query} -> answers."""

import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is downloaded

import litellm

request = json.load(sys.stdin)
server = {"api_base": request["url"], "api_key": "none"}
settings = {"model": "openai/chat", "temperature": 0, "max_tokens": 90, **server}
messages, texts = request["messages"], request["texts"]
called = litellm.completion(messages=messages, tools=request["tools"], tool_choice="required", seed=1, **settings)
ranked = litellm.rerank(model="hosted_vllm/vectors", query=request["query"], documents=texts, **server)
answer = litellm.responses(
    model="openai/chat", input=messages[-1]["content"], instructions=messages[0]["content"], temperature=0,
    max_output_tokens=90, **server,
)  # fmt: skip
stream = litellm.completion(messages=messages, stream=True, **settings)
print(
    json.dumps(
        {
            "chat": litellm.completion(messages=messages, **settings).choices[0].message.content,
            "stream": "".join(chunk.choices[0].delta.content or "" for chunk in stream),
            "responses": answer.output_text,
            "calls": [
                {"name": call.function.name, "args": json.loads(call.function.arguments)}
                for call in called.choices[0].message.tool_calls
            ],
            "embeddings": [
                each["embedding"] for each in litellm.embedding(model="openai/vectors", input=texts, **server).data
            ],
            "ranking": [each["index"] for each in ranked.results],
        }
    )
)
