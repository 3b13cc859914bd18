/**
 * Addresses of folders and files: URLs, relative ones of a page, and in Node.js paths.
 */

/** Whether the program is a page or a worker, which has an address of its own. */
const inPage = () => globalThis.location !== undefined;

/** A module of Node.js, whose import a bundler would try to resolve. @param {string} name @returns {any} */
const nodeModule = (name) => /** @type {any} */ (globalThis).process?.getBuiltinModule?.(name);

/**
 * The URL of a file. Node.js takes paths, relative to its working directory, as well as URLs.
 * @param {string | URL} given
 * @returns {URL}
 */
export function address(given) {
  const isUrl = given instanceof URL || /^[a-z][a-z\d+.-]+:/i.test(given); // one letter is a drive of Windows
  const node = isUrl || inPage() ? undefined : nodeModule("url");
  return node ? node.pathToFileURL(given) : new URL(given, globalThis.location?.href);
}

/** The URL of a folder, with `/` at its end. @param {string | URL} given @returns {URL} */
export function folderAddress(given) {
  const url = new URL(address(given));
  if (!url.pathname.endsWith("/")) url.pathname += "/";
  return url;
}

/**
 * Fetches a file; Node.js, whose own `fetch` opens none, reads it from the disk.
 * @param {string | URL | Request} url @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
export async function fetchFile(url, options) {
  const files = url instanceof URL && url.protocol === "file:" && !inPage() ? nodeModule("fs/promises") : undefined;
  if (!files) return globalThis.fetch(url, options);
  try {
    return new Response(await files.readFile(url, { signal: options?.signal }));
  } catch (error) {
    if (/** @type {any} */ (error).code === "ENOENT") return new Response(null, { status: 404 });
    throw error;
  }
}
