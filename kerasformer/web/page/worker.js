/**
 * Runs a bundle beside the page, which speaks to it by messages: library/README.md has them.
 *
 * A classic worker: LiteRT.js loads its WebAssembly by `importScripts`, which modules lack.
 */
"use strict";

const library = import("./library/index.js");

/** What is open, and what was asked for and has not ended. */
let bundle = null;
const running = new Map();
let last = Promise.resolve();

const actions = {
  async load({ id, base, engine, threads }, signal) {
    const { openBundle } = await library;
    bundle?.close();
    bundle = null;
    const onProgress = (progress) => postMessage({ type: "progress", id, ...progress });
    bundle = await openBundle(base, { engine, threads, onProgress, signal });
    const { info } = bundle;
    return { type: "loaded", id, info, seconds: info.seconds, bytes: info.bytes };
  },

  async run({ id, inputs, options }, signal) {
    if (!bundle) throw new Error("No bundle is open. Load one first");
    const onToken = (text) => postMessage({ type: "token", id, text });
    return { type: "result", id, ...(await bundle.run(inputs, options, { onToken, signal })) };
  },
};

onmessage = ({ data }) => {
  if (data.type === "cancel") running.get(data.id)?.abort();
  else if (data.type === "close") last = last.then(close);
  else if (data.type in actions) begin(data);
};

/** Answers one after the other, in the order of the questions. */
function begin(message) {
  const controller = new AbortController();
  running.set(message.id, controller);
  last = last.then(() => answer(message, controller.signal)).finally(() => running.delete(message.id));
}

async function answer(message, signal) {
  try {
    postMessage(await actions[message.type](message, signal));
  } catch (error) {
    const { name = "Error", message: said = String(error), most, received } = error ?? {};
    postMessage({ type: "error", id: message.id, name, message: said, most, received });
  }
}

function close() {
  bundle?.close();
  bundle = null;
}
