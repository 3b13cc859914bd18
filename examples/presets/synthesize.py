"""Writes texts with a language model of the family of Llama, many at once.

    python synthesize.py MODEL PROMPTS.jsonl OUT.jsonl --new-tokens 200

MODEL is a folder or a GGUF file, such as SmolLM2-135M-Instruct (Apache-2.0). Each line of PROMPTS has a `prompt`; each
line of OUT is that of the prompt with the generated `text`; texts without an end are cut after their last sentence.
On a GPU, the step is a CUDA graph. Each step reads one token of all texts, also of their prompts, which stand at the
right end of their slots.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from kerasformer.gguf import checkpoint_files, checkpoint_tensors
from kerasformer.tokenization import Tokenizer

SEGMENT = 64
"""The cache that a step reads is as long as a multiple of this number of slots."""


class Llama:
    """Decoder of the family of Llama with a fixed batch and cache.

    Args:
        source: Folder or GGUF file.
        batch_size: Number of texts `B`.
        slots: Number of slots of the cache `S`.
        device: Device of PyTorch.
    """

    def __init__(self, source: Path, batch_size: int, slots: int, device: str) -> None:
        with checkpoint_files(source) as folder:
            self.config = json.loads((folder / "config.json").read_text())
            tensors = checkpoint_tensors(source)
            kind = torch.bfloat16 if device == "cuda" else torch.float32
            self.weights = {
                name: torch.tensor(np.asarray(tensors.read(name), "float32"), dtype=kind, device=device)
                for name in tensors
            }
        config = self.config
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.size = config["hidden_size"] // self.heads
        self.layers = range(config["num_hidden_layers"])
        shape = (len(self.layers), 2, batch_size, self.groups, slots, self.size)
        self.cache = torch.zeros(shape, dtype=kind, device=device)
        base = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        angles = base ** (-torch.arange(0, self.size, 2, device=device) / self.size)
        angles = torch.arange(slots, device=device)[:, None] * angles
        self.cos, self.sin = (f(torch.cat([angles, angles], -1)).to(kind) for f in (torch.cos, torch.sin))

    def step(self, ids: torch.Tensor, slot: torch.Tensor, first: torch.Tensor, length: int) -> torch.Tensor:
        """Reads a token of each text and returns the logits of the next ones.

        Args:
            ids: `(B,)`.
            slot: Slot of the tokens `(1,)`.
            first: First slot of each text `(B,)`.
            length: Number of slots that are read.

        Returns:
            Logits `(B, V)`.
        """
        weights, epsilon = self.weights, self.config["rms_norm_eps"]
        position = (slot - first).clamp(min=0)
        cos, sin = self.cos[position][:, None], self.sin[position][:, None]
        slots = torch.arange(length, device=ids.device)
        hidden = (slots[None] < first[:, None]) | (slots[None] > slot)
        bias = torch.zeros(hidden.shape, dtype=cos.dtype, device=ids.device).masked_fill(hidden, -1e4)[:, None, None]
        x = weights["model.embed_tokens.weight"][ids]
        for layer in self.layers:
            name = f"model.layers.{layer}."
            y = self._norm(x, weights[name + "input_layernorm.weight"], epsilon)
            query, key, value = (
                (y @ weights[f"{name}self_attn.{part}_proj.weight"].T).unflatten(-1, (-1, self.size)) for part in "qkv"
            )
            query, key = (
                t * cos + torch.cat([-t[..., self.size // 2 :], t[..., : self.size // 2]], -1) * sin
                for t in (query, key)
            )
            for part, new in enumerate((key, value)):
                self.cache[layer, part].index_copy_(2, slot, new[:, :, None])
            keys, values = self.cache[layer, :, :, :, :length]
            query = query.unflatten(1, (self.groups, -1)) * self.size**-0.5
            scores = query @ keys.transpose(-1, -2) + bias
            mixed = torch.softmax(scores.float(), -1).to(x.dtype) @ values
            x = x + mixed.flatten(1) @ weights[name + "self_attn.o_proj.weight"].T
            y = self._norm(x, weights[name + "post_attention_layernorm.weight"], epsilon)
            gate, up = (y @ weights[f"{name}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
            x = x + (torch.nn.functional.silu(gate) * up) @ weights[name + "mlp.down_proj.weight"].T
        x = self._norm(x, weights["model.norm.weight"], epsilon)
        return x @ weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).T

    def _norm(self, x: torch.Tensor, scale: torch.Tensor, epsilon: float) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)).to(x.dtype) * scale


class Writer:
    """Sampling with a `Llama`.

    Args:
        model: The model.
        temperature: Divisor of the logits; 0 for the most probable token.
        min_p: Tokens less probable than this share of the most probable one are omitted.
    """

    def __init__(self, model: Llama, temperature: float, min_p: float) -> None:
        self.model, self.temperature, self.min_p = model, temperature, min_p
        batch_size, device = model.cache.shape[2], model.cache.device
        self.ids, self.first = (torch.zeros(batch_size, dtype=torch.long, device=device) for _ in range(2))
        self.slot = torch.zeros(1, dtype=torch.long, device=device)
        self._runs: dict[int, tuple[Callable[[], None], torch.Tensor]] = {}

    def next(self, length: int) -> torch.Tensor:
        """Returns the next tokens `(B,)`, from `ids`, `slot` and `first`."""
        length = -(-length // SEGMENT) * SEGMENT
        if not self.model.cache.is_cuda:
            return self._sampled(length)
        if length not in self._runs:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                self._sampled(length)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = self._sampled(length)
            self._runs[length] = graph.replay, result
        replay, result = self._runs[length]
        replay()
        return result

    def _sampled(self, length: int) -> torch.Tensor:
        logits = self.model.step(self.ids, self.slot, self.first, length).float()
        if self.temperature == 0:
            return logits.argmax(-1)
        logits = logits / self.temperature
        rare = logits < logits.amax(-1, keepdim=True) + np.log(self.min_p)
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-7)))
        return (logits + noise).masked_fill(rare, -torch.inf).argmax(-1)

    def write(self, prompts: list[list[int]], new_tokens: int, end: int) -> list[tuple[list[int], bool]]:
        """Returns the new tokens of each text without the end token, and whether there was one."""
        longest, device = max(map(len, prompts)), self.ids.device
        tokens = torch.zeros((len(self.ids), longest + new_tokens), dtype=torch.long, device=device)
        starts = torch.full_like(self.first, longest - 1)
        for row, prompt in enumerate(prompts):
            tokens[row, longest - len(prompt) : longest] = torch.tensor(prompt, device=device)
            starts[row] = longest - len(prompt)
        self.first.copy_(starts)
        done = torch.zeros_like(self.ids, dtype=torch.bool)
        done[len(prompts) :] = True
        for slot in range(longest + new_tokens - 1):
            self.ids.copy_(tokens[:, slot])
            self.slot.fill_(slot)
            result = self.next(slot + 1)
            if slot + 1 >= longest:
                tokens[:, slot + 1] = result
                done |= result == end
                if slot % 16 == 0 and bool(done.all()):
                    break
        rows = tokens[: len(prompts), longest:].tolist()
        return [(row[: row.index(end)], True) if end in row else (row, False) for row in rows]


def main() -> None:
    """Writes a text for each prompt."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--new-tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.9)
    parser.add_argument("--min-p", type=float, default=0.05)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--plain", action="store_true", help="prompts are no messages of a chat")
    parser.add_argument("--whole", action="store_true", help="keep texts without an end as they are")
    parser.add_argument("--limit", type=int, help="number of prompts")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = Tokenizer.load(options.model)
    rows = [json.loads(line) for line in options.prompts.read_text().splitlines()][: options.limit]
    wrap = "{}" if options.plain else "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    prompts = [tokenizer.encode(wrap.format(row["prompt"]), add_special_tokens=False) for row in rows]
    order = sorted(range(len(rows)), key=lambda row: len(prompts[row]))
    batches = [order[start : start + options.batch_size] for start in range(0, len(order), options.batch_size)]
    np.random.default_rng(options.seed).shuffle(batches)  # so that a stopped run has prompts of all lengths
    longest = max(map(len, prompts))
    slots = -(-(longest + options.new_tokens) // SEGMENT) * SEGMENT
    end = tokenizer.eos_token_id if options.plain else tokenizer.token_to_id("<|im_end|>")
    start, count = time.monotonic(), 0
    with torch.inference_mode(), options.out.open("w") as out:
        writer = Writer(
            Llama(options.model, min(options.batch_size, len(rows)), slots, device), options.temperature, options.min_p
        )
        for batch in batches:
            for row, (ids, ended) in zip(
                batch, writer.write([prompts[row] for row in batch], options.new_tokens, end), strict=True
            ):
                text = tokenizer.decode(ids, skip_special_tokens=True).strip()
                if not ended and not options.whole:
                    text = (re.match(r".*[.!?][\"']?(?=\s|$)", text, re.DOTALL) or [""])[0]
                count += len(ids)
                if text:
                    out.write(json.dumps({**rows[row], "text": text}, ensure_ascii=False) + "\n")
            out.flush()
            elapsed = time.monotonic() - start
            print(f"{count:,} tokens, {count / elapsed:,.0f} a second", flush=True)
            if elapsed > options.seconds:
                break


if __name__ == "__main__":
    main()
