"""Section of the model card for LiteRT.js: a complete page with its module, with the names and shapes of the bundle.

The tests run this code exactly as it is on the card.
"""

from __future__ import annotations

import json
from math import prod

from kerasformer.bundle import Kind, Manifest
from kerasformer.bundle.interface import DECODE, Role
from kerasformer.export.card.program import interface_names, rules, start_token, text_prefix
from kerasformer.export.card.quoting import javascript

VERSION = "2.5.3"
"""Version of `@litertjs/core` for which the code is written."""

_SECTION = """## LiteRT.js

`npm install @litertjs/core@{version} @huggingface/tokenizers`. Put these files beside `node_modules`, and in the page:

```html
<script type="importmap">
  {{
    "imports": {{
      "@litertjs/core": "./node_modules/@litertjs/core/dist/index.js",
      "@litertjs/wasm-utils": "./node_modules/@litertjs/wasm-utils/dist/index.js",
      "@huggingface/tokenizers": "./node_modules/@huggingface/tokenizers/dist/tokenizers.mjs"
    }}
  }}
</script>
<script type="module" src="model.js"></script>
```

`model.js`:

```javascript
import {{ loadLiteRt, loadAndCompile, Tensor }} from "@litertjs/core";
import {{ Tokenizer }} from "@huggingface/tokenizers";

await loadLiteRt("./node_modules/@litertjs/core/wasm/");
const model = await loadAndCompile({file}, {{ accelerator: "wasm" }});
const json = async (name) => (await fetch(name)).json();
const tokenizer = new Tokenizer(await json("tokenizer.json"), await json("tokenizer_config.json"));

// Tensors occupy WebAssembly memory until they are deleted.
const free = (tensors) => Object.values(tensors).forEach((tensor) => tensor.delete());
const integers = (values, length, fill = 0) =>
  new Tensor(Int32Array.from({{ length }}, (_, index) => values[index] ?? fill), [1, length]);
{code}```
"""

_ENCODER = """
/** Returns {outputs} of a text, padded at the end to one of the lengths. */
export async function run(text) {{
  const {{ ids, token_type_ids: types = [] }} = tokenizer.encode(text, {{ return_token_type_ids: true }});
  const length = {lengths}.find((each) => each >= ids.length);
  if (!length || !ids.length) throw new Error(`A text can have 1 to {longest} tokens. Received: ${{ids.length}}`);
  const inputs = {{
{inputs}
  }};
  const outputs = await model.run(`{forward}${{length}}`, inputs);
  const values = Object.entries(outputs).map(([name, tensor]) => [name, tensor.toTypedArray()]);
  free(inputs);
  free(outputs);
  return Object.fromEntries(values);
}}
"""

_INPUTS = {
    Kind.IDS: "integers(ids, length, {pad})",
    Kind.MASK: "integers(ids.map(() => 1), length)",
    Kind.SEGMENTS: "integers(types, length)",
}

_ZEROS = "integers([], length)"

_GENERATOR = """
const zeros = (shape) => new Tensor(new Float32Array(shape.reduce((product, axis) => product * axis)), shape);
const CACHES = {caches};

/** Generates at most maxNewTokens tokens {purpose} by greedy search; onText is called with the text so far. */
export async function generate(text, maxNewTokens, onText = () => {{}}) {{
  const {{ ids }} = tokenizer.encode({text});
{begin}  let caches = Object.fromEntries(Object.entries(CACHES).map(([name, shape]) => [name, zeros(shape)]));
  const read = async (signature, tokens, position) => {{
    const length = {{ {lengths} }}[signature];
    const positions = Int32Array.from({{ length }}, (_, index) => position + index);
    const inputs = {{ {ids}: integers(tokens, length), {slots}: new Tensor(positions, [length]) }};
    const {{ {logits}, ...next }} = await model.run(signature, {{ {feeds} }});
    free(inputs);
    free(caches);
    caches = next;
    if (!{logits}) return 0;
    const scores = {logits}.toTypedArray();
    {logits}.delete();
{forbidden}    return scores.reduce((best, score, token) => (score > scores[best] ? token : best), 0);
  }};
{prompt}  const generated = [];
  while (generated.length < maxNewTokens && position < {capacity}) {{
    token = await read("{step}", [token], position++);
{first}    generated.push(token);
    onText(tokenizer.decode(generated, {{ skip_special_tokens: true }}));
    if ({ends}.includes(token)) break;
  }}
  free(caches);
{end}  return generated;
}}
"""

_FORBIDDEN = """\
    for (const never of [@ids]) scores[never] = -Infinity;
"""
_FIRST = """\
    if (!generated.length) token = @id; // the first token of every answer
"""

_DECODER_PROMPT = """\
  if (!ids.length || ids.length > {capacity}) {{
    throw new Error(`A prompt can have 1 to {capacity} tokens. Received: ${{ids.length}}`);
  }}
  // Prefills all but the last token of the prompt, which the first step reads.
  for (let start = 0; start < ids.length - 1; start += {size}) {{
    await read("{signature}", ids.slice(start, Math.min(start + {size}, ids.length - 1)), start);
  }}
  let [position, token] = [ids.length - 1, ids[ids.length - 1]];
"""

_ENCODED = """\
  const length = {lengths}.find((each) => each >= ids.length);
  if (!length || !ids.length) throw new Error(`A text can have 1 to {longest} tokens. Received: ${{ids.length}}`);
  const ones = ids.map(() => 1);
  const encoder = {{ {text_ids}: integers(ids, length, {pad}), {text_mask}: integers(ones, length) }};
  const encoded = await model.run(`{encode}${{length}}`, encoder);
  free(encoder);
  encoded.{memory_mask} = integers(ones, {encoder_capacity});
"""


def section(manifest: Manifest) -> str:
    """Returns the section for a TFLite bundle, or an empty string if its signatures are not ours."""
    main = next(iter([*_by_tokens(manifest, Role.FORWARD), *manifest.of_role(Role.DECODE)]), None)
    if main is None:
        return ""
    code = _generator(manifest) if manifest.of_role(Role.DECODE) else _encoder(manifest)
    return _SECTION.format(version=VERSION, file=javascript(manifest.signatures[main].file), code=code)


def _encoder(manifest: Manifest) -> str:
    signatures = _by_tokens(manifest, Role.FORWARD)
    lengths, shortest = list(signatures.values()), next(iter(signatures))
    # Any other input is ignored by the model and filled with zeros.
    taken = manifest.signatures[shortest].inputs.items()
    inputs = [f"    {name}: {_INPUTS.get(Kind(info.kind or Kind.OTHER), _ZEROS)}," for name, info in taken]
    return _ENCODER.format(
        forward=interface_names(manifest, javascript)["forward"],
        outputs=" and ".join(f"`{javascript(name)[1:-1]}`" for name in manifest.signatures[shortest].outputs),
        lengths=json.dumps(lengths),
        longest=lengths[-1],
        inputs="\n".join(inputs).format(pad=_pad(manifest)),
    )


def _generator(manifest: Manifest) -> str:
    decode, names = manifest.signatures[DECODE], interface_names(manifest, javascript)
    caches = {name: list(decode.inputs[name].shape) for name in decode.continued()}
    capacity = manifest.capacity or max(int(shape[2]) for shape in caches.values())
    many, begin, prompt, end = manifest.info.is_encoder_decoder, "", "", ""
    read = {DECODE: 1}
    if many:
        lengths = list(_by_tokens(manifest, Role.ENCODE).values())
        begin = _ENCODED.format(
            **names,
            lengths=json.dumps(lengths),
            longest=lengths[-1],
            pad=_pad(manifest),
            encoder_capacity=prod(int(size) for size in decode.inputs[names["memory_mask"]].shape),
        )
        prompt = f"  let [position, token] = [0, {start_token(manifest)}];\n"
        end = "  free(encoded);\n"
    else:
        name, size = _prefill(manifest, capacity)
        read[name] = size
        prompt = _DECODER_PROMPT.format(capacity=capacity, size=size, signature=name)
    return _GENERATOR.format(
        **names,
        purpose="from a text" if many else "that continue a text",
        text=f"{javascript(text_prefix(manifest))} + text" if text_prefix(manifest) else "text",
        caches=json.dumps(caches),
        begin=begin,
        lengths=", ".join(f"{name}: {size}" for name, size in read.items()),
        feeds="...inputs, ...caches, ...encoded" if many else "...inputs, ...caches",
        prompt=prompt,
        capacity=capacity,
        ends=json.dumps(list(manifest.info.eos_token_id)),
        end=end,
        **rules(manifest, _FORBIDDEN, _FIRST),
    )


def _prefill(manifest: Manifest, capacity: int) -> tuple[str, int]:
    """Returns the longest prefill whose length divides the capacity, so that a padded last call fits into the cache."""
    fitting = {name: size for name, size in _by_tokens(manifest, Role.PREFILL).items() if capacity % size == 0}
    return max(fitting.items(), key=lambda each: each[1], default=(DECODE, 1))


def _by_tokens(manifest: Manifest, role: Role) -> dict[str, int]:
    """Returns the numbers of tokens of a role's signatures by name, ascending."""
    tokens = {name: signature.tokens or 0 for name, signature in manifest.of_role(role).items()}
    return dict(sorted(tokens.items(), key=lambda each: each[1]))


def _pad(manifest: Manifest) -> int:
    return manifest.info.input_padding
