// Runs the bundle in this folder in a page, with LiteRT.js alone.
//
//     <script type="importmap">
//       {
//         "imports": {
//           "@litertjs/core": "./node_modules/@litertjs/core/dist/index.js",
//           "@litertjs/wasm-utils": "./node_modules/@litertjs/wasm-utils/dist/index.js",
//           "@huggingface/tokenizers": "./node_modules/@huggingface/tokenizers/dist/tokenizers.mjs"
//         }
//       }
//     </script>
//     <script type="module">
//       import { run, generate } from "./path/to/this/folder/litert_web.js";
//
//       console.log(await run("A text.")); // of an encoder
//       await generate("A text.", 40, (text) => (document.body.textContent = text)); // of a decoder or encoder-decoder
//     </script>
//
// All names, sizes and ids are read from kerasformer.json.

import { loadLiteRt, loadAndCompile, Tensor } from "@litertjs/core";
import { Tokenizer } from "@huggingface/tokenizers";

const file = (name) => new URL(name, import.meta.url).href;
const json = async (name) => (await fetch(file(name))).json();
const { info, signatures, capacity, encoder_capacity: encoderCapacity } = await json("kerasformer.json");
const tokenizer = new Tokenizer(await json("tokenizer.json"), await json("tokenizer_config.json"));
await loadLiteRt(new URL("../wasm/", import.meta.resolve("@litertjs/core")).href);
const main = Object.values(signatures).find(({ role }) => role !== "tokenize");
const model = await loadAndCompile(file(main.file), { accelerator: "wasm" });

// A token of only the vocabulary that the model writes is no id of a text.
const padding = info.vocab_size && info.pad_token_id >= info.vocab_size ? 0 : (info.pad_token_id ?? 0);
const CACHES = ["key", "value", "state"];

/** Returns the name of the tensor of a kind. */
const nameOf = (tensors, kind) => Object.keys(tensors).find((name) => tensors[name].kind === kind);

/** Returns the number of tokens and the name of each signature of a role, the shortest first. */
function ofRole(role) {
  const entries = Object.entries(signatures).filter(([, signature]) => signature.role === role);
  return entries.map(([name, { tokens }]) => [tokens, name]).sort(([first], [second]) => first - second);
}

// Tensors occupy WebAssembly memory until they are deleted.
const free = (tensors) => Object.values(tensors).forEach((tensor) => tensor.delete());
const integers = (values, length, fill = 0) =>
  new Tensor(Int32Array.from({ length }, (_, index) => values[index] ?? fill), [1, length]);
const zeros = (shape) => new Tensor(new Float32Array(shape.reduce((product, size) => product * size)), shape);

function checkLength(what, count, limit) {
  if (!count || count > limit) throw new Error(`A ${what} can have 1 to ${limit} tokens. Received: ${count}`);
}

/** Runs the shortest signature of a role that has room for a text; returns its outputs. */
async function read(role, { ids, token_type_ids: segments = [] }) {
  const lengths = ofRole(role);
  checkLength("text", ids.length, lengths.at(-1)[0]);
  const [length, name] = lengths.find(([tokens]) => tokens >= ids.length);
  const values = { ids: [ids, length, padding], mask: [ids.map(() => 1), length], segments: [segments, length] };
  const inputs = Object.entries(signatures[name].inputs).map(([input, { kind, default: fill }]) => [
    input,
    integers(...(values[kind] ?? [[], length, fill])),
  ]);
  const feeds = Object.fromEntries(inputs);
  const outputs = await model.run(name, feeds);
  free(feeds);
  return outputs;
}

/** Returns the outputs for a text, or for a question and its context, by name; padding has the last entries. */
export async function run(text, pair = null) {
  const outputs = await read("forward", tokenizer.encode(text, { text_pair: pair, return_token_type_ids: true }));
  const values = Object.entries(outputs).map(([name, tensor]) => [name, tensor.toTypedArray()]);
  free(outputs);
  return Object.fromEntries(values);
}

/** Returns what precedes a text: the prefix for the task, or the first one of an encoder-decoder. */
function prefix() {
  const prefixes = Object.entries(info.task_prefixes);
  const own = info.task_prefixes[info.task] ?? info.task_prefixes[""];
  if (own !== undefined) return own;
  const known = prefixes.filter(([task]) => task.startsWith(info.task));
  const [[, text] = ["", ""]] = [...known, ...(info.is_encoder_decoder ? prefixes : [])];
  return text;
}

/** Returns the first token that the decoder reads, and the first one of every answer, or undefined for any. */
function firstTokens(language) {
  const tokens = {
    decoder_start_token_id: info.decoder_start_token_id ?? info.bos_token_id ?? info.pad_token_id ?? 0,
    forced_bos_token_id: info.generation.forced_bos_token_id ?? undefined,
  };
  if (info.languages) {
    const { ids, setting } = info.languages;
    const chosen = Object.keys(tokens).some((name) => Object.values(ids).includes(info.generation[name]));
    if (language === undefined ? !chosen : !(language in ids)) {
      throw new Error(`Pass the language of the output, one of ${Object.keys(ids).join(", ")}. Received: ${language}`);
    }
    if (language !== undefined) tokens[setting] = ids[language];
  }
  return [tokens.decoder_start_token_id, tokens.forced_bos_token_id];
}

/** Returns the longest prefill whose length divides the capacity, so that a padded last call fits into the caches. */
const prefill = () => ofRole("prefill").findLast(([length]) => capacity % length === 0) ?? [1, "decode"];

/**
 * Generates tokens by greedy search: those that continue a prompt, or the answer of an encoder-decoder to a text.
 *
 * `onText` is called with the text so far after each token. `language` is the code of the language of a translation,
 * such as "deu_Latn". Returns the ids of at most `maxNewTokens` tokens, including the token that ends the text.
 */
export async function generate(text, maxNewTokens, onText = () => {}, language = undefined) {
  const { inputs, outputs } = signatures.decode;
  const [ids, slots, logits] = [nameOf(inputs, "ids"), nameOf(inputs, "slots"), nameOf(outputs, "logits")];
  const words = (info.generation.bad_words_ids ?? []).filter((word) => word.length === 1);
  const forbidden = [...(info.generation.suppress_tokens ?? []), ...words.flat()];
  const past = Object.entries(inputs).filter(([, { kind }]) => CACHES.includes(kind));
  const encodes = ofRole("encode").length > 0;
  const prompt = tokenizer.encode(prefix() + text);
  let [position, token, first, encoded] = [0, 0, undefined, {}];
  if (encodes) {
    [token, first] = firstTokens(language);
    encoded = await read("encode", prompt);
    encoded[nameOf(inputs, "memory_mask")] = integers(prompt.ids.map(() => 1), encoderCapacity);
  } else {
    checkLength("prompt", prompt.ids.length, capacity);
  }
  let caches = Object.fromEntries(past.map(([name, { shape }]) => [name, zeros(shape)]));

  async function step(signature, tokens, start) {
    const length = signatures[signature].tokens;
    const positions = Int32Array.from({ length }, (_, index) => start + index);
    const feeds = { [ids]: integers(tokens, length), [slots]: new Tensor(positions, [length]) };
    const { [logits]: scored, ...next } = await model.run(signature, { ...feeds, ...caches, ...encoded });
    free(feeds);
    free(caches);
    caches = next;
    if (!scored) return 0;
    const scores = scored.toTypedArray();
    scored.delete();
    for (const never of forbidden) scores[never] = -Infinity;
    return scores.reduce((best, score, index) => (score > scores[best] ? index : best), 0);
  }

  if (!encodes) {
    // Prefills all but the last token of the prompt, which the first step reads.
    position = prompt.ids.length - 1;
    token = prompt.ids[position];
    const [size, signature] = prefill();
    for (let start = 0; start < position; start += size) {
      await step(signature, prompt.ids.slice(start, Math.min(start + size, position)), start);
    }
  }
  const generated = [];
  while (generated.length < maxNewTokens && position < capacity) {
    token = await step("decode", [token], position++);
    if (!generated.length) token = first ?? token;
    generated.push(token);
    onText(tokenizer.decode(generated, { skip_special_tokens: true }));
    if (info.eos_token_id.includes(token)) break;
  }
  free(caches);
  free(encoded);
  return generated;
}
