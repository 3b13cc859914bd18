/**
 * Runs bundles of static embeddings, a table of token vectors and their mean, without a runtime; as
 * `kerasformer.engines.token_table` does with NumPy.
 */
import { BundleError, InputError } from "../errors.js";
import { ofRole } from "../manifest.js";

/** @typedef {import("../manifest.js").Manifest} Manifest */
/** @typedef {{ dtype: string, shape: number[], data_offsets: [number, number] }} Entry A tensor in the header of the file. */
/** @typedef {Float32Array | Uint8Array | Int32Array} Values */

const ARRAYS = { F32: Float32Array, U8: Uint8Array, I32: Int32Array };

/**
 * @param {Manifest} manifest
 * @param {Record<string, Uint8Array>} files
 * @returns {Promise<TableForward>}
 */
export async function openTable(manifest, files) {
  const [[, signature] = []] = ofRole(manifest, "forward");
  if (signature === undefined) {
    throw new BundleError(`A signature of the role forward was expected. Received: ${Object.keys(manifest.signatures)}`);
  }
  return new TableForward(manifest, tensorsOf(files[signature.file], signature.file), signature);
}

/** The tensors of a safetensors file. @param {Uint8Array} file @param {string} name @returns {Record<string, Values>} */
function tensorsOf(file, name) {
  try {
    const start = 8 + Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
    /** @type {Record<string, Entry>} */
    const header = JSON.parse(new TextDecoder().decode(file.subarray(8, start)));
    const entries = Object.entries(header).filter(([key]) => key !== "__metadata__");
    return Object.fromEntries(
      entries.map(([key, { dtype, data_offsets: [first, end] }]) => {
        const bytes = file.slice(start + first, start + end); // a copy, whose first byte has the address that numbers need
        const values = new ARRAYS[/** @type {keyof typeof ARRAYS} */ (dtype)](bytes.buffer);
        return [key, values];
      }),
    );
  } catch (error) {
    throw new BundleError(`${name} is not a table of token vectors: ${error}. Export the model again`, { cause: error });
  }
}

/** A table of token vectors; has the methods of `OnnxForward`. */
export class TableForward {
  /** @param {Manifest} manifest @param {Record<string, Values>} tensors @param {import("../manifest.js").Signature} signature */
  constructor({ info }, tensors, signature) {
    const [[output, { shape }]] = Object.entries(signature.outputs);
    this.output = output;
    this.size = Number(shape[shape.length - 1]);
    this.count = info.vocab_size;
    this.normalized = Boolean(info.embedding?.normalized);
    const { embeddings, embeddings_int8: bytes, embeddings_int4: halves, scales, skipped } = tensors;
    this.levels = embeddings ?? bytes ?? halves;
    this.bits = embeddings ? 32 : bytes ? 8 : 4;
    this.scales = scales;
    this.skipped = new Set(skipped ?? []);
    this.width = this.bits === 4 ? Math.ceil(this.size / 2) : this.size;
    const fits = this.levels?.length === this.count * this.width && (this.bits === 32 || scales?.length === this.count);
    if (!fits) {
      throw new BundleError(
        `The table must have a row of ${this.size} numbers for each of ${this.count} tokens. ` +
          `Received: ${Object.entries(tensors).map(([name, { length }]) => `${name} (${length})`)}. Export the model again`,
      );
    }
  }

  /**
   * Reads one text.
   * @param {Record<string, number[]>} arrays One number for each token, by kind: `ids`, `mask`.
   * @returns {Promise<Record<string, Float32Array>>}
   */
  async run({ ids, mask }) {
    const unknown = ids.find((id) => !(id >= 0 && id < this.count));
    if (unknown !== undefined) throw new InputError(`Ids must be from 0 to ${this.count - 1}. Received: ${unknown}`);
    if (this.output !== "sentence_embedding") {
      const rows = new Float32Array(ids.length * this.size);
      ids.forEach((id, index) => this.add(rows.subarray(index * this.size, (index + 1) * this.size), id));
      return { [this.output]: rows };
    }
    const counted = ids.filter((id, index) => mask[index] && !this.skipped.has(id));
    const mean = new Float32Array(this.size);
    for (const id of counted) this.add(mean, id);
    for (let index = 0; index < this.size; index++) mean[index] /= Math.max(1, counted.length);
    if (this.normalized) {
      const length = Math.max(Math.sqrt(mean.reduce((sum, value) => sum + value * value, 0)), 1e-12);
      for (let index = 0; index < this.size; index++) mean[index] /= length;
    }
    return { [this.output]: mean };
  }

  /** Adds the vector of a token. @param {Float32Array} sum @param {number} id */
  add(sum, id) {
    const start = id * this.width;
    for (let index = 0; index < this.size; index++) {
      if (this.bits === 32) sum[index] += this.levels[start + index];
      else if (this.bits === 8) sum[index] += (this.levels[start + index] - 128) * this.scales[id];
      else sum[index] += (((this.levels[start + (index >> 1)] >> (4 * (index & 1))) & 15) - 8) * this.scales[id];
    }
  }

  memory() {
    return this.levels.byteLength + (this.scales?.byteLength ?? 0);
  }

  close() {
    this.levels = new Float32Array();
  }
}
