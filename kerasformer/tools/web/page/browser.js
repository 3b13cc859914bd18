// The capabilities of this browser: what the page cannot work without, and what limits it.

const SIMD = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
]); // a function of one SIMD instruction
const MOST_THREADS = 4; // phones have few fast cores; more threads wait for the slow ones
const CURRENT = "Current versions of Chrome, Edge, Firefox and Safari support it. Lockdown Mode on iPhones and some company policies disable it.";

/**
 * The problem that prevents the page from working, if any.
 * @returns {{title: string, text: string} | null}
 */
export function problem() {
  if (typeof WebAssembly !== "object") {
    return { title: "This browser cannot run WebAssembly", text: `The models of this page need it. ${CURRENT}` };
  }
  if (!WebAssembly.validate(SIMD)) {
    return { title: "This browser's WebAssembly has no SIMD", text: `The models of this page need these instructions. ${CURRENT}` };
  }
  if (typeof Worker !== "function") {
    return { title: "This browser has no web workers", text: "The models of this page run in web workers. Current versions of Chrome, Edge, Firefox and Safari support them." };
  }
  return null;
}

/** Whether the browser has WebGPU; there may still be no GPU for it. */
export function hasGpu() {
  return Boolean(navigator.gpu);
}

/** The number of threads that the engines may use. */
export function threads() {
  return globalThis.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency || 1, MOST_THREADS) : 1;
}

/** Whether the connection may be metered or slow. Phones that do not report their connection count as metered. */
export function metered() {
  const { saveData, type, effectiveType } = /** @type {any} */ (navigator).connection ?? {};
  if (saveData || type === "cellular" || /[23]g$/.test(effectiveType ?? "")) return true;
  return type === undefined && matchMedia("(pointer: coarse)").matches;
}

/** The limitations in this browser, in words for the user. @returns {string[]} */
export function notes() {
  const limits = [];
  if (!globalThis.isSecureContext) {
    limits.push("This page was loaded over plain http: files are not checked, nothing is stored for offline use, and there is only one thread. Over https or from localhost, there are no such limits.");
  } else if (!("serviceWorker" in navigator) || !("caches" in globalThis)) {
    limits.push("This browser does not store the page for offline use (private windows often do not): each visit downloads the model again.");
  }
  if (globalThis.isSecureContext && !globalThis.crossOriginIsolated) {
    limits.push("One thread only: the server did not send the headers that threads need. Answers are the same, but slower.");
  }
  return limits;
}
