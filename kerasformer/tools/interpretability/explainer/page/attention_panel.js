// Panel: attention, drawn by the views of kerasformer.tools.viz.

import { element } from "./dom.js";
import { unpacked } from "./arrays.js";

const NAMES = { encoder: "Encoder", decoder: "Decoder", cross: "Decoder to encoder" };
const QUERIES = { encoder: "encoder", decoder: "decoder", cross: "decoder" };
const KEYS = { encoder: "encoder", decoder: "decoder", cross: "encoder" };

export const ATTENTION = {
  title: "Attention",
  texts: [
    "In each layer, several heads decide which other tokens a token takes information from; a line is as strong as its weight.",
    "Choose a layer and its heads, or point at a token; “All heads” shows the whole model at once.",
  ],
  absent: ({ record }) =>
    record.model.bundle
      ? "This bundle returns no attention weights: export it with outputs=(\"attentions\",), or explain the checkpoint that it was exported from."
      : "No layer of this model has attention weights.",
  has: ({ text }) => text.attention.length > 0,
  draw(page) {
    const { attention } = page.text;
    const texts = {};
    for (const each of attention) {
      texts[QUERIES[each.stack]] = { tokens: page.words(each.queries).map(({ text }) => text) };
      texts[KEYS[each.stack]] ??= { tokens: page.words(each.keys).map(({ text }) => text) };
    }
    if (page.text.segments && texts.encoder) texts.encoder.segments = page.text.segments;
    if (page.isNext) texts.decoder.next = page.written.slice(1).map(({ text }) => text);
    const kinds = attention.map((each) => ({ kind: each.stack, name: NAMES[each.stack], queries: QUERIES[each.stack], keys: KEYS[each.stack], layers: layers(each) }));
    const views = attention.some(({ stack }) => stack === "cross") ? ["heads", "model", "alignment"] : ["heads", "model"];
    const place = element("div", {});
    globalThis.KerasformerAttention.mount(place, { views, texts, kinds }, { view: "heads", layer: 0 });
    const [first] = attention;
    const left = first.layers.length < first.total ? `To keep the page small, it has ${first.layers.length} of ${first.total} layers.` : null;
    const absent = {
      encoder: "There is no decoder, and so no attention between a decoder and an encoder.",
      decoder: "There is no encoder, and so no attention between a decoder and an encoder: each token sees itself and those before it.",
    }[page.record.model.family];
    return [place, absent && element("p", { class: "muted small" }, absent), left && element("p", { class: "muted small" }, left)];
  },
};

/** Layers with their weights; they count from 1, as after each layer in the panel below. */
function layers({ weights, layers: indices }) {
  const { shape, values } = unpacked(weights);
  const size = shape[1] * shape[2] * shape[3];
  return indices.map((index, at) => ({ index: index + 1, heads: shape[1], weights: Float32Array.from(values.subarray(at * size, (at + 1) * size), (value) => value / 255) }));
}
