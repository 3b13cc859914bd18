// Panel: the tokens of a text.

import { counted, element } from "./dom.js";

export const TOKENS = {
  title: "Tokens",
  texts: [
    "A model reads numbers, not letters: its tokenizer cuts a text into pieces of a vocabulary, and each piece has an id.",
    "The sign ␣ is a space, and tokens with a dashed border are special ones that mark the beginning, the end or a gap.",
  ],
  draw(page) {
    const { text } = page;
    const parts = [list(page.isSeq2Seq ? "The encoder reads" : "The model reads", page.read, (index) => text.special[index] > 0)];
    const characters = [...text.prefix, ...text.text, ...(text.pair ?? "")].length;
    const known = page.read.filter((_, index) => !text.special[index]).length;
    if (page.written) {
      const start = page.isSeq2Seq ? 0 : text.start;
      parts.push(list(page.isSeq2Seq ? "The decoder writes, after its start token" : "The model continues", page.written.slice(start), (index) => page.isSeq2Seq && index < text.start));
    }
    parts.push(element("p", { class: "muted small" }, `${counted(characters, "character")} are ${counted(known, "token")}, ${(characters / Math.max(known, 1)).toFixed(1)} characters each, of a vocabulary of ${page.record.model.vocabulary.toLocaleString("en")}.`));
    return parts;
  },
};

function list(title, words, isSpecial) {
  const items = words.map(({ text, id }, index) => element("li", { class: isSpecial(index) ? "special" : null }, element("span", {}, text), element("small", {}, String(id))));
  return element("div", {}, element("h3", {}, title), element("ol", { class: "tokens" }, items));
}
