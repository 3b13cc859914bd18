/**
 * Reads `kerasformer.json`, the manifest of a bundle, with the checks of `kerasformer.bundle`.
 */
import { BundleError } from "./errors.js";
import { canCheck, sha256 } from "./download.js";

export const MANIFEST = "kerasformer.json";
const FORMAT_VERSION = 2;
const CHECKSUM = "manifest_sha256";

/**
 * @typedef {object} TensorInfo
 * @property {(number | string)[]} shape
 * @property {string} dtype
 * @property {string} [kind] The content of the tensor, one of `kerasformer.bundle.Kind`.
 * @property {number} [layer] The layer of a cache.
 * @property {string} [continues] For an output: the input whose next state it is.
 * @property {boolean} [in_place] For such an output: whether it may share a buffer with that input.
 * @property {number} [default] For integers: the entry that fills the rest of a fixed length, 0 if there is none.
 * @property {number} [margin] For a cache that is shorter than the text, see `kerasformer.bundle.TensorInfo`.
 */

/**
 * @typedef {object} Signature
 * @property {string} file
 * @property {Record<string, TensorInfo>} inputs
 * @property {Record<string, TensorInfo>} outputs
 * @property {string} role Its purpose, one of `kerasformer.bundle.Role`.
 * @property {number | null} rows Number of texts in a call; `null` for any number.
 * @property {number | null} tokens Number of tokens of each text in a call; `null` for any number.
 * @property {number | null} cache_length Number of cache slots that the tokens attend to; `null` for any number.
 */

/**
 * @typedef {object} Manifest
 * @property {"tflite" | "onnx" | "table"} format
 * @property {any} info Task, labels, ids, lengths: everything that a pipeline needs.
 * @property {Record<string, Signature>} signatures
 * @property {number | null} capacity Number of slots of the decoder's cache.
 * @property {number | null} encoder_capacity Longest input of an encoder-decoder, in tokens.
 * @property {any} recipe
 * @property {any} fidelity
 * @property {{ effect: string, what: string, example: string }[] | null} [gpu_findings] What LiteRT's GPU delegate is known to
 *   compute wrongly.
 * @property {Record<string, string>} files The sha256 of every other file, by its path.
 */

/**
 * Parses and checks a manifest.
 * @param {Uint8Array} bytes Content of the file.
 * @returns {Promise<Manifest>}
 * @throws {BundleError} The file is not a manifest, was written by a newer version, or was changed by hand.
 */
export async function readManifest(bytes) {
  const text = new TextDecoder().decode(bytes);
  const content = parsed(text);
  const version = content.format_version;
  if (!Number.isInteger(version) || version < 1) {
    throw new BundleError(`${MANIFEST}: format_version must be a positive integer. Received: ${JSON.stringify(version)}`);
  }
  if (version < FORMAT_VERSION) {
    throw new BundleError(
      `this page reads manifests of version ${FORMAT_VERSION}. Received: version ${version}. Write the site again with ` +
        "kerasformer web, which converts older bundles",
    );
  }
  if (version > FORMAT_VERSION) {
    throw new BundleError(
      `this bundle was written by a newer kerasformer: format version ${version}, and this page reads up to ` +
        `${FORMAT_VERSION}. Write the site again with a newer kerasformer`,
    );
  }
  const missing = ["format", "info", "signatures", "files"].filter((name) => !content[name]);
  if (missing.length) throw new BundleError(`${MANIFEST}: the fields ${missing.join(", ")} are missing`);
  const checksum = content[CHECKSUM];
  if (!checksum) {
    throw new BundleError(
      `${MANIFEST} lacks the ${CHECKSUM} that every release of kerasformer writes: it was changed after its export, ` +
        "or comes from before the first release. Export the model again",
    );
  }
  if (canCheck() && checksum !== (await sha256(new TextEncoder().encode(canonical(text))))) {
    throw new BundleError(
      `${MANIFEST} was changed after its export: its ${CHECKSUM} does not match its fields. ` +
        "Export the model again with the settings that you need",
    );
  }
  for (const [name, signature] of Object.entries(content.signatures)) {
    const { file } = /** @type {Signature} */ (signature);
    if (!(file in content.files)) {
      throw new BundleError(`${MANIFEST}: signatures.${name}.file must be one of files. Received: ${file}`);
    }
    const [recurrent] = inputsOf(/** @type {Signature} */ (signature), "recurrent");
    if (recurrent) {
      throw new BundleError(
        "a model with recurrent states cannot run here. Expected: one that keeps keys, values and the last inputs of " +
          `convolutions alone. Received: ${recurrent} in signatures.${name}. Run the bundle with Python`,
      );
    }
  }
  return content;
}

/** The names of the inputs of some kinds. @param {Signature} signature @param {...string} kinds @returns {string[]} */
export function inputsOf({ inputs }, ...kinds) {
  return Object.keys(inputs).filter((name) => kinds.includes(inputs[name].kind ?? ""));
}

/**
 * Values by the names of a signature's inputs, from values by kind; kinds that the signature does not take are omitted.
 * @template T
 * @param {Signature} signature @param {Record<string, T>} values
 * @returns {Record<string, T>}
 */
export function byName(signature, values) {
  const named = Object.entries(values).flatMap(([kind, value]) => inputsOf(signature, kind).map((name) => [name, value]));
  return Object.fromEntries(named);
}

/**
 * The id that fills the rest of a text's ids, which the mask hides: that of padding, if it is a token of the texts that the model reads.
 *
 * @param {Manifest["info"]} info @returns {number}
 */
export function inputPadding({ pad_token_id: padding, vocab_size: size }) {
  return padding == null || (size && padding >= size) ? 0 : padding;
}

/** The name of the output of a kind. @param {Signature} signature @param {string} kind @returns {string | undefined} */
export function outputOf({ outputs }, kind) {
  return Object.keys(outputs).find((name) => outputs[name].kind === kind);
}

/** Names and signatures of some roles. @param {Manifest} manifest @param {...string} roles @returns {[string, Signature][]} */
export function ofRole({ signatures }, ...roles) {
  return Object.entries(signatures).filter(([, { role }]) => roles.includes(role));
}

/** @param {string} text @returns {any} */
function parsed(text) {
  try {
    const content = JSON.parse(text);
    if (content && typeof content === "object" && !Array.isArray(content)) return content;
  } catch {
    // The error is thrown below.
  }
  throw new BundleError(
    `${MANIFEST} is not a manifest. Expected: a bundle's folder, as kerasformer export writes it. ` +
      `Received: ${JSON.stringify(text.slice(0, 40))}`,
  );
}

/**
 * Returns the fields as Python's `json.dumps(…, sort_keys=True, separators=(",", ":"))` writes them, without the checksum.
 * Numbers are copied as text, because JavaScript would write 1e-05 and 1.0 differently.
 * @param {string} text Valid JSON.
 */
function canonical(text) {
  const symbols = text.match(/"(?:[^"\\]|\\.)*"|[^\s,:[\]{}"]+|[[\]{}]/g) ?? [];
  let next = 0;
  /** @param {boolean} top @returns {string} */
  const value = (top) => {
    const symbol = symbols[next++];
    if (symbol === "[") {
      const items = [];
      while (symbols[next] !== "]") items.push(value(false));
      next++;
      return `[${items.join(",")}]`;
    }
    if (symbol !== "{") return symbol.startsWith('"') ? ascii(JSON.parse(symbol)) : symbol;
    /** @type {[string, string][]} */
    const fields = [];
    while (symbols[next] !== "}") fields.push([JSON.parse(symbols[next++]), value(false)]);
    next++;
    const sorted = fields.filter(([name]) => !(top && name === CHECKSUM)).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${sorted.map(([name, each]) => `${ascii(name)}:${each}`).join(",")}}`;
  };
  return value(true);
}

/** @param {string} text */
function ascii(text) {
  const code = (/** @type {string} */ unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, code);
}
