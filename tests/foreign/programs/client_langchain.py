"""Asks a server with langchain-openai: {url, messages, tools, schema, texts} -> answers."""

import json
import sys

from langchain_openai import ChatOpenAI, OpenAIEmbeddings

request = json.load(sys.stdin)
server = {"base_url": request["url"], "api_key": "none"}
model = ChatOpenAI(model="chat", temperature=0, max_tokens=90, seed=1, **server)
messages, schema = request["messages"], request["schema"]
answers = {
    "chat": model.invoke(messages).content,
    "stream": "".join(chunk.content for chunk in model.stream(messages)),
    "responses": ChatOpenAI(model="chat", temperature=0, max_tokens=90, use_responses_api=True, **server)
    .invoke(messages)
    .text,
}
for method in ("function_calling", "json_schema"):
    answers[method] = model.with_structured_output(schema, method=method).invoke(messages)
called = model.bind_tools(request["tools"], tool_choice="required").invoke(messages)
answers["calls"] = [{"name": call["name"], "args": call["args"]} for call in called.tool_calls]
# Its default sends the token ids of OpenAI's tokenizer, which are those of no other model.
embeddings = OpenAIEmbeddings(model="vectors", check_embedding_ctx_length=False, **server)
answers["embeddings"] = embeddings.embed_documents(request["texts"])
print(json.dumps(answers))
