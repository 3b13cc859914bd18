/**
 * Runs ONNX bundles on ONNX Runtime Web. Lengths are dynamic; each step returns longer caches, which are the inputs of the next
 * step. (Files with fused attention can update caches in place, with `cache_length` as the number of filled slots. Here the
 * caches are always full, because the runtime copies all inputs and outputs.)
 */
import { BundleError, CapacityError, EngineError } from "../errors.js";
import { byName, inputsOf, ofRole, outputOf } from "../manifest.js";

/** @typedef {import("../manifest.js").Manifest} Manifest */
/** @typedef {Record<string, any>} Tensors Tensors by name. */

/** The loaded runtime; a page or worker has only one. @type {Runtime | null} */
let runtime = null;

/** @typedef {{ ort: any, threads: number, memories: WebAssembly.Memory[] }} Runtime */

/**
 * The files that a signature needs: the model, and the data files with weights, which several models may share.
 * @param {Manifest} manifest
 * @param {string} name
 */
function filesOf(manifest, name) {
  return [manifest.signatures[name].file, ...Object.keys(manifest.files).filter((each) => each.endsWith(".onnx_data"))];
}

/** The files of all signatures. @param {Manifest} manifest */
export function onnxFiles(manifest) {
  return Object.keys(manifest.signatures).flatMap((name) => filesOf(manifest, name));
}

/**
 * @param {Manifest} manifest
 * @param {Record<string, Uint8Array>} files
 * @param {{ threads: number, vendor: URL }} options
 * @returns {Promise<OnnxForward | OnnxStep>}
 */
export async function openOnnx(manifest, files, options) {
  const { ort, memories } = await loadRuntime(options);
  const open = (/** @type {string} */ name) => Session.open(ort, manifest, name, files);
  const restore = recordMemories(memories);
  try {
    const [[decode] = [], [encode] = [], [forward] = []] = ["decode", "encode", "forward"].map(
      (role) => ofRole(manifest, role)[0],
    );
    if (decode) return new OnnxStep(manifest, await open(decode), encode ? await open(encode) : null);
    if (forward) return new OnnxForward(manifest, await open(forward));
    throw new BundleError(
      `A signature of the role forward or decode was expected. Received: ${Object.keys(manifest.signatures)}`,
    );
  } finally {
    restore();
  }
}

/** @param {{ threads: number, vendor: URL }} options @returns {Promise<Runtime>} */
async function loadRuntime({ threads, vendor }) {
  if (runtime) return runtime;
  const folder = new URL("onnxruntime/", vendor);
  try {
    const ort = await import(new URL("ort.wasm.min.mjs", folder).href);
    ort.env.wasm.wasmPaths = folder.href;
    ort.env.wasm.numThreads = threads;
    return (runtime = { ort, threads, memories: [] });
  } catch (error) {
    throw new EngineError(`ONNX Runtime Web cannot be started: ${error}. Expected its files at ${folder.href}`, {
      cause: error,
    });
  }
}

/**
 * Records new WebAssembly memories: the runtime creates one with its first session, but does not report its size.
 * @param {WebAssembly.Memory[]} memories The list that they are added to.
 * @returns {() => void} Ends the recording.
 */
function recordMemories(memories) {
  const Memory = WebAssembly.Memory;
  WebAssembly.Memory = class extends Memory {
    /** @param {WebAssembly.MemoryDescriptor} descriptor */
    constructor(descriptor) {
      super(descriptor);
      memories.push(this);
    }
  };
  return () => {
    WebAssembly.Memory = Memory;
  };
}

const memoryBytes = () => (runtime?.memories ?? []).reduce((sum, memory) => sum + memory.buffer.byteLength, 0);

/** A loaded model file. */
class Session {
  /** @param {any} ort @param {any} session @param {import("../manifest.js").Signature} signature */
  constructor(ort, session, signature) {
    this.ort = ort;
    this.session = session;
    this.signature = signature;
  }

  /** @param {any} ort @param {Manifest} manifest @param {string} name @param {Record<string, Uint8Array>} files */
  static async open(ort, manifest, name, files) {
    const signature = manifest.signatures[name];
    const [file, ...beside] = filesOf(manifest, name);
    const externalData = beside.map((path) => ({ path: path.split("/").pop(), data: files[path] }));
    try {
      const options = { executionProviders: ["wasm"], graphOptimizationLevel: "all", logSeverityLevel: 3, externalData };
      return new Session(ort, await ort.InferenceSession.create(files[file], options), signature);
    } catch (error) {
      throw new EngineError(`ONNX Runtime Web cannot load ${file}: ${error}`, { cause: error });
    }
  }

  /** @param {number[]} values */
  integers(values, shape = [1, values.length]) {
    return new this.ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
  }

  /** An empty cache. @param {string} name */
  empty(name) {
    const [, heads, , size] = this.signature.inputs[name].shape;
    return new this.ort.Tensor("float32", new Float32Array(0), [1, heads, 0, size]);
  }

  /** The first slots of a cache. @param {any} tensor @param {number} length */
  first({ data, dims: [rows, heads, slots, size] }, length) {
    const kept = new Float32Array(rows * heads * length * size);
    for (let head = 0; head < rows * heads; head++) {
      const start = head * slots * size;
      kept.set(data.subarray(start, start + length * size), head * length * size);
    }
    return new this.ort.Tensor("float32", kept, [rows, heads, length, size]);
  }

  /** @param {Tensors} feeds @param {string[]} outputs @returns {Promise<Tensors>} */
  run(feeds, outputs) {
    return this.session.run(feeds, outputs);
  }

  close() {
    this.session.release();
  }
}

/** An encoder. */
export class OnnxForward {
  /** @param {Manifest} manifest @param {Session} session */
  constructor(manifest, session) {
    this.session = session;
    this.maxLength = manifest.info.max_length;
  }

  /**
   * Reads one text.
   * @param {Record<string, number[]>} arrays One number for each token, by kind: `ids`, `mask`, `segments`.
   * @returns {Promise<Record<string, Float32Array>>}
   * @throws {CapacityError} The text is longer than the model reads.
   */
  async run(arrays) {
    checkLength(arrays.ids.length, this.maxLength);
    const tensors = Object.entries(arrays).map(([kind, values]) => [kind, this.session.integers(values)]);
    const feeds = byName(this.session.signature, Object.fromEntries(tensors));
    const outputs = await this.session.run(feeds, Object.keys(this.session.signature.outputs));
    return Object.fromEntries(Object.entries(outputs).map(([name, tensor]) => [name, tensor.data]));
  }

  memory() {
    return memoryBytes();
  }

  close() {
    this.session.close();
  }
}

/** @typedef {{ past: Tensors, memory: Tensors, length: number }} State Caches, an encoded text, the number of tokens so far. */

/** A generating model; see `Step`. */
export class OnnxStep {
  /** @param {Manifest} manifest @param {Session} decoder @param {Session | null} encoder */
  constructor(manifest, decoder, encoder) {
    if (manifest.capacity == null) throw new BundleError("The manifest of a model that generates must have a capacity. Received: none");
    this.decoder = decoder;
    this.encoder = encoder;
    this.isEncoderDecoder = encoder !== null;
    this.capacity = manifest.capacity;
    this.encoderCapacity = manifest.encoder_capacity;
    const { outputs } = decoder.signature;
    const logits = outputOf(decoder.signature, "logits");
    if (!logits) throw new BundleError(`A step with logits was expected. Received: ${Object.keys(outputs).join(", ")}`);
    this.logits = logits;
    this.vocabSize = Number(outputs[logits].shape[outputs[logits].shape.length - 1]);
    this.caches = inputsOf(decoder.signature, "key", "value");
    this.cross = inputsOf(decoder.signature, "cross_key", "cross_value");
    /** @type {Record<string, string>} The output that continues each cache input. */
    this.next = {};
    for (const [name, { continues }] of Object.entries(outputs)) if (continues) this.next[continues] = name;
  }

  /** See `Step.start`. @param {number[]} ids @returns {Promise<State>} */
  async start(ids) {
    const past = Object.fromEntries(this.caches.map((name) => [name, this.decoder.empty(name)]));
    if (this.encoder) return { past, memory: await this.encode(this.encoder, ids), length: 0 };
    this.checkRoom(ids.length);
    /** @type {State} */
    const state = { past, memory: {}, length: 0 };
    return ids.length > 1 ? (await this.read(ids.slice(0, -1), state, [])).state : state;
  }

  /** See `Step.resume`. @param {State} state @param {number} length @param {number[]} ids @returns {Promise<State>} */
  async resume(state, length, ids) {
    this.checkRoom(length + ids.length);
    if (length < state.length) {
      const first = this.caches.map((name) => [name, this.decoder.first(state.past[name], length)]);
      state = { ...state, past: Object.fromEntries(first), length };
    }
    return ids.length ? (await this.read(ids, state, [])).state : state;
  }

  /** See `Step.step`. @param {number} token @param {State} state */
  async step(token, state) {
    this.checkRoom(state.length + 1);
    const read = await this.read([token], state, [this.logits]);
    return { logits: /** @type {Float32Array} */ (read.outputs[this.logits].data), state: read.state };
  }

  /** Does nothing: tensors are arrays, which the garbage collector frees. */
  release() {}

  memory() {
    return memoryBytes();
  }

  close() {
    this.decoder.close();
    this.encoder?.close();
  }

  /** Encodes the text, and computes its keys and values once for all steps. @param {Session} encoder @param {number[]} ids */
  async encode(encoder, ids) {
    checkLength(ids.length, this.encoderCapacity);
    const mask = this.decoder.integers(Array(ids.length).fill(1));
    const [states] = Object.keys(encoder.signature.outputs);
    const { [states]: hidden } = await encoder.run(byName(encoder.signature, { ids: encoder.integers(ids), mask }), [states]);
    const tensors = byName(this.decoder.signature, { memory: hidden, memory_mask: mask });
    const empty = [...this.caches, ...this.cross].map((name) => [name, this.decoder.empty(name)]);
    const token = byName(this.decoder.signature, { ids: this.decoder.integers([0]) });
    const first = { ...tensors, ...Object.fromEntries(empty), ...token };
    const projected = await this.decoder.run(first, this.cross.map((name) => this.next[name]));
    return { ...tensors, ...Object.fromEntries(this.cross.map((name) => [name, projected[this.next[name]]])) };
  }

  /** @param {number[]} ids @param {State} state @param {string[]} outputNames Outputs besides the caches. */
  async read(ids, { past, memory, length }, outputNames) {
    const end = length + ids.length;
    const tokens = byName(this.decoder.signature, {
      ids: this.decoder.integers(ids),
      mask: this.decoder.integers(Array(end).fill(1)),
      positions: this.decoder.integers(ids.map((_, index) => length + index)),
    });
    const names = [...outputNames, ...this.caches.map((name) => this.next[name])];
    const outputs = await this.decoder.run({ ...past, ...memory, ...tokens }, names);
    const next = Object.fromEntries(this.caches.map((name) => [name, outputs[this.next[name]]]));
    return { outputs, state: { past: next, memory, length: end } };
  }

  /** @param {number} length */
  checkRoom(length) {
    if (length <= this.capacity) return;
    throw new CapacityError(
      `The model holds ${this.capacity} tokens, including the prompt. Received: ${length}. ` +
        "Shorten the prompt, request fewer tokens, or export with a larger capacity",
      { most: this.capacity, received: length },
    );
  }
}

/** @param {number} length @param {number | null | undefined} most */
function checkLength(length, most) {
  if (most == null || length <= most) return;
  throw new CapacityError(`The model reads at most ${most} tokens. Received: ${length}. Shorten the text`, {
    most,
    received: length,
  });
}
