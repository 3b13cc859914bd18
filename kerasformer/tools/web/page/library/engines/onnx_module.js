/**
 * Loads the WebAssembly module of ONNX Runtime Web for the runtime, which takes this file for the loader of its module, and keeps
 * a reference: onnx_heap.js calls the functions of the module directly. The query of the address has the address of the loader.
 */
const { default: load } = await import(/** @type {string} */ (new URL(import.meta.url).searchParams.get("loader")));

/** The module, after the runtime has started. @type {any} */
export let module = null;

/** @param {any} settings */
export default async function start(settings) {
  return (module = await load(settings));
}
