"""Generates texts with LiteRT-LM.

The request is `{"model", "prompts", "tokens", "mode"}`, and the answer is the text after each prompt; or it is
`{"model", "tokenize"}`, and the answer is the ids of each text; or it is `{"model", "system", "chats", "tokens"}`, and
the answer is the prompt, the text and the number of tokens in the cache after each message of each conversation.

Modes: "session" and "streamed" pass plain prompts, "conversation" passes each prompt as a message, and "file settings"
uses the sampling settings of the file.
"""

import json
import sys

import litert_lm

GREEDY = litert_lm.SamplerConfig(top_k=1, top_p=1.0, temperature=1.0, seed=0)


def session(engine: litert_lm.Engine, prompt: str, tokens: int, mode: str) -> str:
    """Returns the text after a plain prompt."""
    sampler = None if mode == "file settings" else GREEDY
    settings = {"apply_prompt_template": False, "sampler_config": sampler, "max_output_tokens": tokens}
    with engine.create_session(**settings) as opened:
        opened.run_prefill([prompt])
        if mode == "streamed":
            return "".join(piece.texts[0] for piece in opened.run_decode_async())
        return opened.run_decode().texts[0]


def conversation(engine: litert_lm.Engine, prompt: str, tokens: int, mode: str) -> str:
    """Returns the text after a message, the only interface in Swift and Kotlin."""
    with engine.create_conversation(sampler_config=GREEDY, max_output_tokens=tokens) as opened:
        return str(opened.send_message(prompt))


def chat(engine: litert_lm.Engine, system: str | None, messages: list[str], tokens: int) -> list[tuple[str, str, int]]:
    """Returns what the chat template writes for each message, the answer, and the number of tokens in the cache."""
    settings = {"sampler_config": GREEDY, "max_output_tokens": tokens, "system_message": system}
    with engine.create_conversation(**settings) as opened:
        return [
            (opened.render_message_to_string(message), str(opened.send_message(message)), opened.token_count)
            for message in messages
        ]


def main() -> None:
    """Answers one request."""
    request = json.load(sys.stdin)
    engine = litert_lm.Engine(request["model"], backend=litert_lm.Backend.CPU(thread_count=2), cache_dir=":nocache")
    if "tokenize" in request:
        print(json.dumps([list(engine.tokenize(text)) for text in request["tokenize"]]))
        return
    if "chats" in request:
        print(json.dumps([chat(engine, request["system"], each, request["tokens"]) for each in request["chats"]]))
        return
    mode = request.get("mode", "session")
    generate = conversation if mode == "conversation" else session
    print(json.dumps([generate(engine, prompt, request["tokens"], mode) for prompt in request["prompts"]]))


if __name__ == "__main__":
    main()
