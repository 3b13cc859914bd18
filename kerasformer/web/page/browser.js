// What this browser has: what is missing altogether, and what works less well.

const SIMD = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11,
]); // a function of one SIMD instruction
const MOST_THREADS = 4; // phones have few fast cores; more threads wait for the slow ones
const CURRENT = "A current Chrome, Edge, Firefox or Safari has it; iPhones in Lockdown Mode and some company browsers switch it off.";

/**
 * What keeps the page from working at all.
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
    return { title: "This browser has no web workers", text: "The models of this page run in one. A current Chrome, Edge, Firefox or Safari has them." };
  }
  return null;
}

/** Threads that the engines may use. */
export function threads() {
  return globalThis.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency || 1, MOST_THREADS) : 1;
}

/** Whether a download that nobody asked for may cost money or patience: phones that do not tell how they are connected count. */
export function metered() {
  const { saveData, type, effectiveType } = /** @type {any} */ (navigator).connection ?? {};
  if (saveData || type === "cellular" || /[23]g$/.test(effectiveType ?? "")) return true;
  return type === undefined && matchMedia("(pointer: coarse)").matches;
}

/** What works less well here, in words for the user. @returns {string[]} */
export function notes() {
  const found = [];
  if (!globalThis.isSecureContext) {
    found.push("This page came over plain http: files are not checked, nothing is kept for offline use, and there is one thread. Over https, or from localhost, it can do all of it.");
  } else if (!("serviceWorker" in navigator) || !("caches" in globalThis)) {
    found.push("This browser keeps nothing for offline use (private windows often do not): each visit downloads the model again.");
  }
  if (globalThis.isSecureContext && !globalThis.crossOriginIsolated) {
    found.push("One thread only: the page came without the headers that threads need. Answers are right, and slower.");
  }
  return found;
}
