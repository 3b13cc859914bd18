/**
 * Opens a bundle and runs it with the results of `kf.pipeline`. README.md explains its use.
 */
import { folderAddress } from "./addresses.js";
import { PrefixCache } from "./decoding/prefix_cache.js";
import { ignoredSettings } from "./decoding/settings.js";
import { Downloads, canCheck } from "./download.js";
import { openLiteRt } from "./engines/litert.js";
import { onnxFiles, openOnnx } from "./engines/onnx.js";
import { openTable } from "./engines/table.js";
import { BundleError, EngineError, InputError, TokenizerError, throwIfAborted } from "./errors.js";
import { MANIFEST, readManifest } from "./manifest.js";
import { checkReferences } from "./reference_check.js";
import { Runtimes } from "./runtimes.js";
import { TASKS, checkTask } from "./tasks/index.js";
import { ChatTemplate } from "./tokenization/chat_template.js";
import { checkTexts } from "./tokenization/hard_texts.js";
import { Tokenizer } from "./tokenization/tokenizer.js";

/** @typedef {import("./manifest.js").Manifest} Manifest */

/**
 * @typedef {object} Options
 * @property {"litert" | "onnx" | "table"} [engine] The engine for the format of the bundle (the default); another one is an error.
 * @property {string} [task] A task that the model of the bundle performs, by default that of the bundle.
 * @property {"cpu" | "webgpu"} [accelerator] For LiteRT.js: `"webgpu"` runs a bundle that was exported with `accelerator="gpu"` on
 *   the GPU; without one, it is an error. `"cpu"` by default.
 * @property {number} [threads] Number of threads, 1 by default; more need a cross-origin isolated page.
 * @property {(progress: any) => void} [onProgress] Called with `{stage, file, loaded, total}`.
 * @property {AbortSignal} [signal] Cancels the download.
 * @property {typeof fetch} [fetch] Used instead of the browser's `fetch`.
 * @property {string | URL} [vendor] The folder with the files of the engines, by default the one beside this library.
 * @property {import("./runtimes.js").Modules} [runtimes] Modules instead of these files, for programs with a bundler.
 * @property {(manifest: Manifest, files: Record<string, Uint8Array>, options: { threads: number, accelerator: string }) => Promise<any>} [openModel]
 *   Opens the model with another engine, which has the methods of `OnnxForward` (engines/onnx.js) or `Step` (decoding/plan.js).
 */

const HARD_TEXTS = "tokenizer_texts.json";
const TARGET = "target_tokenizer.json";
const ENGINES = { tflite: "litert", onnx: "onnx", table: "table" };
const OPEN = { litert: openLiteRt, onnx: openOnnx, table: openTable };

/**
 * Downloads, checks and compiles a bundle.
 * @param {string | URL} base The URL of its folder, relative to the page; in Node.js also its path.
 * @param {Options} [options]
 * @returns {Promise<Bundle>}
 */
export async function openBundle(base, options = {}) {
  const started = performance.now();
  const { onProgress = () => {}, signal } = options;
  if (typeof WebAssembly === "undefined") {
    throw new EngineError("WebAssembly is not supported by this browser, or disabled. Enable it, or use a recent browser");
  }
  const files = new Downloads(folderAddress(base), options);
  const manifest = await readManifest(await files.get(MANIFEST));
  const engine = ENGINES[manifest.format];
  if (engine === undefined) throw new BundleError(`${MANIFEST}: format must be tflite, onnx or table. Received: ${manifest.format}`);
  if (options.engine && options.engine !== engine) {
    throw new InputError(`This bundle runs on ${engine}, because its format is ${manifest.format}. Received: ${options.engine}`);
  }
  const task = checkTask(options.task ?? manifest.info.task, manifest.info.task);
  const here = import.meta.url; // not as an argument, because bundlers would look for this folder
  const runtimes = new Runtimes(new URL(options.vendor ?? "../vendor/", here), options.runtimes);
  const { tokenizer, chat } = await openTokenizer(files, manifest, runtimes);
  /** @type {Record<string, Uint8Array>} */
  const models = {};
  for (const file of modelFiles(manifest)) models[file] = await files.get(file, manifest.files[file]);
  throwIfAborted(signal);
  onProgress({ stage: "compile", file: Object.keys(models)[0], loaded: 0, total: 0 });
  const threads = globalThis.crossOriginIsolated ? Math.max(1, options.threads ?? 1) : 1;
  const { accelerator = "cpu" } = options;
  if (!["cpu", ...(engine === "litert" ? ["webgpu"] : [])].includes(accelerator)) {
    throw new InputError(`accelerator must be "cpu", or "webgpu" for LiteRT.js. Received: ${accelerator}, for ${engine}`);
  }
  /** @type {(manifest: Manifest, files: Record<string, Uint8Array>, options: any) => Promise<any>} */
  const open = options.openModel ?? OPEN[/** @type {keyof typeof OPEN} */ (engine)];
  const model = await open(manifest, models, { threads, runtimes, accelerator });
  const about = { task, engine, accelerator, threads, bytes: files.bytes, seconds: (performance.now() - started) / 1000 };
  return new Bundle(manifest, tokenizer, model, about, chat);
}

/** The files of the model, without duplicates. @param {Manifest} manifest */
function modelFiles(manifest) {
  if (manifest.format === "onnx") return [...new Set(onnxFiles(manifest))];
  // Browsers cannot run tokenizer.tflite, which contains operators of TF Text.
  const models = Object.values(manifest.signatures).filter(({ inputs }) => {
    return Object.values(inputs).every(({ dtype }) => dtype !== "string");
  });
  return [...new Set(models.map(({ file }) => file))];
}

/** @param {Downloads} files @param {Manifest} manifest @param {Runtimes} runtimes */
async function openTokenizer(files, manifest, runtimes) {
  const read = async (/** @type {string} */ name) => {
    if (!(name in manifest.files)) throw new BundleError(`the bundle has no ${name}. Export it again from a model with a tokenizer`);
    const text = new TextDecoder().decode(await files.get(name, manifest.files[name]));
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new TokenizerError(`${name} is damaged: ${error}`, { cause: error });
    }
  };
  if (!("tokenizer.json" in manifest.files) && "tokenizer_config.json" in manifest.files) {
    const { tokenizer_class: kind } = await read("tokenizer_config.json");
    throw new TokenizerError(
      `this library cannot tokenize texts as this model does: the rules of ${kind} cannot be written as tokenizer.json. Run it in Python`,
    );
  }
  const content = await read("tokenizer.json");
  const settings = await read("tokenizer_config.json");
  const library = await runtimes.tokenizers();
  const tokenizer = new Tokenizer(library, content, settings);
  if (TARGET in manifest.files) tokenizer.writer = new Tokenizer(library, await read(TARGET), settings);
  if (HARD_TEXTS in manifest.files) checkTexts(tokenizer, await read(HARD_TEXTS));
  const template = settings.chat_template ?? null;
  const chat = template === null ? null : new ChatTemplate(await runtimes.jinja(), template, tokenizer);
  return { tokenizer, chat };
}

/** A bundle that is ready to answer. */
export class Bundle {
  /**
   * @param {Manifest} manifest @param {Tokenizer} tokenizer @param {any} engine
   * @param {{ task: string, engine: string, accelerator: string, threads: number, bytes: number, seconds: number }} about
   * @param {ChatTemplate | null} [chat]
   */
  constructor(manifest, tokenizer, engine, about, chat = null) {
    this.manifest = manifest;
    this.tokenizer = tokenizer;
    this.chat = chat;
    this.engine = engine;
    /** The caches of the last conversation, which its next turn continues. */
    this.conversationCache = new PrefixCache(engine);
    this.open = true;
    const { info, format, capacity, encoder_capacity, recipe, fidelity } = manifest;
    this.info = {
      ...info,
      format,
      capacity,
      encoder_capacity,
      recipe,
      fidelity,
      ignored: ignoredSettings(info.generation ?? {}),
      mask_token: tokenizer.named("mask_token"),
      checked: canCheck(),
      ...about,
    };
  }

  /** The WebAssembly memory of the engine, in bytes. @returns {number} */
  memory() {
    return this.engine.memory();
  }

  /**
   * Runs the task of the bundle.
   * @param {any} inputs @param {Record<string, any>} [options] The options of the task.
   * @param {import("./tasks/shared.js").Controls} [controls]
   */
  async run(inputs, options = {}, controls = {}) {
    if (!this.open) throw new InputError("This bundle was closed. Open it again");
    throwIfAborted(controls.signal);
    const started = performance.now();
    const { result, figures } = await TASKS[this.info.task](this, inputs, options ?? {}, controls);
    const seconds = (performance.now() - started) / 1000;
    return { result, figures: { seconds, memory_bytes: this.memory(), ...figures } };
  }

  /**
   * Compares the answers of this browser with those of the Keras model; see reference_check.js.
   * @param {import("./reference_check.js").References} references @param {AbortSignal} [signal]
   */
  check(references, signal) {
    if (!this.open) throw new InputError("This bundle was closed. Open it again");
    return checkReferences(this.engine, references, signal);
  }

  /** Frees the engine. */
  close() {
    if (this.open) {
      this.conversationCache.clear();
      this.engine.close();
    }
    this.open = false;
  }
}
