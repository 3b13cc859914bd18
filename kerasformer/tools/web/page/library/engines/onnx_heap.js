/**
 * Tensors in the memory of ONNX Runtime Web.
 *
 * The runtime's JavaScript interface copies each input into the WebAssembly memory and each output out of it (`prepareInputOutputTensor`
 * and `run` in its wasm-core-impl.ts; `preferredOutputLocation` and preallocated outputs concern GPUs only). For a generation, this
 * copies all caches twice in each step. The functions of the WebAssembly module, which that interface calls, take and return tensors
 * that stay in its memory. They belong to the release of the runtime that package.json names.
 */
import { EngineError } from "../errors.js";

const FLOAT32 = 1;
const INT64 = 7;
const CPU = 1; // the location of a tensor
const POINTER = 4; // bytes

/** A tensor in the memory of the runtime; its owner must `release` it. */
export class HeapTensor {
  /** @param {Heap} heap @param {number} handle @param {number} buffer Address of memory that belongs to the tensor, or 0. */
  constructor(heap, handle, buffer = 0) {
    this.heap = heap;
    this.handle = handle;
    this.buffer = buffer;
  }

  /**
   * The address, and the size of each axis.
   * @returns {{ address: number, shape: number[] }}
   * @throws {EngineError} The numbers are no float32: those of another size would be read beyond the tensor, or cut.
   */
  describe() {
    const { module } = this.heap;
    const stack = module.stackSave();
    try {
      const fields = module.stackAlloc(4 * POINTER); // type, address, axes, number of axes
      this.heap.check(module._OrtGetTensorData(this.handle, ...[0, 1, 2, 3].map((index) => fields + index * POINTER)));
      const [type, address, axes, rank] = [0, 1, 2, 3].map((index) => module.getValue(fields + index * POINTER, "i32") >>> 0);
      const shape = Array.from({ length: rank }, (_, axis) => module.getValue(axes + axis * POINTER, "i32"));
      module._OrtFree(axes);
      if (type !== FLOAT32) throw new EngineError(`A tensor of float32 was expected. Received: ONNX's type ${type}`);
      return { address, shape };
    } finally {
      module.stackRestore(stack);
    }
  }

  /** A copy of the values. @returns {Float32Array} */
  values() {
    const { address, shape } = this.describe();
    return this.heap.floats(address, shape.reduce((size, axis) => size * axis, 1)).slice();
  }

  release() {
    this.heap.module._OrtReleaseTensor(this.handle);
    if (this.buffer) this.heap.module._free(this.buffer);
    this.handle = this.buffer = 0;
  }
}

/** The memory and the functions of the runtime. */
export class Heap {
  /** @param {any} module Its WebAssembly module. @param {WebAssembly.Memory | undefined} memory */
  constructor(module, memory) {
    this.module = module;
    this.memory = memory;
  }

  /** The current memory: it may have grown since the last call. @returns {ArrayBufferLike} */
  get bytes() {
    return this.memory?.buffer ?? this.module.HEAPU8.buffer;
  }

  /** @param {number} address @param {number} count */
  floats(address, count) {
    return new Float32Array(this.bytes, address, count);
  }

  /** A tensor of integers. @param {number[]} values @param {number[]} [shape] */
  integers(values, shape = [1, values.length]) {
    const tensor = this.allocate(INT64, 8 * values.length, shape);
    new BigInt64Array(this.bytes, tensor.buffer, values.length).set(BigInt64Array.from(values, BigInt));
    return tensor;
  }

  /** A tensor of undefined numbers. @param {number[]} shape */
  empty(shape) {
    return this.allocate(FLOAT32, 4 * shape.reduce((size, axis) => size * axis, 1), shape);
  }

  /** @param {number} type @param {number} size In bytes. @param {number[]} shape */
  allocate(type, size, shape) {
    const { module } = this;
    const buffer = this.reserve(size);
    const stack = module.stackSave();
    try {
      const axes = module.stackAlloc(POINTER * Math.max(shape.length, 1));
      shape.forEach((axis, index) => module.setValue(axes + index * POINTER, axis, "i32"));
      const handle = module._OrtCreateTensor(type, buffer, size, axes, shape.length, CPU);
      if (!handle) this.check(1);
      return new HeapTensor(this, handle, buffer);
    } catch (error) {
      module._free(buffer);
      throw error;
    } finally {
      module.stackRestore(stack);
    }
  }

  /** Memory that the caller frees. @param {number} size In bytes. @returns {number} Its address. */
  reserve(size) {
    const address = this.module._malloc(Math.max(size, 8)) >>> 0;
    if (!address) throw new EngineError(`There is not enough memory for ${size} bytes. Close other pages, or use a smaller model`);
    return address;
  }

  /** A name in the memory, which the caller frees. @param {string} text @returns {number} Its address. */
  name(text) {
    const size = this.module.lengthBytesUTF8(text) + 1;
    const address = this.reserve(size);
    this.module.stringToUTF8(text, address, size);
    return address;
  }

  /**
   * Runs a session.
   * @param {number} session Its handle. @param {[number, HeapTensor][]} inputs Addresses of names, and tensors.
   * @param {[number, HeapTensor | null][]} outputs Addresses of names; the runtime writes into tensors that are given.
   * @returns {HeapTensor[]} The outputs; the caller owns those that were not given.
   */
  run(session, inputs, outputs) {
    const { module } = this;
    const stack = module.stackSave();
    try {
      const pointers = (/** @type {number[]} */ values) => {
        const address = module.stackAlloc(POINTER * Math.max(values.length, 1));
        values.forEach((value, index) => module.setValue(address + index * POINTER, value, "*"));
        return address;
      };
      const [names, values] = [inputs.map(([name]) => name), inputs.map(([, tensor]) => tensor.handle)].map(pointers);
      const [outputNames, results] = [outputs.map(([name]) => name), outputs.map(([, tensor]) => tensor?.handle ?? 0)].map(pointers);
      this.check(module._OrtRun(session, names, values, inputs.length, outputNames, outputs.length, results, 0));
      return outputs.map(([, given], index) => given ?? new HeapTensor(this, module.getValue(results + index * POINTER, "*")));
    } finally {
      module.stackRestore(stack);
    }
  }

  /** Throws the last error of the runtime if a function returned one. @param {number} code */
  check(code) {
    if (!code) return;
    const { module } = this;
    const stack = module.stackSave();
    try {
      const fields = module.stackAlloc(2 * POINTER);
      module._OrtGetLastError(fields, fields + POINTER);
      const message = module.getValue(fields + POINTER, "*");
      throw new EngineError(`ONNX Runtime Web failed: ${message ? module.UTF8ToString(message) : `error ${code}`}`);
    } finally {
      module.stackRestore(stack);
    }
  }
}
