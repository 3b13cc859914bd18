// Panel: probabilities of the next token, of a masked token or of classes, under temperature, top-k and top-p.

import { counted, element, percent, slider } from "./dom.js";
import { row, unpacked } from "./arrays.js";
import { distribution, drawIndex, sigmoids } from "./sampling.js";
import { strip } from "./strip.js";
import { bar } from "./lens.js";

const SHOWN = 12;
const TITLES = { next: "The next token", mask: "The masked token", class: "The class", "token-class": "The class of a token", span: "The answer in the text", vector: "The vector of a text" };
const FIRST = {
  next: "The model gives each token of its vocabulary a probability to be the next one; choose a place in the text.",
  mask: "This model does not write: it guesses a token that is hidden, from both sides; choose which one is masked.",
  class: "This model does not write: it gives each class a probability, computed from the whole text.",
  "token-class": "This model does not write: it gives each token the probabilities of the classes; choose a token.",
  span: "This model does not write: it marks the first and the last token of an answer that stands in the text.",
  vector: "This model does not write: it turns a text into a vector, and texts of similar meaning into similar vectors.",
};
const CUTS = "Temperature makes the distribution steeper or flatter, and top-k and top-p cut off its tail before a token is drawn.";
const NO_CUTS = "Nothing is drawn here, so there is no top-k and no top-p; a temperature above 1 makes the model less sure of itself.";
const SIMILAR = "The number is the cosine of the angle between the vectors: 1 for the same direction, 0 for none in common.";

export const CHOICES = {
  title: ({ record }) => TITLES[record.model.kind],
  texts: ({ record }) => [FIRST[record.model.kind], { next: CUTS, mask: CUTS, vector: SIMILAR }[record.model.kind] ?? NO_CUTS],
  draw(page) {
    const { choices } = page.text;
    if (choices.kind === "vector") return similarities(page);
    const drawn = choices.kind === "next" || choices.kind === "mask";
    const state = { place: page.firstPlace, temperature: 1, topK: 0, topP: 1 };
    const [words, scores] = [unpacked(choices.words), unpacked(choices.scores)];
    const rest = choices.rest && unpacked(choices.rest);
    const candidates = scores.shape[1];
    const list = element("ol", { class: "bars", id: "choice-bars" });
    const line = element("p", { class: "summary", id: "choice-text", "aria-live": "polite" });
    const dice = element("p", { class: "muted small", "aria-live": "polite" });
    let current = null;

    const update = () => {
      const at = [...row(scores, state.place)];
      const temperatures = page.record.temperatures;
      const index = temperatures.findIndex((each) => Math.abs(each - state.temperature) < 0.01);
      dice.textContent = "";
      if (choices.independent) {
        const shares = sigmoids(at, state.temperature);
        list.replaceChildren(...shares.map((share, rank) => bar(page.word(row(words, state.place)[rank]), share)));
        line.textContent = "Each class has a probability of its own.";
        return;
      }
      current = distribution(at, rest ? row(rest, state.place)[index] : -Infinity, choices.others, state);
      const shown = Math.min(SHOWN, candidates);
      const items = at.slice(0, shown).map((_, rank) => bar(page.word(row(words, state.place)[rank]), current.after[rank], { cut: current.after[rank] === 0 }));
      const others = candidates - shown + choices.others;
      const othersShare = current.after.slice(shown).reduce((sum, share) => sum + share, 0) + current.restAfter;
      if (others > 0) items.push(bar(`all ${counted(others, "other")}`, othersShare, { cut: othersShare === 0 }));
      list.replaceChildren(...items);
      const entropy = -current.after.reduce((sum, share) => sum + (share > 0 ? share * Math.log2(share) : 0), 0);
      line.textContent = drawn
        ? `${current.exact ? "" : "more than "}${counted(current.exact ? current.kept : candidates, "token")} can be drawn, which ${current.kept === 1 && current.exact ? "has" : "have"} ${percent(current.held)} of the probability.`
        : `Uncertainty: ${entropy.toFixed(2)} bits of at most ${Math.log2(Math.max(2, candidates)).toFixed(2)}.`;
    };
    const draw = () => {
      const index = drawIndex(current.after, Math.random());
      dice.textContent = index < candidates ? `Drawn: ${page.word(row(words, state.place)[index])}` : "Drawn: one of the others, which are not recorded by name";
    };
    const sliders = [
      slider("Temperature", { min: 0.1, max: 2, step: 0.1, value: 1, shown: (value) => value.toFixed(1) }, (value) => { state.temperature = value; update(); }),
      drawn && slider("top-k", { min: 1, max: candidates + 1, step: 1, value: candidates + 1, shown: (value) => (value > candidates ? "all" : String(value)) }, (value) => { state.topK = value > candidates ? 0 : value; update(); }),
      drawn && slider("top-p", { min: 0.05, max: 1, step: 0.05, value: 1, shown: (value) => (value === 1 ? "all" : value.toFixed(2)) }, (value) => { state.topP = value; update(); }),
    ].filter(Boolean);
    const parts = [placeStrip(page, state.place, (place) => { state.place = place; update(); })];
    parts.push(element("div", { class: "sliders" }, sliders), line, list);
    if (drawn) parts.push(element("div", { class: "actions" }, element("button", { type: "button", class: "plain", onclick: draw }, "Draw a token"), dice));
    update();
    return parts;
  },
};

/** Buttons for the places of a text; `null` if there is only one. */
export function placeStrip(page, selected, choose, below = () => null) {
  const { choices } = page.text;
  if (choices.places.length === 1) return null;
  if (typeof choices.places[0] === "string") return strip(choices.places.map((text, place) => ({ text, below: below(place) })), "Places", selected, choose);
  const tokens = page.placeTokens.map(({ text, place }) => ({ text, quiet: place < 0, below: place < 0 ? null : below(place) }));
  const positions = page.placeTokens.map(({ place }) => place);
  return strip(tokens, page.isNext ? "Tokens, each with the probabilities from which it came" : "Tokens", positions.indexOf(selected), (index) => choose(positions[index]));
}

function similarities(page) {
  const vectors = page.record.texts.map((text) => unpacked(text.choices.vector).values);
  const own = vectors[page.index];
  const length = (vector) => Math.hypot(...vector);
  const items = page.record.texts
    .map((text, index) => ({ text, index, cosine: own.reduce((sum, value, axis) => sum + value * vectors[index][axis], 0) / (length(own) * length(vectors[index]) || 1) }))
    .filter(({ index }) => index !== page.index)
    .sort((first, second) => second.cosine - first.cosine)
    .map(({ text, cosine }) => element("li", { class: "bar sentence" }, element("span", { class: "name" }, page.nameOf(text)), element("span", { class: "value" }, cosine.toFixed(3)), element("span", { class: "track" }, element("span", { style: { width: `${(100 * Math.max(0, cosine)).toFixed(2)}%` } }))));
  if (!items.length) return [element("p", { class: "absent" }, "A comparison needs a second text.")];
  return [element("h3", {}, "Compared with the other texts"), element("ol", { class: "bars" }, items), element("p", { class: "muted small" }, `The vector has ${own.length.toLocaleString("en")} numbers.`)];
}
