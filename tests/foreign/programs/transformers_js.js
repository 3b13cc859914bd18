// Runs pipelines of transformers.js in Node or, imported by a page, in a browser. In Node, it reads one request on each line of
// standard input, and prints one answer on each line.

/** Runs the pipeline of a bundle on `calls`, which are lists of arguments; returns its answers or, with `stream`, the new tokens. */
export async function answers({ env, pipeline, TextStreamer }, { home, folder, task, calls, stream }) {
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = home;
  const pipe = await pipeline(task, folder);
  const results = [];
  for (const call of calls) results.push(await (stream ? tokens : plain)(pipe, call));
  await pipe.dispose();
  return results;

  async function plain(pipe, call) {
    const result = await pipe(...call);
    return result.tolist?.() ?? result;
  }

  async function tokens(pipe, [text, options]) {
    const received = [];
    const token_callback_function = (ids) => received.push(...ids.map(Number));
    const settings = { skip_prompt: true, callback_function: () => {}, token_callback_function };
    await pipe(text, { ...options, streamer: new TextStreamer(pipe.tokenizer, settings) });
    return received;
  }
}

if (typeof process !== "undefined") {
  const { createInterface } = await import("node:readline");
  const library = await import("@huggingface/transformers");
  for await (const line of createInterface({ input: process.stdin })) {
    try {
      console.log(JSON.stringify({ value: await answers(library, JSON.parse(line)) }));
    } catch (error) {
      console.log(JSON.stringify({ error: String(error) }));
    }
  }
}
