// What is kept on this device: the service worker, and which files it holds.

const KEPT = "serviceWorker" in navigator && "caches" in globalThis && globalThis.isSecureContext;

/**
 * Starts the service worker.
 * @param {{onUpdate: () => void, onKept: () => void, onLost: (path: string, reason: string) => void}} listeners `onUpdate`: a
 *     new version of the page waits; `onKept`, `onLost`: a file was kept, or could not be.
 */
export async function start({ onUpdate, onKept, onLost }) {
  if (!KEPT) return;
  navigator.serviceWorker.addEventListener("message", ({ data }) => {
    if (data.type === "kept") onKept();
    else onLost(data.path, data.reason);
  });
  const registration = await navigator.serviceWorker.register("service-worker.js");
  const watch = (worker) => worker?.addEventListener("statechange", () => {
    if (worker.state === "installed" && navigator.serviceWorker.controller) onUpdate();
  });
  if (registration.waiting && navigator.serviceWorker.controller) onUpdate();
  watch(registration.installing);
  registration.addEventListener("updatefound", () => watch(registration.installing));
}

/** Lets the new version take over, and loads it. */
export async function update() {
  const registration = await navigator.serviceWorker.getRegistration();
  navigator.serviceWorker.addEventListener("controllerchange", () => location.reload());
  registration?.waiting?.postMessage({ type: "take-over" });
}

/**
 * Waits until the service worker sees what the page fetches, or for a while.
 * @param {number} milliseconds
 * @returns {Promise<boolean>}
 */
export async function ready(milliseconds) {
  if (!KEPT) return false;
  if (navigator.serviceWorker.controller) return true;
  return Promise.race([
    new Promise((resolve) => navigator.serviceWorker.addEventListener("controllerchange", () => resolve(true), { once: true })),
    new Promise((resolve) => setTimeout(resolve, milliseconds, false)),
  ]);
}

/**
 * Whether a model runs without a network.
 * @param {{files: {path: string, sha256: string}[]}} engine Of site.json.
 * @param {{path: string, sha256: string}[]} runtime Files of its engine; a browser takes one WebAssembly file of them.
 */
export async function available(engine, runtime) {
  if (!KEPT) return false;
  const cache = await files();
  const held = await Promise.all(engine.files.map((file) => cache.match(keyOf(file))));
  if (!held.every(Boolean)) return false;
  const builds = runtime.filter(({ path }) => path.endsWith(".wasm"));
  return (await Promise.all(builds.map((file) => cache.match(keyOf(file))))).some(Boolean);
}

/** Fetches what is still missing of a model that was loaded, small files that its engine did not read, so that it is whole. */
export async function complete(engine) {
  if (!KEPT || !navigator.serviceWorker.controller) return;
  const cache = await files();
  await Promise.all(engine.files.map(async (file) => {
    if (!(await cache.match(keyOf(file)))) await (await fetch(file.path)).blob();
  }));
}

/** Removes a model's files. @param {{files: {path: string, sha256: string}[]}} engine */
export async function forget(engine) {
  if (!KEPT) return;
  const cache = await files();
  await Promise.all(engine.files.map((file) => cache.delete(keyOf(file))));
}

/** Removes those files of a model that are damaged, so that the next attempt asks the server. @param {{files: {path: string, sha256: string}[]}} engine */
export async function repair(engine) {
  if (!KEPT) return;
  const cache = await files();
  await navigator.locks.request(FILES, async () => { // what the service worker is still keeping counts, too
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

// As in service-worker.js, which can import nothing: a file is kept under its content, so that a new version of the page
// takes over what did not change.
const SCOPE = new URL(".", location.href).href;
const FILES = `kerasformer files ${SCOPE}`;
const files = () => caches.open(FILES);
const keyOf = ({ path, sha256 }) => new URL(`${path}?sha256=${sha256}`, SCOPE).href;
