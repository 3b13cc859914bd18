/**
 * Compares the JavaScript library with the vectors: `node vectors.mjs LIBRARY NODE_MODULES VECTORS`. Writes the number of
 * compared rows of each part, and those that differ, as JSON.
 */
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { Mock, mockForward, mockStep } from "./mock.mjs";

const [library, packages, vectors] = process.argv.slice(2).map((path) => pathToFileURL(`${path}/`));
const load = (path) => import(new URL(path, library).href);
const [{ openBundle }, { Tokenizer }, { TextStream }, { chunks }, { Random }, { applyRules }, { choose }, settings] = await Promise.all(
  [
    "index.js", "tokenization/tokenizer.js", "tokenization/streaming.js", "tokenization/truncation.js", "decoding/random.js",
    "decoding/rules.js", "decoding/samplers.js", "decoding/settings.js",
  ].map(load),
);
const [{ plan }, { generate }, { beamSearch }, { prefillPlan }] = await Promise.all(
  ["decoding/plan.js", "decoding/loop.js", "decoding/beams.js", "engines/signatures.js"].map(load),
);
const [tokenizers, jinja] = await Promise.all(
  ["tokenizers/dist/tokenizers.min.mjs", "jinja/dist/index.js"].map((path) => import(new URL(`@huggingface/${path}`, packages).href)),
);

const counts = {};
const failures = [];
const read = (path) => readFileSync(new URL(path, vectors), "utf-8");
const json = (path) => JSON.parse(read(path));
const names = (path) => readdirSync(new URL(path, vectors)).sort();

/** Records whether two values are equal; numbers may differ by `tolerance`. */
function check(part, expected, received, tolerance = 0) {
  counts[part.split(":")[0]] = (counts[part.split(":")[0]] ?? 0) + 1;
  if (!same(expected, received, tolerance)) failures.push({ part, expected, received });
}

function same(a, b, tolerance) {
  if (typeof a === "number" && typeof b === "number") return Object.is(a, b) || Math.abs(a - b) <= tolerance;
  if (a === null || b === null || typeof a !== "object" || typeof b !== "object") return a === b;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => key in b && same(a[key], b[key], tolerance));
}

/** The result of a function, or its error. */
async function outcome(run) {
  try {
    return await run();
  } catch (error) {
    return { error };
  }
}

const runs = (values) => {
  const result = [];
  for (const value of values) {
    if (result.length && result.at(-2) === value) result[result.length - 1]++;
    else result.push(value, 1);
  }
  return result;
};

function openTokenizer(folder) {
  const [content, options] = ["tokenizer.json", "tokenizer_config.json"].map((file) => json(`${folder}/${file}`));
  const tokenizer = new Tokenizer(tokenizers, content, options);
  if (existsSync(new URL(`${folder}/target_tokenizer.json`, vectors))) {
    tokenizer.writer = new Tokenizer(tokenizers, json(`${folder}/target_tokenizer.json`), options);
  }
  return tokenizer;
}

function streamed({ writer }, ids) {
  const stream = new TextStream(writer);
  return [...ids.map((id) => stream.put([id])), stream.end()];
}

async function checkRow(part, tokenizer, row) {
  const tokens = "decode" in row ? null : await outcome(() => tokenizer.encode(row.text, row.pair ?? null, row.special !== false));
  if (row.error) return check(part, row.error.name, tokens?.error?.name);
  if (tokens?.error) return check(part, row, String(tokens.error));
  if (row.truncation) {
    const cut = row.truncation;
    const whole = tokens.map(({ sequence }) => sequence);
    const parts = tokens.length <= cut.limit ? [[...whole.keys()]] : chunks(whole, cut);
    const ids = parts.map((positions) => positions.map((position) => tokens[position].id));
    return check(part, row.chunks, cut.overflow ? ids : ids.slice(0, 1));
  }
  const ids = row.decode ?? row.ids;
  const received = { decoded: tokenizer.writer.decode(ids), plain: tokenizer.writer.decode(ids, true) };
  const expected = { decoded: row.decoded ?? row.text, plain: row.plain ?? row.text };
  const pieces = streamed(tokenizer, ids);
  Object.assign(received, { pieces: row.pieces ? pieces : pieces.join("") });
  Object.assign(expected, { pieces: row.pieces ?? expected.plain });
  if (tokens) {
    const kinds = { types: "type", words: "word", sequences: "sequence" };
    Object.assign(received, { ids: tokens.map(({ id }) => id), offsets: tokens.flatMap(({ offsets }) => offsets) });
    Object.assign(expected, { ids: row.ids, offsets: row.offsets });
    for (const [name, field] of Object.entries(kinds)) {
      if (!(name in row)) continue;
      received[name] = runs(tokens.map((token) => token[field]));
      expected[name] = row[name];
    }
    received.mask = runs(tokens.map(({ sequence }) => Number(sequence < 0)));
    expected.mask = row.mask ?? (tokens.length ? [0, tokens.length] : []);
  }
  for (const name of Object.keys(expected)) check(`${part} ${name}`, expected[name], received[name]);
}

async function checkTokenizers() {
  for (const name of names("tokenizers")) {
    const folder = `tokenizers/${name}`;
    if (existsSync(new URL(`${folder}/error.json`, vectors))) {
      await checkRefused(name, json(`${folder}/error.json`), read(`${folder}/tokenizer_config.json`));
      continue;
    }
    const tokenizer = openTokenizer(folder);
    const rows = read(`${folder}/rows.jsonl`).trimEnd().split("\n").map((line) => JSON.parse(line));
    for (const row of rows) await checkRow(`tokenizers: ${name} ${JSON.stringify(row.text ?? row.decode).slice(0, 40)}`, tokenizer, row);
  }
}

/** Opens a bundle with the settings of a tokenizer that has no `tokenizer.json`. */
async function checkRefused(name, error, settings) {
  const manifest = json("tasks/classes/kerasformer.json");
  const digest = async (text) => Buffer.from(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))).toString("hex");
  delete manifest.files["tokenizer.json"];
  delete manifest.manifest_sha256;
  manifest.files["tokenizer_config.json"] = await digest(settings);
  manifest.manifest_sha256 = await digest(sorted(manifest));
  const files = { "kerasformer.json": JSON.stringify(manifest), "tokenizer_config.json": settings };
  const fetch = async (url) => new Response(files[url.pathname.slice(1)]);
  const { error: received } = await outcome(() => openBundle("http://localhost/", { fetch, runtimes: { tokenizers, jinja } }));
  check(`refused: ${name}`, [error.name, true], [received?.name, received?.message.includes(error.contains)]);
}

/** JSON with sorted keys. */
function sorted(value) {
  if (Array.isArray(value)) return `[${value.map(sorted)}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${sorted(value[key])}`)}}`;
}

async function checkDecoding() {
  for (const { model, encoder, history, logits } of json("decoding/mock.json")) {
    const mock = new Mock(model);
    check("mock: logits", logits, [...mock.logits(mock.start(encoder), history)].map(shortest));
  }
  for (const { seed, values } of json("decoding/random.json")) {
    const random = new Random(seed);
    check(`random: ${seed}`, values, values.map(() => random.next()));
  }
  for (const { settings: given, logits, uniform, tokens } of json("decoding/samplers.json")) {
    const config = settings.settle({}, given);
    const chosen = uniform.map((number) => choose(Float32Array.from(logits), config, () => number));
    check(`samplers: ${JSON.stringify(given)}`, tokens, chosen);
  }
  for (const { settings: given, ids, width, prompt, logits, changed } of json("decoding/rules.json")) {
    const scores = applyRules({ ids, width, prompt }, Float32Array.from(logits), settings.settle({}, given));
    const expected = logits.map((logit, token) => (changed[token] === "-inf" ? -Infinity : (changed[token] ?? logit)));
    check(`rules: ${JSON.stringify(given)}`, expected.map(Math.fround), [...scores]);
  }
  for (const { stored, settings: given, config, error } of json("decoding/settings.json")) {
    const settled = await outcome(() => settings.settle(stored, given));
    if (error) check(`settings: ${JSON.stringify(given)}`, error.name, settled.error?.name);
    else for (const [name, value] of Object.entries(config)) check(`settings: ${name}`, value, settled[name]);
  }
  for (const { count, capacity, lengths, start, sizes } of json("decoding/prefill.json")) {
    check(`prefill: ${count} of ${lengths}`, sizes, prefillPlan(count, capacity, lengths, start));
  }
  for (const row of json("decoding/generations.json")) check(`generations: ${row.name}`, expectedRun(row), await generated(row));
}

/** The number with the fewest digits that gives the same float32. */
function shortest(value) {
  for (let digits = 1; digits <= 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
  return value;
}

const expectedRun = ({ tokens, reason, error }) => (error ? { error: error.name } : { tokens, reason });

async function generated({ model, prompt, stored, settings: given, tokenizer }) {
  const decoder = tokenizer && openTokenizer(`tokenizers/${tokenizer}`);
  const result = await outcome(async () => {
    const run = plan(mockStep(new Mock(model)), prompt, settings.settle(stored, given), (ids) => decoder.decode(ids));
    if (run.config.num_beams > 1) {
      const { tokens, reason } = await beamSearch(run);
      return { tokens, reason };
    }
    const tokens = [];
    const generator = generate(run);
    let next = await generator.next();
    for (; !next.done; next = await generator.next()) tokens.push(next.value);
    return { tokens, reason: next.value };
  });
  return result.error ? { error: result.error.name } : result;
}

/** Reads files of a folder instead of a site. */
const fetchFile = async (url) => (existsSync(url) ? new Response(readFileSync(url)) : new Response(null, { status: 404 }));

async function open(folder, task, engine) {
  const openModel = async (manifest) => {
    return engine.mock ? mockStep(new Mock(engine.mock)) : mockForward(engine.recorded, manifest.info.max_length);
  };
  const base = new URL(`${folder}/`, vectors);
  return await openBundle(base, { task, fetch: fetchFile, runtimes: { tokenizers, jinja }, ...(engine ? { openModel } : {}) });
}

async function checkTasks() {
  for (const name of names("tasks")) {
    const { engine = null, calls } = json(`tasks/${name}/calls.json`);
    for (const { task, inputs, options, result, pieces, reason, error } of calls) {
      const part = `tasks: ${name} ${JSON.stringify(inputs).slice(0, 40)} ${JSON.stringify(options)}`;
      const received = [];
      const answer = await outcome(async () => {
        const bundle = await open(`tasks/${name}`, task, engine);
        return await bundle.run(inputs, options, { onToken: (piece) => received.push(piece) });
      });
      if (error) check(part, error.name, answer.error?.name ?? answer);
      else if (answer.error) check(part, result, String(answer.error.stack));
      else {
        check(part, result, answer.result, 1e-5);
        if (pieces) check(part, pieces, received);
        if (reason) check(part, reason, answer.figures.finish_reason);
      }
    }
  }
}

await checkTokenizers();
await checkDecoding();
await checkTasks();
console.log(JSON.stringify({ counts, failures }));
