// Offline use: the service worker, and the files that it stores on this device.

const SUPPORTED = "serviceWorker" in navigator && "caches" in globalThis && globalThis.isSecureContext;

/**
 * Starts the service worker.
 * @param {{onUpdate: () => void, onStored: () => void, onFailed: (path: string, reason: string) => void}} listeners `onUpdate`: a
 *     new version of the page is available; `onStored`, `onFailed`: a file was stored, or could not be stored.
 */
export async function start({ onUpdate, onStored, onFailed }) {
  if (!SUPPORTED) return;
  navigator.serviceWorker.addEventListener("message", ({ data }) => {
    if (data.type === "stored") onStored();
    else onFailed(data.path, data.reason);
  });
  const registration = await navigator.serviceWorker.register("service-worker.js");
  const watch = (worker) => worker?.addEventListener("statechange", () => {
    if (worker.state === "installed" && navigator.serviceWorker.controller) onUpdate();
  });
  if (registration.waiting && navigator.serviceWorker.controller) onUpdate();
  watch(registration.installing);
  registration.addEventListener("updatefound", () => watch(registration.installing));
}

/** Activates the new version and reloads the page. */
export async function update() {
  const registration = await navigator.serviceWorker.getRegistration();
  navigator.serviceWorker.addEventListener("controllerchange", () => location.reload());
  registration?.waiting?.postMessage({ type: "take-over" });
}

/**
 * Waits until the service worker controls the page.
 * @param {number} milliseconds The longest time to wait.
 * @returns {Promise<boolean>} Whether it does.
 */
export async function ready(milliseconds) {
  if (!SUPPORTED) return false;
  if (navigator.serviceWorker.controller) return true;
  return Promise.race([
    new Promise((resolve) => navigator.serviceWorker.addEventListener("controllerchange", () => resolve(true), { once: true })),
    new Promise((resolve) => setTimeout(resolve, milliseconds, false)),
  ]);
}

/**
 * Whether a model works without a network.
 * @param {{files: {path: string, sha256: string}[]}} engine An engine of a model in site.json.
 * @param {{path: string, sha256: string}[]} runtime The files of the engine; a browser uses one of the WebAssembly files.
 */
export async function available(engine, runtime) {
  if (!SUPPORTED) return false;
  const cache = await files();
  const matches = await Promise.all(engine.files.map((file) => cache.match(keyOf(file))));
  if (!matches.every(Boolean)) return false;
  const builds = runtime.filter(({ path }) => path.endsWith(".wasm"));
  return (await Promise.all(builds.map((file) => cache.match(keyOf(file))))).some(Boolean);
}

/**
 * The bytes that have to be downloaded before a model can run.
 * @param {{files: {path: string, sha256: string, bytes: number}[]}} engine
 * @param {{path: string, sha256: string}[]} runtime
 * @param {number} runtimeBytes The bytes of the runtime, of which a browser uses one build.
 */
export async function missing(engine, runtime, runtimeBytes) {
  const stored = async (file) => SUPPORTED && Boolean(await (await files()).match(keyOf(file)));
  const own = await Promise.all(engine.files.map(async (file) => ((await stored(file)) ? 0 : file.bytes)));
  const builds = await Promise.all(runtime.filter(({ path }) => path.endsWith(".wasm")).map(stored));
  return own.reduce((sum, bytes) => sum + bytes, 0) + (builds.some(Boolean) ? 0 : runtimeBytes);
}

/** Stores the remaining files of a loaded model: small files that the engine did not read. */
export async function complete(engine) {
  if (!SUPPORTED || !navigator.serviceWorker.controller) return;
  const cache = await files();
  await Promise.all(engine.files.map(async (file) => {
    if (!(await cache.match(keyOf(file)))) await (await fetch(file.path)).blob();
  }));
}

/** Removes the files of a model from this device. @param {{files: {path: string, sha256: string}[]}} engine */
export async function forget(engine) {
  if (!SUPPORTED) return;
  const cache = await files();
  await Promise.all(engine.files.map((file) => cache.delete(keyOf(file))));
}

/** Removes damaged files of a model, so that they are downloaded again. @param {{files: {path: string, sha256: string}[]}} engine */
export async function repair(engine) {
  if (!SUPPORTED) return;
  const cache = await files();
  await navigator.locks.request(FILES, async () => { // waits until the service worker has stored the files
    for (const file of engine.files) {
      const response = await cache.match(keyOf(file));
      if (response && (await digestOf(response)) !== file.sha256) await cache.delete(keyOf(file));
    }
  });
}

async function digestOf(response) {
  const digest = await crypto.subtle.digest("SHA-256", await response.arrayBuffer());
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// As in service-worker.js, which cannot import modules. A key contains the checksum of its file, so that a new version of the
// page reuses unchanged files.
const SCOPE = new URL(".", location.href).href;
const FILES = `kerasformer files ${SCOPE}`;
const files = () => caches.open(FILES);
const keyOf = ({ path, sha256 }) => new URL(`${path}?sha256=${sha256}`, SCOPE).href;
