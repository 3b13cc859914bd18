/** The test program of the JavaScript library: `node tokenize.mjs LIBRARY NODE_MODULES tokenize|time FOLDER < LINES`. */
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [library, packages, command, folder] = process.argv.slice(2);
const [{ Tokenizer }, tokenizers] = await Promise.all(
  [`${library}/tokenization/tokenizer.js`, `${packages}/@huggingface/tokenizers/dist/tokenizers.min.mjs`].map(
    (path) => import(pathToFileURL(path).href),
  ),
);
const [content, settings] = ["tokenizer.json", "tokenizer_config.json"].map((file) => JSON.parse(readFileSync(`${folder}/${file}`, "utf-8")));
const tokenizer = new Tokenizer(tokenizers, content, settings);
const lines = readFileSync(0, "utf-8").replace(/\n$/, "").split("\n");
if (command === "tokenize") {
  for (const line of lines) {
    const tokens = tokenizer.encode(line);
    console.log(JSON.stringify({ ids: tokens.map(({ id }) => id), offsets: tokens.flatMap(({ offsets }) => offsets) }));
  }
} else {
  let started = process.cpuUsage();
  for (let pass = 0; pass < 2; pass++) {
    started = process.cpuUsage();
    for (const line of lines) tokenizer.encode(line);
  }
  const { user, system } = process.cpuUsage(started);
  console.log((user + system) / 1e6);
}
