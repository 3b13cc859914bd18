// Runs pipelines of transformers.js in Node or, imported by a page, in a browser. In Node, it reads one request on each line of
// standard input, and prints one answer on each line.

/**
 * Runs the pipeline of a bundle on `calls`, which are lists of arguments; returns its answers or, with `stream`, the new tokens.
 * With the name of a class instead of a task, `calls` are arguments of the tokenizer, and the answers are outputs of the model.
 */
export async function answers(library, { home, folder, task, calls, stream }) {
  const { env, pipeline, TextStreamer } = library;
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = home;
  if (task in library) return outputs(library, folder, library[task], calls);
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

/** Returns the outputs of a model for each call of its tokenizer, by name. */
async function outputs({ AutoTokenizer }, folder, modelClass, calls) {
  const tokenizer = await AutoTokenizer.from_pretrained(folder);
  const model = await modelClass.from_pretrained(folder);
  const results = [];
  for (const call of calls) {
    const tensors = Object.entries(await model(tokenizer(...call)));
    results.push(Object.fromEntries(tensors.map(([name, tensor]) => [name, tensor.tolist()])));
  }
  await model.dispose();
  return results;
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
