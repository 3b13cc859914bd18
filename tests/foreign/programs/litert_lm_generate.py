"""Texts from LiteRT-LM: `{"model", "prompts", "tokens", "way"}` in, the text after each prompt out.

Or `{"model", "read"}`, texts of which the ids are asked alone.

Ways: "session" and "streamed" give plain prompts, "conversation" a message each, "own" leaves sampling to the file.
"""

import json
import sys

import litert_lm

GREEDY = litert_lm.SamplerConfig(top_k=1, top_p=1.0, temperature=1.0, seed=0)


def session(engine: litert_lm.Engine, prompt: str, tokens: int, way: str) -> str:
    """The text after a prompt that is given as it is."""
    sampler = None if way == "own" else GREEDY
    settings = {"apply_prompt_template": False, "sampler_config": sampler, "max_output_tokens": tokens}
    with engine.create_session(**settings) as opened:
        opened.run_prefill([prompt])
        if way == "streamed":
            return "".join(piece.texts[0] for piece in opened.run_decode_async())
        return opened.run_decode().texts[0]


def conversation(engine: litert_lm.Engine, prompt: str, tokens: int, way: str) -> str:
    """The text after a prompt that is given as a message, which Swift and Kotlin know alone."""
    with engine.create_conversation(sampler_config=GREEDY, max_output_tokens=tokens) as opened:
        return str(opened.send_message(prompt))


def main() -> None:
    """Answers one request."""
    request = json.load(sys.stdin)
    engine = litert_lm.Engine(request["model"], backend=litert_lm.Backend.CPU(thread_count=2), cache_dir=":nocache")
    if "read" in request:
        print(json.dumps([list(engine.tokenize(text)) for text in request["read"]]))
        return
    way = request.get("way", "session")
    write = conversation if way == "conversation" else session
    print(json.dumps([write(engine, prompt, request["tokens"], way) for prompt in request["prompts"]]))


if __name__ == "__main__":
    main()
