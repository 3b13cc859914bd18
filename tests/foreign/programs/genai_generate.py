"""Generates texts with onnxruntime-genai.

A request has `folder` and one of `runs` (texts and search options), `tokenize` (texts whose ids are the answer) and
`chats` (conversations whose texts are the answer).
"""

import json
import sys

import onnxruntime_genai as og


def answers(request):
    model = og.Model(request["folder"])
    tokenizer = og.Tokenizer(model)
    tokenizer.update_options(add_special_tokens="true")
    if "tokenize" in request:
        return [tokenizer.encode(text).tolist() for text in request["tokenize"]]
    if "chats" in request:
        chats = [json.dumps(messages) for messages in request["chats"]]
        return [tokenizer.apply_chat_template(messages=chat, add_generation_prompt=True) for chat in chats]
    return [generate(model, tokenizer, **each) for each in request["runs"]]


def generate(model, tokenizer, texts, new_tokens=0, **options):
    """Generates one batch; shorter prompts are padded on the right."""
    prompts = [tokenizer.encode(text) for text in texts]
    batch = tokenizer.encode_batch(texts)
    length = batch.shape()[1]
    params = og.GeneratorParams(model)
    params.set_search_options(**{"batch_size": len(texts), "max_length": length + new_tokens, **options})
    generator = og.Generator(model, params)
    generator.append_tokens(batch)
    while not generator.is_done():
        generator.generate_next_token()
    return {
        "prompts": [prompt.tolist() for prompt in prompts],
        "decoded": [tokenizer.decode(prompt) for prompt in prompts],
        "new": [generator.get_sequence(row).tolist()[length:] for row in range(len(texts))],
    }


try:
    print(json.dumps({"answers": answers(json.loads(sys.stdin.readline()))}))
except RuntimeError as error:  # the error of the runtime is the answer
    print(json.dumps({"error": str(error)}))
