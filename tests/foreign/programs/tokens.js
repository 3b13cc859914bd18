// Finds texts that transformers.js or @huggingface/tokenizers read differently from Python. Reads one request `{folder}` on each
// line.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Tokenizer } from "@huggingface/tokenizers";
import { AutoTokenizer, env } from "@huggingface/transformers";

/** Returns the texts of the rows of tokenizer_texts.json for which a tokenizer returns wrong ids. */
function differing(tokenizer, rows) {
  const ids = (text) => tokenizer.encode(text).ids ?? tokenizer.encode(text);
  return rows.filter((row) => String(ids(row.text)) !== String(row.ids)).map(({ text }) => text);
}

env.allowRemoteModels = false;
for await (const line of createInterface({ input: process.stdin })) {
  const { folder } = JSON.parse(line);
  const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf-8"));
  const rows = read("tokenizer_texts.json");
  const alone = new Tokenizer(read("tokenizer.json"), read("tokenizer_config.json"));
  const answer = { tokenizers: differing(alone, rows) };
  try {
    answer.transformers = differing(await AutoTokenizer.from_pretrained(folder), rows);
  } catch (error) {
    answer.transformers = String(error);
  }
  console.log(JSON.stringify(answer));
}
