/**
 * `kerasformer.json`: what a bundle says of itself, read and checked as `kerasformer.bundle` does.
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
 * @property {string} [kind] What it holds, as `kerasformer.bundle.Kind`.
 * @property {number} [layer] Of a cache.
 * @property {string} [continues] Of an output: the input whose next state it is.
 */

/**
 * @typedef {object} Signature
 * @property {string} file
 * @property {Record<string, TensorInfo>} inputs
 * @property {Record<string, TensorInfo>} outputs
 * @property {string} role What it does, as `kerasformer.bundle.Role`.
 * @property {number | null} rows Texts of one call; `null` for any number.
 * @property {number | null} tokens Tokens of each text in one call, likewise.
 * @property {number | null} cache_length Slots of the caches that the tokens attend to, likewise.
 */

/**
 * @typedef {object} Manifest
 * @property {"tflite" | "onnx"} format
 * @property {any} info Task, labels, ids, lengths: all that a pipeline needs to know.
 * @property {Record<string, Signature>} signatures
 * @property {number | null} capacity Positions of the decoder's cache, in tokens.
 * @property {number | null} encoder_capacity Longest input of an encoder-decoder, in tokens.
 * @property {any} recipe
 * @property {any} fidelity
 * @property {Record<string, string>} files sha256 of every other file, by its path.
 */

/**
 * @param {Uint8Array} bytes Content of the file.
 * @returns {Promise<Manifest>}
 * @throws {BundleError} no manifest, one written by a newer version or changed by hand.
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
        "kerasformer web, which brings older bundles up to date",
    );
  }
  if (version > FORMAT_VERSION) {
    throw new BundleError(
      `this bundle was written by a newer kerasformer: format version ${version}, and this page reads up to ` +
        `${FORMAT_VERSION}. Make the page again with a newer kerasformer`,
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
      `${MANIFEST} was changed after its export: its fields do not have the ${CHECKSUM} that it names. ` +
        "Export the model again with the settings that you want",
    );
  }
  for (const [name, signature] of Object.entries(content.signatures)) {
    const { file } = /** @type {Signature} */ (signature);
    if (!(file in content.files)) {
      throw new BundleError(`${MANIFEST}: signatures.${name}.file must be one of files. Received: ${file}`);
    }
  }
  return content;
}

/** Inputs of these kinds. @param {Signature} signature @param {...string} kinds @returns {string[]} */
export function inputsOf({ inputs }, ...kinds) {
  return Object.keys(inputs).filter((name) => kinds.includes(inputs[name].kind ?? ""));
}

/** The output of a kind. @param {Signature} signature @param {string} kind @returns {string | undefined} */
export function outputOf({ outputs }, kind) {
  return Object.keys(outputs).find((name) => outputs[name].kind === kind);
}

/** Signatures of a role with their names. @param {Manifest} manifest @param {...string} roles @returns {[string, Signature][]} */
export function ofRole({ signatures }, ...roles) {
  return Object.entries(signatures).filter(([, { role }]) => roles.includes(role));
}

/** @param {string} text @returns {any} */
function parsed(text) {
  try {
    const content = JSON.parse(text);
    if (content && typeof content === "object" && !Array.isArray(content)) return content;
  } catch {
    // Told below.
  }
  throw new BundleError(
    `${MANIFEST} is not a manifest. Expected: a bundle's folder, as kerasformer export writes it. ` +
      `Received: ${JSON.stringify(text.slice(0, 40))}`,
  );
}

/**
 * The fields as Python's `json.dumps(…, sort_keys=True, separators=(",", ":"))` writes them, without the checksum.
 * Numbers stay as they are spelled: 1e-05 and 1.0 would be lost by a way through JavaScript's numbers.
 * @param {string} text Valid JSON.
 */
function canonical(text) {
  const words = text.match(/"(?:[^"\\]|\\.)*"|[^\s,:[\]{}"]+|[[\]{}]/g) ?? [];
  let place = 0;
  /** @param {boolean} top @returns {string} */
  const value = (top) => {
    const word = words[place++];
    if (word === "[") {
      const items = [];
      while (words[place] !== "]") items.push(value(false));
      place++;
      return `[${items.join(",")}]`;
    }
    if (word !== "{") return word.startsWith('"') ? ascii(JSON.parse(word)) : word;
    /** @type {[string, string][]} */
    const fields = [];
    while (words[place] !== "}") fields.push([JSON.parse(words[place++]), value(false)]);
    place++;
    const kept = fields.filter(([name]) => !(top && name === CHECKSUM)).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${kept.map(([name, each]) => `${ascii(name)}:${each}`).join(",")}}`;
  };
  return value(true);
}

/** @param {string} text */
function ascii(text) {
  const code = (/** @type {string} */ unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, code);
}
