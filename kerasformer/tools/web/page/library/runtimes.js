/**
 * The packages that the library runs on: files in a folder, as a page has them, or modules that a program with a bundler has
 * imported.
 */
import { address, folderAddress } from "./addresses.js";
import { EngineError } from "./errors.js";

/**
 * Modules, and URLs of files that bundlers copy, or in Node.js their paths. What is absent is loaded from the folder `vendor`.
 * @typedef {object} Modules
 * @property {any} [tokenizers] The module `@huggingface/tokenizers`.
 * @property {any} [jinja] The module `@huggingface/jinja`, for conversations.
 * @property {{ module: any, wasm: string | URL }} [litert] The module `@litertjs/core`, and the folder with its files in `wasm/`.
 * @property {{ module: any, loader: string | URL, wasm: string | URL }} [onnxruntime] The module `onnxruntime-web/wasm`, and its
 *   files `ort-wasm-simd-threaded.mjs` and `ort-wasm-simd-threaded.wasm`.
 */

/** @typedef {{ module: any, wasm: URL }} LiteRtFiles */
/** @typedef {{ module: any, wasm: URL, loader: string }} OnnxFiles `loader` exports the WebAssembly module as `module`, too. */

/** Loads the packages when they are needed. */
export class Runtimes {
  /** @param {URL} vendor @param {Modules} [given] */
  constructor(vendor, given = {}) {
    this.vendor = vendor;
    this.given = given;
  }

  /** @returns {Promise<any>} */
  async tokenizers() {
    return this.given.tokenizers ?? (await this.imported("tokenizers/tokenizers.min.mjs", "The tokenizer library"));
  }

  /** @returns {Promise<any>} */
  async jinja() {
    return this.given.jinja ?? (await this.imported("jinja/index.js", "The library of chat templates"));
  }

  /** @returns {Promise<LiteRtFiles>} */
  async litert() {
    const { litert } = this.given;
    if (litert) return { module: litert.module, wasm: folderAddress(litert.wasm) };
    return { module: await this.imported("litert/index.js", "LiteRT.js"), wasm: new URL("litert/wasm/", this.vendor) };
  }

  /** @returns {Promise<OnnxFiles>} */
  async onnxruntime() {
    const { onnxruntime } = this.given;
    if (onnxruntime) {
      return { module: onnxruntime.module, wasm: address(onnxruntime.wasm), loader: keeping(address(onnxruntime.loader)) };
    }
    const module = await this.imported("onnxruntime/ort.wasm.min.mjs", "ONNX Runtime Web");
    const [wasm, original] = ["wasm", "mjs"].map((kind) => new URL(`onnxruntime/ort-wasm-simd-threaded.${kind}`, this.vendor));
    const loader = new URL("engines/onnx_module.js", import.meta.url);
    loader.searchParams.set("loader", original.href);
    return { module, wasm, loader: loader.href };
  }

  /** @param {string} path @param {string} what @returns {Promise<any>} */
  async imported(path, what) {
    const module = new URL(path, this.vendor).href;
    try {
      return await load(module);
    } catch (error) {
      throw new EngineError(`${what} cannot be loaded: ${error}. Expected at ${module}`, { cause: error });
    }
  }
}

/** Imports a module whose address bundlers must not resolve. @param {string} url @returns {Promise<any>} */
export const load = (url) => import(/* webpackIgnore: true */ /* @vite-ignore */ url);

/**
 * The address of a module that does what engines/onnx_module.js does, for programs in which that file has no address of its own.
 * @param {URL} loader
 */
function keeping(loader) {
  const source = `import load from ${JSON.stringify(loader.href)};
export let module = null;
export default async (settings) => (module = await load(settings));`;
  // A page with several threads reads the module again, by its address, which must be one of the page; Node.js knows no such.
  if (globalThis.location === undefined) return `data:text/javascript,${encodeURIComponent(source)}`;
  return URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
}
