// A mock of the page's worker: it downloads and checks files as the library does, and answers without an engine.

const WORDS = "The boat came back at night. Nobody had seen it leave, and nobody asked.".split(/(?= )/);
let cancelled = null;

const RESULTS = {
  "text-classification": (text) => {
    const [first, second] = text.includes("bad") ? ["NEGATIVE", "POSITIVE"] : ["POSITIVE", "NEGATIVE"];
    return [{ label: first, score: 0.973 }, { label: second, score: 0.027 }];
  },
  "token-classification": () => [
    { entity_group: "PER", score: 0.99, word: "Ada Lovelace", start: 0, end: 12 },
    { entity_group: "LOC", score: 0.91, word: "London", start: 36, end: 42 },
  ],
  "question-answering": ({ context }) => [
    { answer: context.slice(4, 14), score: 0.81, start: 4, end: 14 },
    { answer: context.slice(0, 3), score: 0.1, start: 0, end: 3 },
  ],
  "fill-mask": (text) => ["Paris", "Lyon", "London"].map((word, index) =>
    ({ score: 0.7 / (index + 1), token: index, token_str: word, sequence: text.replace("[MASK]", word) })),
  "zero-shot-classification": (text, { candidate_labels }) => {
    const labels = candidate_labels.split(",").map((label) => label.trim());
    return { sequence: text, labels, scores: labels.map((_, index) => 0.8 / (index + 1)) };
  },
  "zero-shot-token-classification": (text, { labels }) => {
    if (labels[0] === "many") throw Object.assign(named("CapacityError", "too many labels"), { most: 2, received: 3, option: "labels" });
    const found = [["Ada Lovelace", 0, 12, 0.99], ["London", 36, 42, 0.91]];
    return found.map(([word, start, end, score], index) => ({ entity_group: labels[index], score, word, start, end }));
  },
  "text-ranking": ({ documents }) => documents.map((_, index) => ({ corpus_id: documents.length - 1 - index, score: 4.5 - 3 * index })),
  "sentence-similarity": (inputs) => {
    if (typeof inputs === "string") return [0.6, 0.8, 0];
    if (inputs.some) return [inputs.others.map((_, index) => 0.1 + 0.2 * index)];
    return inputs.documents.map((_, index) => ({ corpus_id: index, score: 0.75 - 0.3 * index }));
  },
  "feature-extraction": (text) => (text.includes("bread") ? [0.6, 0.8, 0] : [0.8, 0.6, 0]),
};
const KEYS = { summarization: "summary_text", translation: "translation_text" };

let info = null;
let task = null;
let opened = ""; // the address of the bundle

self.onmessage = async ({ data }) => {
  try {
    if (data.type === "load") self.postMessage({ type: "loaded", id: data.id, ...(await load(data)) });
    else if (data.type === "check") self.postMessage({ type: "checked", id: data.id, verdict: check(data) });
    else if (data.type === "run") self.postMessage({ type: "result", id: data.id, ...(await run(data)) });
    else if (data.type === "cancel") cancelled = data.id;
  } catch (error) {
    const { name, message, most, received, option } = error;
    self.postMessage({ type: "error", id: data.id, name, message, most, received, option });
  }
};

async function load({ id, base, engine, threads, ...request }) {
  task = request.task;
  opened = base;
  const manifest = await (await fetched(`${base}kerasformer.json`)).json();
  let bytes = 0;
  const models = Object.values(manifest.signatures).map((signature) => signature.file);
  for (const file of new Set(["tokenizer.json", ...models])) {
    const sha256 = manifest.files[file];
    const response = await fetched(base + file);
    if (!response.ok) throw named("BundleError", `the bundle is incomplete: ${file} is missing. Export it again`);
    const content = await response.arrayBuffer();
    const digest = [...new Uint8Array(await crypto.subtle.digest("SHA-256", content))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    if (digest !== sha256) throw named("BundleError", `the bundle was changed after its export: ${file} must have sha256 ${sha256}. Received: ${digest}`);
    bytes += content.byteLength;
    self.postMessage({ type: "progress", id, stage: "download", file, loaded: content.byteLength, total: content.byteLength });
  }
  const build = engine === "onnx" ? "onnxruntime/ort-wasm-simd-threaded.wasm" : "litert/wasm/litert_wasm_internal.wasm";
  await fetch(`vendor/${build}`);
  self.postMessage({ type: "progress", id, stage: "compile", file: "", loaded: 0, total: 0 });
  info = { ...manifest.info, engine, threads, mask_token: "[MASK]" };
  return { info, seconds: 0.1, bytes };
}

/** Models whose name contains "wrong" answer differently on LiteRT.js; those whose name contains "broken" on all engines. */
function check({ references }) {
  const agrees = !(opened.includes("wrong") && opened.includes("litert")) && !opened.includes("broken");
  const answers = references.texts.length;
  return { agrees, answers, same: agrees ? answers : 0, decided: answers, error: agrees ? 0.01 : 0.4, tolerance: references.tolerance, cosine: null };
}

async function fetched(url) {
  try {
    return await fetch(url);
  } catch (error) {
    throw named("BundleError", `${url} cannot be fetched: ${error}. Are you offline?`);
  }
}

async function run({ id, inputs, options }) {
  if (String(inputs).includes("endless prompt")) {
    const advice = "the prompt is longer than the cache. Shorten it, or set truncation: true.";
    throw Object.assign(named("CapacityError", advice), { most: 64, received: 80 });
  }
  if (inputs === "impossible") throw named("GenerationError", "no token can be chosen. Set suppress_tokens: []");
  const figures = { seconds: opened.includes("onnx") ? 0.0041 : 0.2, prompt_tokens: 7, memory_bytes: 52_000_000 };
  if (task in RESULTS) return { result: RESULTS[task](inputs, options), figures };
  if (inputs === "nothing") return { result: [{ generated_text: "" }], figures: { ...figures, tokens: 1, finish_reason: "eos" } };
  await new Promise((resolve) => setTimeout(resolve, 150)); // simulates reading the prompt
  let text = "";
  let tokens = 0;
  while (tokens < options.max_new_tokens && cancelled !== id) {
    const piece = WORDS[tokens % WORDS.length];
    self.postMessage({ type: "token", id, text: piece });
    text += piece;
    tokens += 1;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  const reason = cancelled === id ? "cancelled" : "length";
  const key = KEYS[task] ?? "generated_text";
  return { result: [{ [key]: text, options }], figures: { ...figures, tokens, tokens_per_second: 41.5, first_token_seconds: 0.042, finish_reason: reason } };
}

function named(name, message) {
  return Object.assign(new Error(message), { name });
}
