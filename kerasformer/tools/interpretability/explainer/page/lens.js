// Panel: what the head of a model reads in the hidden states of each layer.

import { element, percent } from "./dom.js";
import { row, unpacked } from "./arrays.js";

export const LENS = {
  title: "Layer by layer",
  texts: [
    "The head of the model reads the hidden states after each layer, as if the model ended there (the “logit lens”).",
    "Read it from the bottom to the top: the stronger the colour, the surer the layer, and a bold word is already the final one.",
  ],
  absent: ({ record }) =>
    record.model.bundle
      ? "A bundle has no hidden states: explain the checkpoint that it was exported from."
      : "This model answers with a vector, so there is no head that could read a layer.",
  has: ({ text }) => text.lens !== null,
  draw(page) {
    const { lens, choices } = page.text;
    const words = unpacked(lens.words);
    const shares = unpacked(lens.shares);
    const final = unpacked(lens.final);
    const [layers, places, count] = words.shape;
    const details = element("div", { class: "details", "aria-live": "polite" });
    const show = (layer, place) => {
      const at = layer * places + place;
      const items = [...row(words, at)].map((word, rank) => bar(page.word(word), row(shares, at)[rank]));
      details.replaceChildren(
        element("h3", {}, `${layer === 0 ? "Embeddings, the input of the first layer" : layer === layers - 1 ? `Layer ${layer - 1}, the last one` : `Layer ${layer - 1}`}: ${page.placeName(place)}`),
        element("ol", { class: "bars" }, items),
        element("p", { class: "muted small" }, `The final choice “${page.word(row(words, (layers - 1) * places + place)[0])}” has ${percent(row(final, layer)[place])} here.`),
      );
    };
    const cell = (layer, place) => {
      const at = layer * places + place;
      const [word, share] = [row(words, at)[0], row(shares, at)[0]];
      const isFinal = word === row(words, (layers - 1) * places + place)[0];
      return element("td", {}, element("button", { type: "button", class: isFinal ? "final" : null, style: { "--share": share.toFixed(3) }, onclick: () => show(layer, place) }, element("span", {}, page.word(word)), element("small", {}, percent(share))));
    };
    const heads = choices.places.map((_, place) => element("th", { scope: "col" }, page.placeName(place)));
    const rows = Array.from({ length: layers }, (_, index) => layers - 1 - index).map((layer) =>
      element("tr", {}, element("th", { scope: "row" }, layerName(layer)), choices.places.map((_, place) => cell(layer, place))),
    );
    const start = page.isNext ? Math.max(0, page.text.start - 1 - (page.places - places)) : 0;
    show(layers - 1, Math.min(start, places - 1));
    const table = element("table", { class: places > 3 ? "lens" : "lens wide" }, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "layer"), heads)), element("tbody", {}, rows));
    const scrolled = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Layers and tokens" }, table);
    requestAnimationFrame(() => {
      const column = table.rows[0].cells[start + 1];
      if (column) scrolled.scrollLeft = Math.max(0, column.offsetLeft - 160);
    });
    return [scrolled, count > 1 ? details : null];
  },
};

const layerName = (layer) => (layer === 0 ? "input" : `layer ${layer - 1}`);

/** One candidate with a bar for its share. */
export function bar(word, share, { cut = false, note = null } = {}) {
  return element(
    "li", { class: cut ? "bar cut" : "bar" },
    element("span", { class: "name" }, word), element("span", { class: "value" }, percent(share), note),
    element("span", { class: "track" }, element("span", { style: { width: `${(100 * share).toFixed(2)}%` } })),
  );
}
