/**
 * Downloads the files of a bundle with progress reports, and verifies their checksums.
 */
import { fetchFile } from "./addresses.js";
import { BundleError, throwIfAborted } from "./errors.js";

/** Whether checksums can be computed; browsers do this only in secure contexts (https, localhost). */
export function canCheck() {
  return globalThis.crypto?.subtle !== undefined;
}

/** The SHA-256 of bytes, in hexadecimal. @param {Uint8Array} bytes */
export async function sha256(bytes) {
  const digest = await crypto.subtle.digest("SHA-256", /** @type {Uint8Array<ArrayBuffer>} */ (bytes));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Downloads the files of one bundle.
 */
export class Downloads {
  /**
   * @param {URL} base The URL of the bundle's folder.
   * @param {{ fetch?: typeof fetch, onProgress?: (progress: any) => void, signal?: AbortSignal }} options
   */
  constructor(base, { fetch = fetchFile, onProgress = () => {}, signal }) {
    this.base = base;
    this.fetch = fetch;
    this.onProgress = onProgress;
    this.signal = signal;
    this.bytes = 0;
  }

  /**
   * Downloads a file.
   * @param {string} file Path inside the bundle.
   * @param {string} [checksum] Its expected sha256.
   * @returns {Promise<Uint8Array>}
   * @throws {BundleError} the file is missing, truncated or changed.
   */
  async get(file, checksum) {
    if (file.startsWith("/") || file.split("/").includes("..")) {
      throw new BundleError(`the path of a file must be inside the bundle's folder. Received: ${file}`);
    }
    const bytes = await this.read(file, await this.request(file));
    this.bytes += bytes.length;
    if (checksum === undefined || !canCheck()) return bytes;
    const received = await sha256(bytes);
    if (received === checksum) return bytes;
    throw new BundleError(
      `the bundle was changed after its export, or not fully downloaded: ${file} must have sha256 ${checksum}. ` +
        `Received: ${received}, ${bytes.length} bytes. Reload the page, or export the model again`,
    );
  }

  /** @param {string} file @returns {Promise<Response>} */
  async request(file) {
    const url = new URL(file.split("/").map(encodeURIComponent).join("/"), this.base);
    let response;
    try {
      response = await this.fetch(url, { signal: this.signal });
    } catch (error) {
      throwIfAborted(this.signal);
      throw new BundleError(`${file} cannot be fetched: ${error}. Are you offline? Expected at ${url}`, { cause: error });
    }
    if (response.ok) return response;
    if (response.status === 404) throw new BundleError(`the bundle is incomplete: ${file} is missing. Expected at ${url}`);
    throw new BundleError(`${file} cannot be fetched: the server answered ${response.status}. Expected at ${url}`);
  }

  /** @param {string} file @param {Response} response */
  async read(file, response) {
    const compressed = response.headers.has("content-encoding");
    const total = compressed ? 0 : Number(response.headers.get("content-length") ?? 0);
    const chunks = [];
    let loaded = 0;
    this.onProgress({ stage: "download", file, loaded, total });
    try {
      const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        chunks.push(part.value);
        loaded += part.value.length;
        this.onProgress({ stage: "download", file, loaded, total });
      }
    } catch (error) {
      throwIfAborted(this.signal);
      throw new BundleError(`the download of ${file} was interrupted after ${loaded} bytes: ${error}. Try again`, { cause: error });
    }
    const bytes = new Uint8Array(loaded);
    let offset = 0;
    for (const chunk of chunks) {
      bytes.set(chunk, offset);
      offset += chunk.length;
    }
    return bytes;
  }
}
