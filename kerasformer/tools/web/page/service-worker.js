// Stores the page, and the runtimes and bundles that were used, so that the site works without a network. Also adds the
// headers that threads need, which many web hosts do not send.
//
// The key of a file contains its path and its sha256 from site.json. A new version of the site has another VERSION, so that
// the browser installs this worker again. It reuses unchanged files, and deletes the others when no page of the old version is
// open.

const VERSION = "{{version}}";
const SCOPE = self.registration.scope;
const FILES = `kerasformer files ${SCOPE}`;
const LISTS = `kerasformer list ${SCOPE}`;
const LIST = `${LISTS}#${VERSION}`;
const SITE = new URL("site.json", SCOPE).href;
const HEADERS = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
};

let listed = null; // path -> {path, sha256, checked}

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(activate()));
self.addEventListener("message", ({ data }) => {
  if (data.type === "take-over") self.skipWaiting();
});
self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(SCOPE)) return;
  const path = new URL(request.url).pathname.slice(new URL(SCOPE).pathname.length);
  event.respondWith(answer(event, decodeURIComponent(path) || "index.html"));
});

/** Stores site.json and the files of the page. Bundles and runtimes are stored when they are first used. */
async function install() {
  const response = await fetch(SITE, { cache: "no-store" });
  const site = await response.clone().json();
  if (site.version !== VERSION) throw new Error("the site is being replaced; reload the page later");
  await (await caches.open(LIST)).put(SITE, response);
  const cache = await caches.open(FILES);
  await Promise.all(site.page.map(async (file) => {
    if (await cache.match(keyOf(file))) return;
    await store({ ...file, checked: true }, await fetchAgain(file.path));
  }));
}

/** Deletes the files of older versions. */
async function activate() {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name.startsWith(`${LISTS}#`) && name !== LIST).map((name) => caches.delete(name)));
  const wanted = new Set([...(await list()).values()].map(keyOf));
  const cache = await caches.open(FILES);
  const keys = await cache.keys();
  await Promise.all(keys.filter(({ url }) => !wanted.has(url)).map((key) => cache.delete(key)));
  await self.clients.claim();
}

/** Responds with a stored file, or fetches and stores it. */
async function answer(event, path) {
  if (path === "site.json") return isolated(await (await caches.open(LIST)).match(SITE) ?? await fetchAgain(path));
  const file = (await list()).get(path);
  if (!file) return isolated(await fetch(event.request));
  const stored = await (await caches.open(FILES)).match(keyOf(file));
  if (stored) return isolated(stored);
  const response = await fetchAgain(path);
  if (response.ok) event.waitUntil(storeAndNotify(file, response.clone()));
  return isolated(response);
}

/** Fetches a file, and revalidates the browser's HTTP cache, which may hold another version. */
function fetchAgain(path) {
  return fetch(new URL(path, SCOPE), { cache: "no-cache" });
}

async function storeAndNotify(file, response) {
  let message = { type: "stored", path: file.path };
  try {
    // A page that removes damaged files waits for this lock.
    await self.navigator.locks.request(FILES, { mode: "shared" }, () => store(file, response));
  } catch (error) {
    const reason = error.name === "QuotaExceededError" ? "there is not enough space on this device" : error.message;
    message = { type: "not-stored", path: file.path, reason };
  }
  for (const page of await self.clients.matchAll({ type: "window" })) page.postMessage(message);
}

/** Stores a file. Model files, which may be large, are not checked here: the library checks them whenever it reads them. */
async function store(file, response) {
  if (!response.ok) throw new Error(`${file.path}: the server answered ${response.status}`);
  const cache = await caches.open(FILES);
  if (!file.checked) return cache.put(keyOf(file), response);
  const bytes = await response.clone().arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const received = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (received !== file.sha256) throw new Error(`${file.path} does not have the checksum in site.json`);
  return cache.put(keyOf(file), response);
}

/** The files of this version, by their paths. */
async function list() {
  if (listed === null) {
    const response = await (await caches.open(LIST)).match(SITE) ?? await fetchAgain("site.json");
    const site = await response.json();
    const own = [...site.page, ...Object.values(site.runtimes).flat()].map((file) => ({ ...file, checked: true }));
    const bundles = site.models.flatMap((model) => model.engines).flatMap((engine) => engine.files);
    listed = new Map([...own, ...bundles].map((file) => [file.path, file]));
  }
  return listed;
}

function keyOf({ path, sha256 }) {
  return new URL(`${path}?sha256=${sha256}`, SCOPE).href;
}

/** The response with the headers that threads need. */
function isolated(response) {
  if (response.type === "opaqueredirect" || response.status === 0) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
