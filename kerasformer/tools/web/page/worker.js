/**
 * Runs a bundle outside the page's main thread; library/README.md describes the messages.
 *
 * A classic worker: LiteRT.js loads its WebAssembly by `importScripts`, which modules lack.
 */
"use strict";

const library = import("./library/index.js");

/** The open bundle, and the abort controllers of unfinished requests. */
let bundle = null;
const running = new Map();
let last = Promise.resolve();

const actions = {
  async load({ id, base, task, engine, threads, accelerator }, signal) {
    const { openBundle } = await library;
    bundle?.close();
    bundle = null;
    const onProgress = (progress) => postMessage({ type: "progress", id, ...progress });
    bundle = await openBundle(base, { task, engine, threads, accelerator, onProgress, signal });
    const { info } = bundle;
    return { type: "loaded", id, info, seconds: info.seconds, bytes: info.bytes };
  },

  async run({ id, inputs, options }, signal) {
    if (!bundle) throw new Error("No bundle is open. Send a message of the type load first");
    const onToken = (text) => postMessage({ type: "token", id, text });
    return { type: "result", id, ...(await bundle.run(inputs, options, { onToken, signal })) };
  },

  async check({ id, references }, signal) {
    if (!bundle) throw new Error("No bundle is open. Send a message of the type load first");
    return { type: "checked", id, verdict: await bundle.check(references, signal) };
  },
};

onmessage = ({ data }) => {
  if (data.type === "cancel") running.get(data.id)?.abort();
  else if (data.type === "close") last = last.then(close);
  else if (data.type in actions) handle(data);
};

/** Handles requests one after another, in their order. */
function handle(message) {
  const controller = new AbortController();
  running.set(message.id, controller);
  last = last.then(() => answer(message, controller.signal)).finally(() => running.delete(message.id));
}

async function answer(message, signal) {
  try {
    postMessage(await actions[message.type](message, signal));
  } catch (error) {
    const { name = "Error", message: text = String(error), most, received, option } = error ?? {};
    postMessage({ type: "error", id: message.id, name, message: text, most, received, option });
  }
}

function close() {
  bundle?.close();
  bundle = null;
}
