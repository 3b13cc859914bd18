// The choice of an engine: each is checked with the reference answers of its bundle and measured on the first example; the
// fastest one that agrees is used. The result is kept for this version of the site, this browser and this number of threads.

import { hasGpu, threads } from "./browser.js";
import { find, make, megabytes, milliseconds, percent } from "./elements.js";
import { Engine } from "./engine.js";

const MOST_EXTRA = 100e6; // bytes that may be downloaded only to compare engines, on an unmetered connection
const MOST_TOGETHER = 200e6; // bytes of bundles that are open at the same time, so that they can be measured in turn
const MOST_TWICE = 200e6; // bytes of a bundle that is also tried with one thread
const MOST_SECONDS = 1.5; // for the measurement of each engine, after its first answer
const ROUNDS = 12; // the best of a few short answers depends on what else the device does
const SLOWER = { litert: 1, onnx: 1.5 }; // how many times more an engine is assumed to take where it cannot be measured
const TOKENS = 16; // generated in a measurement
const USUAL_TOKENS = 60; // of an answer, the number of tokens in the settings at first
const STORE = `kerasformer choice ${new URL(".", location.href).href}`;

/**
 * @typedef {object} Row What is known about an engine of a model.
 * @property {"agrees" | "differs" | "unchecked" | "failed" | "untried"} status
 * @property {any} [verdict] See `Verdict` in library/reference_check.js.
 * @property {string} [problem] Why the engine could not be tried.
 * @property {boolean} [lasting] Whether another visit would have the same problem.
 * @property {number} [bytes] Size of the download of an engine that was not tried.
 * @property {number} [seconds] Time of an answer; for a generation, of one with the usual number of tokens.
 * @property {number} [threads] The number of threads with which it is fastest.
 * @property {"cpu" | "webgpu"} [accelerator] Where it is fastest.
 * @property {string} [gpu] Why the GPU is not used, if it was tried.
 * @property {number} [rate] Tokens per second of a generation.
 */

/**
 * @typedef {object} Choice
 * @property {Object<string, Row>} rows By the variant of the engine.
 * @property {string | null} best The engine that was chosen automatically, if engines were compared.
 * @property {string | null} manual The engine that the user chose instead.
 */

/** What is stored about a model; nothing after a change of the site or the browser. @param {any} site @param {any} model @returns {Choice} */
export function read(site, model) {
  try {
    const stored = JSON.parse(localStorage.getItem(`${STORE}${model.name}`) ?? "null");
    if (stored?.key === keyOf(site)) return stored;
  } catch {
    // The storage is disabled or damaged: the engines are compared again.
  }
  return { rows: {}, best: null, manual: null };
}

/** @param {any} site @param {any} model @param {Choice} choice */
export function write(site, model, choice) {
  try {
    localStorage.setItem(`${STORE}${model.name}`, JSON.stringify({ key: keyOf(site), ...choice }));
  } catch {
    // The storage is disabled or full: the next visit compares the engines again.
  }
}

function keyOf(site) {
  return `${site.version} ${threads()} threads ${navigator.userAgent}`;
}

/**
 * Selects the engines to compare: those that are stored on this device and, unless the connection is metered, others while their
 * downloads are small. There is always one: that with the smallest download, unless its engine is usually slower.
 * @param {{engine: any, bytes: number}[]} sizes Engines, with the bytes that each has to download.
 * @param {{metered: boolean, all?: boolean}} how `all` if the user asked to compare all engines.
 * @returns {{tried: any[], untried: {engine: any, bytes: number}[]}}
 */
export function plan(sizes, { metered, all = false }) {
  const cost = ({ engine: { engine }, bytes }) => bytes * (SLOWER[engine] ?? 1);
  const ordered = sizes.toSorted((a, b) => cost(a) - cost(b));
  const tried = [];
  const untried = [];
  let extra = 0;
  for (const each of ordered) {
    if (tried.length) extra += each.bytes;
    const cheap = !each.bytes || (!metered && extra <= MOST_EXTRA);
    if (all || !tried.length || cheap) tried.push(each.engine);
    else untried.push(each);
  }
  return { tried, untried };
}

/**
 * Checks an open engine with the reference answers of its bundle.
 * @param {Engine} engine @param {any} one An engine of a model in site.json.
 * @returns {Promise<Row>}
 */
export async function check(engine, one) {
  if (!one.references) return { status: "unchecked" };
  const response = await fetch(one.references).catch(() => null);
  const references = response?.ok ? await response.json().catch(() => null) : null;
  if (!references) return { status: "unchecked" };
  const verdict = await engine.check(references);
  return { status: verdict.agrees ? "agrees" : "differs", verdict };
}

/**
 * Opens, checks and measures engines.
 * @param {any[]} candidates Engines of a model in site.json.
 * @param {object} how
 * @param {(engine: Engine, one: any, stage: string, way: Way) => Promise<any>} how.open Opens a bundle, shows the stage with its
 *     progress, and returns the library's description of the bundle.
 * @param {{inputs: any, options: any} | null} how.sample The question to measure with; without one, the first engine is used.
 * @param {boolean} how.generates
 * @param {Set<Engine>} how.engines Receives the engines while they are open, so that the caller can end them.
 * @param {(text: string) => void} how.onStage
 * @returns {Promise<{rows: Object<string, Row>, best: any, engine: Engine | null, info: any, error: any}>} `best` is the fastest
 *     engine that agrees, open in `engine`, or `null`, with the first `error` if one could not be opened.
 */
export async function compare(candidates, { open, sample, generates, engines, onStage }) {
  let trials = candidates.flatMap((one) => ways(one).map((way) => ({ one, way, engine: new Engine(), info: null, row: null, times: [], spent: 0 })));
  const all = trials;
  const together = all.reduce((sum, { one }) => sum + one.bytes, 0) <= MOST_TOGETHER;
  let failure = null;
  const drop = (trial) => {
    trial.engine.end();
    engines.delete(trial.engine);
    trials = trials.filter((each) => each !== trial);
  };
  const attempt = async (trial, task) => {
    try {
      await task();
    } catch (error) {
      if (error.name === "AbortError" || error.name === "TokenizerError") throw error; // not the fault of the engine
      failure ??= error;
      drop(trial);
      trial.row = { status: "failed", problem: error.message, lasting: error.name !== "BundleError" };
    }
  };
  for (const trial of all) {
    engines.add(trial.engine);
    const stage = candidates.length > 1 ? `Trying engine ${1 + candidates.indexOf(trial.one)} of ${candidates.length}` : "";
    await attempt(trial, async () => {
      trial.info = await open(trial.engine, trial.one, stage, trial.way);
      onStage(stage || "Preparing the model");
      trial.row = await check(trial.engine, trial.one);
      if (trial.row.status === "differs") return drop(trial);
      if (all.length > 1 && sample) await measure(trial, sample, generates, together ? 1 : ROUNDS);
      if (!together && trial !== all.at(-1)) trial.engine.end();
    });
  }
  // In turn, so that other work on this device slows all of them.
  for (let round = 1; together && sample && round < ROUNDS && trials.length > 1; round++) {
    onStage("Comparing the engines");
    for (const trial of trials) if (promising(trial, trials)) await attempt(trial, () => measure(trial, sample, generates, 1));
  }
  const [best, ...others] = trials.toSorted((a, b) => fastest(a.times).seconds - fastest(b.times).seconds || 0);
  const rows = Object.fromEntries(candidates.map((one) => {
    const used = [best, ...others, ...all].find((trial) => trial?.one === one);
    const onGpu = all.find((trial) => trial.one === one && trial.way.accelerator === "webgpu" && trial !== used);
    const time = used.times.length ? fastest(used.times) : {};
    return [variant(one), { ...used.row, ...time, ...used.way, ...(onGpu ? { gpu: problemOf(onGpu.row) } : {}) }];
  }));
  others.forEach(drop);
  if (!best) return { rows, best: null, engine: null, info: null, error: failure };
  if (!together && best !== all.at(-1)) best.info = await open(best.engine, best.one, "", best.way);
  engines.delete(best.engine);
  return { rows, best: best.one, engine: best.engine, info: best.info, error: null };
}

/** @typedef {{ threads: number, accelerator: "cpu" | "webgpu" }} Way How an engine runs. */

/**
 * The ways to try. While they wait for each other, threads of ONNX Runtime occupy their processors, so that a small model, or any
 * model while other programs run, can be several times faster with one thread. A bundle that was exported for a GPU is tried there.
 * @param {any} one An engine of a model in site.json. @returns {Way[]}
 */
function ways({ engine, bytes, gpu }) {
  const most = threads();
  const counts = engine === "onnx" && most > 1 && bytes <= MOST_TWICE ? [most, 1] : [most];
  const onCpu = counts.map((count) => ({ threads: count, accelerator: "cpu" }));
  return gpu && hasGpu() ? [{ threads: most, accelerator: "webgpu" }, ...onCpu] : onCpu;
}

/** Why an engine is not used, of what is known about it. @param {Row} row */
function problemOf({ status, verdict, problem }) {
  if (status === "failed") return `could not be used: ${problem}`;
  return status === "differs" ? `discarded, because its answers differ: ${difference(verdict)}` : "slower";
}

/** Measures answers to the sample; the first one, which includes preparations of the engine, is not counted. */
async function measure(trial, { inputs, options }, generates, rounds) {
  const limits = generates ? { do_sample: false, num_beams: 1, max_new_tokens: TOKENS, min_new_tokens: TOKENS } : {};
  const warm = trial.times.length ? 0 : 1;
  for (let round = 0; round < rounds + warm; round++) {
    if (trial.times.length && trial.spent > MOST_SECONDS) return;
    const { figures } = await trial.engine.run(inputs, { ...options, ...limits }, null);
    if (round < warm) continue;
    trial.spent += figures.seconds;
    const rate = figures.tokens_per_second;
    trial.times.push(rate ? { seconds: figures.first_token_seconds + USUAL_TOKENS / rate, rate } : { seconds: figures.seconds });
  }
}

/** Whether an engine may still become the fastest. */
function promising({ times }, trials) {
  return fastest(times).seconds <= 1.5 * Math.min(...trials.map((each) => fastest(each.times).seconds));
}

function fastest(times) {
  return times.reduce((best, time) => (time.seconds < best.seconds ? time : best), { seconds: Infinity });
}

/** The last folder of a bundle's address, which identifies one of a model's engines. @param {{base: string}} one */
export function variant({ base }) {
  return base.split("/").at(-2);
}

/**
 * Shows what is known about the engines of a model, and why one was chosen.
 * @param {any} model @param {Choice} choice @param {any} selected The engine that the user or a link selected, if any.
 * @param {(one: any) => string} name The name of an engine and its recipe.
 */
export function show(model, choice, selected, name) {
  const known = model.engines.filter((one) => choice.rows[variant(one)]);
  const rows = known.map((one) => choice.rows[variant(one)]);
  find("choice").hidden = !known.length;
  find("choice-reason").textContent = reason(model, choice, selected, name);
  find("choice-rows").replaceChildren(...known.map((one, index) => make("li", { className: rows[index].status }, make("b", {}, `${name(one)}: `), inWords(rows[index]))));
  const extra = rows.reduce((sum, { status, bytes }) => sum + (status === "untried" ? bytes : 0), 0);
  find("measure").textContent = extra ? `Compare all (${megabytes(extra)} to download)` : "Compare again";
}

/** Why an engine is used, in a sentence. */
function reason(model, { rows, best }, selected, name) {
  if (selected) return `${name(selected)} was selected by hand or by a link.`;
  const one = model.engines.find((each) => variant(each) === best);
  if (!one) return "";
  const states = Object.values(rows).map(({ status }) => status);
  const count = (/** @type {string[]} */ ...wanted) => states.filter((status) => wanted.includes(status)).length;
  const chosen = `${name(one)} was chosen`;
  if (count("agrees", "unchecked") > 1) {
    return `${chosen}: it is the fastest${count("unchecked") ? "" : " of the engines with the right answers"} in this browser.`;
  }
  if (count("differs")) return `${chosen}: it is the only one with the right answers in this browser.`;
  if (count("failed")) return `${chosen}: it is the only one that works in this browser.`;
  return count("untried") ? `${chosen}: it needs a small download, and others were not compared with it.` : `${chosen}.`;
}

/** What is known about an engine. @param {Row} row */
export function inWords({ status, verdict, problem, bytes, seconds, rate, threads: count, accelerator, gpu }) {
  const single = accelerator === "webgpu" ? " on the GPU" : count === 1 && threads() > 1 ? " with one thread" : "";
  const time = rate ? `${rate.toFixed(1)} tokens/s${single}` : seconds ? milliseconds(seconds) + single : "";
  const words = {
    agrees: () => `agrees with ${verdict.answers} reference answers`,
    differs: () => `discarded, because it answers differently from the original model: ${difference(verdict)}`,
    unchecked: () => "not checked: the site has no reference answers for it",
    failed: () => `could not be used: ${problem}`,
    untried: () => `not tried, to save a download of ${megabytes(bytes)}`,
  }[status]();
  return [time, words, gpu && `on the GPU ${gpu}`].filter(Boolean).join("; ");
}

/** How answers differ from the references. */
export function difference({ answers, same, decided, error, tolerance, cosine }) {
  if (Number.isNaN(error) || error === null) return "its answers are not numbers";
  if (error > tolerance) return `scores differ by up to ${percent(error)}, where ${percent(tolerance)} are allowed`;
  if (cosine !== null) return `vectors have a cosine similarity of ${cosine.toFixed(3)}`;
  return `${decided - same} of ${answers} reference answers differ`;
}
