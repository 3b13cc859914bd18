/**
 * Runs TFLite bundles on LiteRT.js. Shapes are static: a text is read with the shortest signature that holds it. A step returns
 * new cache tensors, which are the inputs of the next step and must be deleted explicitly.
 */
import { BundleError, CapacityError, EngineError } from "../errors.js";
import { byName, inputPadding, inputsOf, ofRole, outputOf } from "../manifest.js";
import { byLength, decodeSteps, prefillPlan, smallest } from "./signatures.js";

/** @typedef {import("../manifest.js").Manifest} Manifest */
/** @typedef {Record<string, any>} Tensors Tensors by name. */

/** Larger files exceed the address space, together with the packed weights. */
const LARGEST_FILE = 2 ** 31;

/** Bytes of weights, counted for each signature, from which on the memory of the runtime is probably too small. */
const LARGEST_COPIES = 2 ** 30;

/** The loaded runtime; a page or worker has only one. @type {{ threads: number, gpu: boolean, module: any, wasm: any } | null} */
let runtime = null;

/**
 * @param {Manifest} manifest
 * @param {Record<string, Uint8Array>} files
 * @param {{ threads: number, runtimes: import("../runtimes.js").Runtimes, accelerator?: "cpu" | "webgpu" }} options
 * @returns {Promise<LiteRtForward | LiteRtStep>}
 */
export async function openLiteRt(manifest, files, { threads, runtimes, accelerator = "cpu" }) {
  const [bytes, ...others] = Object.values(files);
  if (others.length) throw new BundleError(`A TFLite bundle has one model file. Received: ${Object.keys(files)}`);
  if (bytes.length >= LARGEST_FILE) {
    throw new EngineError(`LiteRT.js loads models of less than 2 GB. Received: ${bytes.length} bytes`);
  }
  const gpu = accelerator === "webgpu";
  if (gpu) await checkGpu(manifest);
  const { module } = await loadRuntime(threads, runtimes, gpu);
  let model;
  try {
    const onGpu = { accelerator: "webgpu", gpuOptions: { precision: "fp32" } };
    model = await module.loadAndCompile(bytes, gpu ? onGpu : { accelerator: "wasm", cpuOptions: { numThreads: threads } });
  } catch (error) {
    throw new EngineError(`LiteRT.js cannot load the model: ${error}${memoryHint(bytes.length, manifest)}`, { cause: error });
  }
  const engine = new Engine(module, model, manifest);
  return ofRole(manifest, "decode").length ? new LiteRtStep(engine, manifest) : new LiteRtForward(engine, manifest);
}

/**
 * Refuses a browser without WebGPU, and a model that was not exported for a GPU, which LiteRT's delegate may compute wrongly
 * without an error.
 * @param {Manifest} manifest
 */
async function checkGpu({ gpu_findings: findings }) {
  const browser = /** @type {any} */ (globalThis.navigator);
  const adapter = await browser?.gpu?.requestAdapter();
  if (!adapter) throw new EngineError('accelerator: "webgpu" needs a browser with WebGPU, and a GPU. Received: none. Use "cpu"');
  const wrong = findings?.find(({ effect }) => effect !== "reported");
  if (findings && !wrong) return;
  const received = wrong ? `${wrong.what} (${wrong.example})` : "one of an earlier version, which does not say it";
  throw new BundleError(
    `a model that was exported for a GPU was expected, with accelerator="gpu". Received: ${received}. Export it again, or use "cpu"`,
  );
}

/** Why a model may be too large, if it has many signatures. @param {number} bytes @param {Manifest} manifest */
function memoryHint(bytes, { signatures }) {
  const count = Object.keys(signatures).length;
  if (bytes * count < LARGEST_COPIES) return "";
  return (
    `. It keeps a copy of the weights for each signature in a memory of at most 2 GB. Received: ${count} signatures and ` +
    `${Math.round(bytes / 1e6)} MB. Export with --target litert-web, or with fewer prefill_lengths and cache_lengths`
  );
}

/** @param {number} threads @param {import("../runtimes.js").Runtimes} runtimes @param {boolean} gpu */
async function loadRuntime(threads, runtimes, gpu) {
  if (runtime && runtime.threads > 1 === threads > 1 && runtime.gpu === gpu) return runtime;
  const { module, wasm } = await runtimes.litert();
  try {
    if (runtime) module.unloadLiteRt();
    runtime = null;
    // Without these paths, Emscripten searches for its files beside the script of the worker.
    Object.assign(globalThis, {
      Module: {
        locateFile: (/** @type {string} */ file) => new URL(file, wasm).href,
        mainScriptUrlOrBlob: new URL("litert_wasm_threaded_internal.js", wasm).href,
        // The runtime writes its whole log to the error output, but few of the lines are errors.
        printErr: (/** @type {string} */ line) => (line.startsWith("ERROR") ? console.error : console.debug)(line),
      },
    });
    const load = () => module.loadLiteRt(wasm.href, { threads: threads > 1 });
    const loaded = gpu ? await load() : await withoutGpu(module, load);
    runtime = { threads, gpu, module, wasm: loaded.liteRtWasm };
    return runtime;
  } catch (error) {
    throw new EngineError(
      `LiteRT.js cannot be started: ${error}. Expected its files at ${wasm.href}, and a browser with WebAssembly`,
      { cause: error },
    );
  }
}

/**
 * Loads the runtime with an environment without a GPU. By default, `loadLiteRt` requests the fastest one, which `accelerator: "wasm"`
 * does not use, and warns if there is none; it has no option against this.
 * @template T
 * @param {any} module @param {() => Promise<T>} load @returns {Promise<T>}
 */
async function withoutGpu({ Environment }, load) {
  const { create } = Environment;
  Environment.create = (/** @type {object} */ options) => create.call(Environment, { webGpuDevice: null, ...options });
  try {
    return await load();
  } finally {
    Environment.create = create;
  }
}

/** A compiled model file. */
class Engine {
  /** @param {any} module @param {any} model @param {Manifest} manifest */
  constructor(module, model, manifest) {
    this.module = module;
    this.model = model;
    this.signatures = manifest.signatures;
  }

  /**
   * Runs a signature; the caller owns the resulting tensors.
   * @param {string} name
   * @param {Record<string, number[]>} arrays Integers; the signature has their shapes.
   * @param {Tensors} [tensors] Further inputs, which the caller continues to own.
   * @returns {Promise<Tensors>}
   */
  async run(name, arrays, tensors = {}) {
    const { inputs } = this.signatures[name];
    const created = Object.entries(arrays).map(([key, values]) => {
      return [key, new this.module.Tensor(Int32Array.from(values), inputs[key].shape)];
    });
    try {
      return await this.model.run(name, { ...Object.fromEntries(created), ...tensors });
    } finally {
      for (const [, tensor] of created) tensor.delete();
    }
  }

  /**
   * Runs a signature; `arrays` has the kinds of inputs as keys, of which others are ignored. See `run`.
   * @param {string} name @param {Record<string, number[]>} arrays @param {Tensors} [tensors] @returns {Promise<Tensors>}
   */
  runKinds(name, arrays, tensors) {
    return this.run(name, byName(this.signatures[name], arrays), tensors);
  }

  /** A tensor of zeros for an input of a signature. @param {string} name @param {string} key */
  zeros(name, key) {
    const shape = /** @type {number[]} */ (this.signatures[name].inputs[key].shape);
    return new this.module.Tensor(new Float32Array(shape.reduce((size, axis) => size * axis, 1)), shape);
  }

  memory() {
    return runtime?.wasm.HEAPU8.buffer.byteLength ?? 0;
  }

  close() {
    this.model.delete();
  }
}

/** Returns the values of a tensor, and deletes it. @param {any} tensor @returns {Promise<Float32Array>} */
async function takeValues(tensor) {
  const here = tensor.accelerator === "webgpu" ? await tensor.moveTo("wasm") : tensor; // which deletes the one of the GPU
  const values = here.toTypedArray();
  here.delete();
  return values;
}

/** Values, padded to a length. @param {number[]} values @param {number} size @param {number} fill */
const padded = (values, size, fill) => [...values, ...Array(size - values.length).fill(fill)];

/**
 * The scores `(W, K, C)` of spans that begin with one of the words, for the labels.
 * @param {Float32Array} values @param {number[]} shape @param {number} words @param {number} labels
 */
function withoutPadding(values, [, , widths, columns], words, labels) {
  const at = (/** @type {number} */ index) => Math.floor(index / labels) * columns + (index % labels);
  return Float32Array.from({ length: words * widths * labels }, (_, index) => values[at(index)]);
}

/** An encoder. */
export class LiteRtForward {
  /** @param {Engine} engine @param {Manifest} manifest */
  constructor(engine, manifest) {
    this.engine = engine;
    this.lengths = byLength(manifest, "forward");
    this.pad = inputPadding(manifest.info);
    // Outputs with an entry for each token have a third axis, except the scores of tokens as the start or end of an answer.
    this.scoresTokens = manifest.info.task === "question-answering";
  }

  /**
   * Reads one text.
   * @param {Record<string, number[]>} arrays One number for each token, by kind: `ids`, `mask`, `segments`; and of a model that finds
   *     spans, one for each word and label: `word_slots`, `label_slots`.
   * @returns {Promise<Record<string, Float32Array>>} Outputs; those with an entry for each token, word or label have none for padding.
   * @throws {CapacityError} The text is longer than the longest signature.
   */
  async run(arrays) {
    const count = arrays.ids.length;
    const fits = (/** @type {{ name: string }} */ { name }) => this.inputs(name, arrays).every(([, values, size]) => values.length <= size);
    const { size, name } = smallest(this.lengths, count, "text", fits);
    const whole = this.inputs(name, arrays).map(([key, values, size, fill]) => [key, padded(values, size, fill)]);
    const outputs = await this.engine.run(name, Object.fromEntries(whole));
    /** @type {Record<string, Float32Array>} */
    const read = {};
    for (const [key, tensor] of Object.entries(outputs)) {
      const shape = /** @type {number[]} */ (this.engine.signatures[name].outputs[key].shape);
      const perToken = shape.length > 2 || this.scoresTokens;
      const values = await takeValues(tensor);
      if (arrays.word_slots) read[key] = withoutPadding(values, shape, arrays.word_slots.length, arrays.label_slots.length);
      else read[key] = perToken ? values.subarray(0, (values.length / size) * count) : values;
    }
    return read;
  }

  /**
   * The inputs of a signature: name, values, length, and what fills the rest of it.
   * @param {string} name @param {Record<string, number[]>} arrays By kind. @returns {[string, number[], number, number][]}
   */
  inputs(name, arrays) {
    const signature = this.engine.signatures[name];
    return Object.entries(byName(signature, arrays)).map(([key, values]) => {
      const { kind, shape, default: fill = 0 } = signature.inputs[key];
      return [key, values, Number(shape[1]), kind === "ids" ? this.pad : fill];
    });
  }

  memory() {
    return this.engine.memory();
  }

  close() {
    this.engine.close();
  }
}

/**
 * The state of a text after the tokens so far.
 * @typedef {object} State
 * @property {Tensors} caches Keys and values of the self-attention.
 * @property {Memory | null} encoded The encoded text, which states share.
 * @property {number} position Number of tokens in the caches.
 * @property {number} steps Number of these tokens that `step` has read and that the caches of a sliding window can discard.
 */

/** @typedef {{ tensors: Tensors, mask: number[], length: number, users: number }} Memory */

/** A generating model; see `Step`. */
export class LiteRtStep {
  /** @param {Engine} engine @param {Manifest} manifest */
  constructor(engine, manifest) {
    this.engine = engine;
    this.steps = decodeSteps(manifest);
    // The step that attends to all slots, for texts that are too long for the others.
    this.plain = this.steps[this.steps.length - 1]?.name;
    const signature = manifest.signatures[this.plain];
    const logits = signature && outputOf(signature, "logits");
    this.cacheNames = signature ? inputsOf(signature, "key", "value", "state") : [];
    if (!this.cacheNames.length || !logits) {
      throw new BundleError(
        `A step with caches and logits was expected. Received: ${Object.keys(manifest.signatures).join(", ")}`,
      );
    }
    const { inputs, outputs } = signature;
    this.logits = logits;
    this.isEncoderDecoder = manifest.info.is_encoder_decoder;
    this.capacity = manifest.capacity ?? Number(inputs[this.cacheNames[0]].shape[2]);
    // Caches of a sliding window have fewer slots than the text has tokens, and can discard only the last ones.
    this.margin = Math.min(...this.cacheNames.map((name) => inputs[name].margin ?? this.capacity));
    this.vocabSize = Number(outputs[logits].shape[outputs[logits].shape.length - 1]);
    const [mask] = inputsOf(signature, "memory_mask");
    this.encoderCapacity = mask ? Number(inputs[mask].shape[1]) : 0;
    this.lengths = byLength(manifest, this.isEncoderDecoder ? "encode" : "prefill", this.isEncoderDecoder);
    this.pad = inputPadding(manifest.info);
  }

  /** See `Step.start`. @param {number[]} ids @returns {Promise<State>} */
  async start(ids) {
    if (!this.isEncoderDecoder && ids.length > this.capacity) {
      throw new CapacityError(`A prompt must have at most ${this.capacity} tokens. Received: ${ids.length}. Shorten the prompt`, {
        most: this.capacity,
        received: ids.length,
      });
    }
    const encoded = this.isEncoderDecoder ? await this.encode(ids) : null;
    const caches = this.cacheNames.map((name) => [name, this.engine.zeros(this.plain, name)]);
    /** @type {State} */
    const state = { caches: Object.fromEntries(caches), encoded, position: 0, steps: 0 };
    return encoded ? state : this.prefill(ids.slice(0, -1), state);
  }

  /** See `Step.resume`. @param {State} state @param {number} length @param {number[]} ids @returns {Promise<State | null>} */
  async resume(state, length, ids) {
    if (this.margin < this.capacity && state.position - length > state.steps) return null;
    return this.prefill(ids, { ...state, position: length, steps: 0 });
  }

  /** See `Step.step`. @param {number} token @param {State} state */
  async step(token, state) {
    if (state.position >= this.capacity) {
      throw new CapacityError(`The cache is full: it holds ${this.capacity} tokens, including the prompt. Request fewer tokens`, {
        most: this.capacity,
        received: this.capacity + 1,
      });
    }
    const { [this.logits]: logits, ...caches } = await this.read(this.stepFor(state), [token], state);
    if (state.encoded) state.encoded.users++;
    const steps = Math.min(state.steps + 1, this.margin);
    return { logits: await takeValues(logits), state: { ...state, caches, position: state.position + 1, steps } };
  }

  /** See `Step.release`. @param {State} state */
  release(state) {
    deleteAll(state.caches);
    if (state.encoded && --state.encoded.users === 0) deleteAll(state.encoded.tensors);
  }

  memory() {
    return this.engine.memory();
  }

  close() {
    this.engine.close();
  }

  /** @param {number[]} ids @returns {Promise<Memory>} */
  async encode(ids) {
    const { size, name } = smallest(this.lengths, ids.length, "input");
    const ones = Array(ids.length).fill(1);
    const tensors = await this.engine.runKinds(name, { ids: padded(ids, size, this.pad), mask: padded(ones, size, 0) });
    return { tensors, mask: padded(ones, this.encoderCapacity, 0), length: ids.length, users: 1 };
  }

  /** Reads tokens of a prompt after those in the caches. @param {number[]} ids @param {State} state */
  async prefill(ids, state) {
    const start = state.position;
    const sizes = prefillPlan(
      ids.length,
      this.capacity,
      this.lengths.map(({ size }) => size),
      start,
    );
    for (const size of sizes) {
      const read = state.position - start;
      const part = ids.slice(read, read + size);
      const name = size === 1 ? this.stepFor(state) : this.lengths.filter((each) => each.size === size)[0].name;
      const { [this.logits]: logits, ...caches } = await this.read(name, padded(part, size, this.pad), state);
      logits?.delete();
      deleteAll(state.caches);
      state = { ...state, caches, position: state.position + part.length };
    }
    return state;
  }

  /** The step with the smallest sufficient cache length. @param {State} state */
  stepFor({ position, encoded }) {
    const reach = Math.max(position + 1, encoded?.length ?? 0);
    return this.steps.find(({ size }) => reach <= size)?.name ?? this.plain;
  }

  /** @param {string} name @param {number[]} tokens @param {State} state @returns {Promise<Tensors>} */
  read(name, tokens, { caches, encoded, position }) {
    /** @type {Record<string, number[]>} */
    const arrays = { ids: tokens, slots: tokens.map((_, index) => position + index) };
    if (encoded) arrays.memory_mask = encoded.mask;
    return this.engine.runKinds(name, arrays, { ...caches, ...encoded?.tensors });
  }
}

/** @param {Tensors} tensors */
function deleteAll(tensors) {
  for (const tensor of Object.values(tensors)) tensor.delete();
}
