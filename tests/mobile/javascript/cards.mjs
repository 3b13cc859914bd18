/**
 * Runs the code of model cards in Node with the library, and mock models behind it: `node cards.mjs LIBRARY NODE_MODULES`
 * reads a list of `{folder, code}` as JSON, and writes what each code printed.
 */
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { Mock, mockStep } from "./mock.mjs";

const [library, packages] = process.argv.slice(2).map((path) => pathToFileURL(`${path}/`));
const { openBundle } = await import(new URL("index.js", library).href);
const paths = ["tokenizers/dist/tokenizers.min.mjs", "jinja/dist/index.js"];
const [tokenizers, jinja] = await Promise.all(paths.map((path) => import(new URL(`@huggingface/${path}`, packages).href)));

/** An encoder whose outputs are the same numbers for each text. */
function patterned({ signatures, info }) {
  const [{ outputs }] = Object.values(signatures);
  const run = async ({ ids, word_slots: words, label_slots: labels }) => {
    // The first axis is the batch; names are lengths.
    const lengths = { num_words: words?.length, num_labels: labels?.length };
    const size = ([, ...shape]) => shape.reduce((product, each) => product * (Number(each) || (lengths[each] ?? ids.length)), 1);
    const values = (shape) => Float32Array.from({ length: size(shape) }, (_, index) => (index * 7) % 5);
    return Object.fromEntries(Object.entries(outputs).map(([name, { shape }]) => [name, values(shape)]));
  };
  return { maxLength: info.max_length, run, memory: () => 0, close: () => {} };
}

const AsyncFunction = (async () => {}).constructor;
const answers = [];
for (const { folder, code } of JSON.parse(readFileSync(0, "utf-8"))) {
  const { engine = null } = JSON.parse(readFileSync(`${folder}/calls.json`, "utf-8"));
  const openModel = async (manifest) => (engine?.mock ? mockStep(new Mock(engine.mock)) : patterned(manifest));
  const printed = [];
  const names = {
    tokenizers,
    jinja,
    module: {},
    console: { log: (value) => printed.push(value) },
    openBundle: async (base, options) => {
      // A URL of a page in TFLite, a path in ONNX.
      if (!["/path/to/this/folder/", "path/to/this/folder"].includes(base)) throw new Error(`Another folder: ${base}`);
      const bundle = await openBundle(folder, { ...options, ...(engine ? { openModel } : {}) });
      if (engine?.mock?.encoder_capacity) bundle.manifest.info.max_length = bundle.engine.encoderCapacity = 512; // room for the text of a card
      return bundle;
    },
  };
  const used = [...code.matchAll(/^import (?:\* as (\w+)|\{ (\w+) \}|(\w+)) from "[^"]+";/gm)].map((found) => found[1] ?? found[2] ?? found[3]);
  // Only a module has `import.meta`, and the mock models need no files of a runtime.
  const body = code.replace(/^import .*$/gm, "").replace(/import\.meta\.resolve\(("[^"]+")\)/g, "$1");
  await new AsyncFunction(...used, "console", body)(...used.map((name) => names[name]), names.console);
  answers.push(printed);
}
console.log(JSON.stringify(answers));
