// Finds texts that transformers.js or @huggingface/tokenizers read differently from Python, with the code of a model card. Reads
// one request `{folder, code}` on each line.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Tokenizer } from "@huggingface/tokenizers";
import { AutoTokenizer, env } from "@huggingface/transformers";

env.allowRemoteModels = false;
for await (const line of createInterface({ input: process.stdin })) {
  const { folder, code } = JSON.parse(line);
  const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf-8"));
  const differing = new Function(`${code}; return differing`)();
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
