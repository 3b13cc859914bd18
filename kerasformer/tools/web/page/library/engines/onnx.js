/**
 * Runs ONNX bundles on ONNX Runtime Web. Lengths are dynamic. Caches stay in the memory of the runtime: files with fused attention
 * write new slots into them, as in Python, and others return longer ones, which are inputs of the next step.
 */
import { BundleError, CapacityError, EngineError } from "../errors.js";
import { byName, inputsOf, ofRole, outputOf } from "../manifest.js";
import { load } from "../runtimes.js";
import { Heap, HeapTensor } from "./onnx_heap.js";

/** @typedef {import("../manifest.js").Manifest} Manifest */
/** @typedef {Record<string, HeapTensor>} Tensors Tensors by name. */

/** Slots of the smallest caches that are updated in place. */
const MIN_SLOTS = 64;

/** The loaded runtime; a page or worker has only one. @type {Runtime | null} */
let runtime = null;

/** @typedef {{ ort: any, loader: string, threads: number, memories: WebAssembly.Memory[] }} Runtime */

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
 * @param {{ threads: number, runtimes: import("../runtimes.js").Runtimes }} options
 * @returns {Promise<OnnxForward | OnnxStep>}
 */
export async function openOnnx(manifest, files, options) {
  const loaded = await loadRuntime(options);
  const open = (/** @type {string} */ name) => Session.open(loaded, manifest, name, files);
  const restore = recordMemories(loaded.memories);
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

/** @param {{ threads: number, runtimes: import("../runtimes.js").Runtimes }} options @returns {Promise<Runtime>} */
async function loadRuntime({ threads, runtimes }) {
  if (runtime) return runtime;
  const { module: ort, loader, wasm } = await runtimes.onnxruntime();
  ort.env.wasm.wasmPaths = { mjs: loader, wasm: wasm.href };
  ort.env.wasm.numThreads = threads;
  return (runtime = { ort, loader, threads, memories: [] });
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
      if (descriptor.maximum !== 0) memories.push(this); // where pages lack SharedArrayBuffer, an empty one is made to find it
    }
  };
  return () => {
    WebAssembly.Memory = Memory;
  };
}

const memoryBytes = () => (runtime?.memories ?? []).reduce((sum, memory) => sum + memory.buffer.byteLength, 0);

/** A loaded model file. */
class Session {
  /** @param {any} session @param {Heap} heap @param {import("../manifest.js").Signature} signature */
  constructor(session, heap, signature) {
    this.session = session;
    this.handle = session.handler?.sessionId;
    if (!heap.module?._OrtRun || !Number.isInteger(this.handle)) {
      throw new EngineError("The files of ONNX Runtime Web are not those of the release that this page needs. Write the site again");
    }
    this.heap = heap;
    this.signature = signature;
    const names = [...Object.keys(signature.inputs), ...Object.keys(signature.outputs)];
    this.names = Object.fromEntries(names.map((name) => [name, heap.name(name)]));
    /** @type {Record<string, string>} The output that continues each cache input. */
    this.next = {};
    for (const [name, { continues }] of Object.entries(signature.outputs)) if (continues) this.next[continues] = name;
  }

  /** @param {Runtime} runtime @param {Manifest} manifest @param {string} name @param {Record<string, Uint8Array>} files */
  static async open({ ort, loader, memories }, manifest, name, files) {
    const [file, ...beside] = filesOf(manifest, name);
    const externalData = beside.map((path) => ({ path: path.split("/").pop(), data: files[path] }));
    let session;
    try {
      const options = { executionProviders: ["wasm"], graphOptimizationLevel: "all", logSeverityLevel: 3, externalData };
      session = await ort.InferenceSession.create(files[file], options);
    } catch (error) {
      throw new EngineError(`ONNX Runtime Web cannot load ${file}: ${error}`, { cause: error });
    }
    const { module } = await load(loader);
    return new Session(session, new Heap(module, memories[0]), manifest.signatures[name]);
  }

  /**
   * @param {Tensors} feeds @param {string[]} outputs @param {Tensors} [given] Tensors for some of the outputs.
   * @returns {Tensors} The outputs, which the caller owns.
   */
  run(feeds, outputs, given = {}) {
    const inputs = Object.entries(feeds).map(([name, tensor]) => /** @type {[number, HeapTensor]} */ ([this.names[name], tensor]));
    const wanted = outputs.map((name) => /** @type {[number, HeapTensor | null]} */ ([this.names[name], given[name] ?? null]));
    const results = this.heap.run(this.handle, inputs, wanted);
    return Object.fromEntries(outputs.map((name, index) => [name, results[index]]));
  }

  /** Inputs of integers by their kinds; kinds that the signature does not have are omitted. @param {Record<string, number[]>} arrays @returns {Tensors} */
  integers(arrays) {
    const named = Object.entries(byName(this.signature, arrays));
    return Object.fromEntries(named.map(([name, values]) => {
      const scalars = this.signature.inputs[name].shape.length === 1;
      return [name, this.heap.integers(values, scalars ? [values.length] : undefined)];
    }));
  }

  /** A cache with undefined content. @param {string} name @param {number} slots */
  cache(name, slots) {
    const [, heads, , size] = this.signature.inputs[name].shape;
    return this.heap.empty([1, Number(heads), slots, Number(size)]);
  }

  /** A state of fixed size, all zeros. @param {string} name */
  zeros(name) {
    const [, heads, slots, size] = this.signature.inputs[name].shape.map(Number);
    const state = this.cache(name, slots);
    this.heap.floats(state.buffer, heads * slots * size).fill(0);
    return state;
  }

  /** A copy of the first slots of a cache, in one with another number of slots. @param {string} name @param {HeapTensor} from @param {number} length @param {number} slots */
  copied(name, from, length, slots) {
    const copy = this.cache(name, slots);
    const { address, shape: [, heads, before, size] } = from.describe();
    for (let head = 0; head < heads; head++) {
      const values = this.heap.floats(address + 4 * head * before * size, length * size);
      this.heap.floats(copy.buffer + 4 * head * slots * size, length * size).set(values);
    }
    return copy;
  }

  close() {
    this.session.release();
    for (const address of Object.values(this.names)) this.heap.module._free(address);
  }
}

/** @param {Tensors} tensors */
function releaseAll(tensors) {
  for (const tensor of Object.values(tensors)) tensor.release();
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
   * @param {Record<string, number[]>} arrays One number for each token, by kind: `ids`, `mask`, `segments`; and of a model that finds
   *     spans, one for each word and label: `word_slots`, `label_slots`.
   * @returns {Promise<Record<string, Float32Array>>}
   * @throws {CapacityError} The text is longer than the model reads.
   */
  async run(arrays) {
    checkLength(arrays.ids.length, this.maxLength);
    const feeds = this.session.integers(arrays);
    try {
      const outputs = this.session.run(feeds, Object.keys(this.session.signature.outputs));
      const values = Object.entries(outputs).map(([name, tensor]) => [name, tensor.values()]);
      releaseAll(outputs);
      return Object.fromEntries(values);
    } finally {
      releaseAll(feeds);
    }
  }

  memory() {
    return memoryBytes();
  }

  close() {
    this.session.close();
  }
}

/**
 * Tensors that several states may use; the last one releases them.
 * @typedef {{ tensors: Tensors, users: number }} Shared
 */

/**
 * Caches of one or more states. Their first slots never change, so that a state with fewer tokens remains valid when another one
 * adds slots: `length` is the number of filled slots, and `slots` the number of all. A step from a state with fewer tokens than
 * `length` works on a copy.
 * @typedef {Shared & { length: number, slots: number }} Caches
 */

/**
 * The state of a text: keys and values; the states of layers that read only the last tokens, which a step replaces by others; an
 * encoded text; the number of tokens so far.
 * @typedef {{ caches: Caches, states: Shared, memory: Shared, length: number }} State
 */

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
    this.states = inputsOf(decoder.signature, "state");
    this.cross = inputsOf(decoder.signature, "cross_key", "cross_value");
    this.inPlace = this.caches.every((name) => outputs[decoder.next[name]].in_place);
  }

  /** See `Step.start`. @param {number[]} ids @returns {Promise<State>} */
  async start(ids) {
    if (!this.encoder) this.checkRoom(ids.length);
    const memory = this.encoder ? this.encode(this.encoder, ids) : { tensors: {}, users: 1 };
    const tensors = Object.fromEntries(this.caches.map((name) => [name, this.decoder.cache(name, 0)]));
    const states = { tensors: Object.fromEntries(this.states.map((name) => [name, this.decoder.zeros(name)])), users: 1 };
    const state = { caches: { tensors, users: 1, length: 0, slots: 0 }, states, memory, length: 0 };
    return this.encoder ? state : this.followed(ids.slice(0, -1), state);
  }

  /** See `Step.resume`. @param {State} state @param {number} length @param {number[]} ids @returns {Promise<State | null>} */
  async resume(state, length, ids) {
    this.checkRoom(length + ids.length);
    if (this.states.length && length < state.length) return null; // the states of a shorter text are gone
    const { caches } = state;
    // Without other users, the slots after the kept ones may be overwritten.
    if (caches.users === 1 && this.inPlace) caches.length = Math.min(caches.length, length);
    return this.followed(ids, { ...state, length });
  }

  /** See `Step.step`. @param {number} token @param {State} state */
  async step(token, state) {
    this.checkRoom(state.length + 1);
    const { logits, next } = this.read([token], state, true);
    return { logits: /** @type {Float32Array} */ (logits), state: next };
  }

  /** See `Step.release`. @param {State} state */
  release({ caches, states, memory }) {
    for (const shared of [caches, states, memory]) if (--shared.users === 0) releaseAll(shared.tensors);
  }

  memory() {
    return memoryBytes();
  }

  close() {
    this.decoder.close();
    this.encoder?.close();
  }

  /** The state after further tokens; the given one is released. @param {number[]} ids @param {State} state */
  followed(ids, state) {
    if (!ids.length) return state;
    const { next } = this.read(ids, state, false);
    this.release(state);
    return next;
  }

  /** Encodes the text, and computes its keys and values once for all steps. @param {Session} encoder @param {number[]} ids @returns {Shared} */
  encode(encoder, ids) {
    checkLength(ids.length, this.encoderCapacity);
    const ones = Array(ids.length).fill(1);
    const inputs = encoder.integers({ ids, mask: ones });
    const [states] = Object.keys(encoder.signature.outputs);
    const { [states]: hidden } = encoder.run(inputs, [states]);
    releaseAll(inputs);
    const tensors = { ...byName(this.decoder.signature, { memory: hidden }), ...this.decoder.integers({ memory_mask: ones }) };
    const empty = Object.fromEntries([...this.caches, ...this.cross].map((name) => [name, this.decoder.cache(name, 0)]));
    const token = this.decoder.integers({ ids: [0] });
    const projected = this.decoder.run({ ...tensors, ...empty, ...token }, this.cross.map((name) => this.decoder.next[name]));
    releaseAll({ ...empty, ...token });
    for (const name of this.cross) tensors[name] = projected[this.decoder.next[name]];
    return { tensors, users: 1 };
  }

  /** Reads tokens; the state remains valid. @param {number[]} ids @param {State} state @param {boolean} wanted Whether the logits are. */
  read(ids, { caches, states, memory, length }, wanted) {
    const end = length + ids.length;
    const inputs = this.decoder.integers({
      ids,
      mask: Array(end).fill(1),
      positions: ids.map((_, index) => length + index),
      cache_length: [length],
      logits_start: [ids.length - 1], // the runtime computes all outputs, and the logits of one token take the least time
    });
    const past = this.room(caches, length, end);
    const given = this.inPlace ? Object.fromEntries(this.caches.map((name) => [this.decoder.next[name], past.tensors[name]])) : {};
    const names = [...(wanted ? [this.logits] : []), ...[...this.caches, ...this.states].map((name) => this.decoder.next[name])];
    let outputs;
    try {
      outputs = this.decoder.run({ ...past.tensors, ...states.tensors, ...memory.tensors, ...inputs }, names, given);
    } catch (error) {
      if (past !== caches) releaseAll(past.tensors);
      throw error;
    } finally {
      releaseAll(inputs);
    }
    const logits = wanted ? outputs[this.logits].values().subarray(-this.vocabSize) : null;
    if (wanted) outputs[this.logits].release();
    memory.users++;
    /** @param {string[]} names */
    const following = (names) => Object.fromEntries(names.map((name) => [name, outputs[this.decoder.next[name]]]));
    const others = { states: { tensors: following(this.states), users: 1 }, memory, length: end };
    if (this.inPlace) {
      past.length = end;
      past.users++;
      return { logits, next: { caches: past, ...others } };
    }
    if (past !== caches) releaseAll(past.tensors);
    return { logits, next: { caches: { tensors: following(this.caches), users: 1, length: end, slots: end }, ...others } };
  }

  /**
   * Caches with the first `length` slots of others, which a step to `end` tokens may use: the same ones, or copies if other slots
   * were filled after these or if there is no room. The user of copies is added by the caller.
   * @param {Caches} caches @param {number} length @param {number} end @returns {Caches}
   */
  room(caches, length, end) {
    if (caches.length === length && (!this.inPlace || caches.slots >= end)) return caches;
    const slots = this.inPlace ? Math.max(caches.slots, this.slotsFor(end)) : length;
    const copies = this.caches.map((name) => [name, this.decoder.copied(name, caches.tensors[name], length, slots)]);
    return { tensors: Object.fromEntries(copies), users: 0, length, slots };
  }

  /** Number of slots for a text: short texts need little memory, and long ones few copies. @param {number} length */
  slotsFor(length) {
    return Math.min(this.capacity, Math.max(MIN_SLOTS, 2 ** Math.ceil(Math.log2(length))));
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
