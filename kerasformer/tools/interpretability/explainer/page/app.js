// The page: a choice of texts, and panels that show what was recorded of one.

import { element, counted } from "./dom.js";
import { unpacked } from "./arrays.js";
import { REASON } from "./reason.js";
import { TOKENS } from "./tokens.js";
import { ATTENTION } from "./attention_panel.js";
import { LENS } from "./lens.js";
import { CHOICES } from "./choices.js";
import { BEAMS } from "./beams.js";
import { COMPARISON } from "./comparison.js";

const PANELS = [REASON, TOKENS, ATTENTION, LENS, CHOICES, BEAMS, COMPARISON];

/** One text of the record, with its words. */
class Page {
  constructor(record, index) {
    this.record = record;
    this.index = index;
    this.text = record.texts[index];
    this.read = this.words(this.text.read);
    this.written = this.text.written && this.words(this.text.written);
    this.isSeq2Seq = record.model.family === "encoder-decoder";
    this.isNext = record.model.kind === "next";
  }

  /** Words of an array of their indices. */
  words(array) {
    return Array.from(unpacked(array).values, (index) => ({ text: this.record.words[index][0], id: this.record.words[index][1] }));
  }

  word(index) {
    return this.record.words[index][0];
  }

  get tokens() {
    return this.isNext ? this.written : this.read;
  }

  /** Number of all places, of which the page may have only the last ones. */
  get places() {
    return this.isNext ? this.written.length - 1 : this.text.choices.places.length;
  }

  /** All tokens, each with the index of its place, or -1. */
  get placeTokens() {
    const places = new Map(this.text.choices.places.map((token, place) => [token, place]));
    return this.tokens.map(({ text }, token) => ({ text, place: places.get(token) ?? -1 }));
  }

  /** The place that is shown first: the first new token, or a mask that stands in the text. */
  get firstPlace() {
    const { places } = this.text.choices;
    if (this.isNext) return Math.max(0, places.indexOf(this.text.start));
    return Math.max(0, places.indexOf(this.text.gap));
  }

  placeName(place) {
    const at = this.text.choices.places[place];
    return typeof at === "number" ? this.tokens[at].text : at;
  }

  nameOf(text) {
    return text.pair === null ? text.text : `${text.text} / ${text.pair}`;
  }
}

const told = (value, page) => (typeof value === "function" ? value(page) : value);

const has = (each, page) => each.has?.(page) ?? true;

function panel(each, page, number) {
  const id = `panel-${number}`;
  const body = has(each, page) ? each.draw(page) : [element("p", { class: "absent" }, each.absent(page))];
  return element("section", { class: "card panel", id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title`, tabindex: "-1" }, element("span", { class: "counter", "aria-hidden": "true" }, String(number)), told(each.title, page)),
    element("p", { class: "about" }, told(each.texts, page).join(" ")), body);
}

/** Draws the panels one by one, so that the first one is seen at once. */
function show(record, shown, index, place) {
  const page = new Page(record, index);
  const panels = shown.map((each, at) => () => panel(each, page, at + 1));
  const turn = (show.turn = {});
  const [first, ...others] = panels;
  const drawn = [first()];
  place.replaceChildren(...drawn);
  const next = () => {
    if (show.turn !== turn) return;
    const make = others.shift();
    if (!make) return void (document.documentElement.dataset.ready = String(index));
    place.append(make());
    setTimeout(next);
  };
  delete document.documentElement.dataset.ready;
  requestAnimationFrame(() => setTimeout(next));
}

function start() {
  const record = JSON.parse(document.getElementById("record").textContent);
  const { model, precisions, texts } = record;
  document.getElementById("title").textContent = model.title;
  const facts = [model.name, `${model.family}, ${model.task}`, model.parameters && `${model.parameters.toLocaleString("en")} parameters`, counted(texts.length, "text"), precisions.map(({ name }) => name).join(", ")];
  document.getElementById("facts").append(...facts.filter(Boolean).map((fact) => element("li", {}, fact)));
  document.getElementById("command").append("For texts of your own: ", element("code", {}, `kerasformer explain ${model.source ?? "SOURCE"} "Your text" --site explained`));
  const place = document.getElementById("panels");
  const pages = texts.map((_, index) => new Page(record, index));
  const shown = PANELS.filter((each) => pages.some((page) => has(each, page)));
  const [probe] = pages;
  const pills = texts.map((text, index) => element("label", { class: "pill" },
    element("input", { type: "radio", name: "text", value: index, checked: index === 0, onchange: () => show(record, shown, index, place) }), element("span", {}, probe.nameOf(text))));
  document.querySelector("#texts .pills").append(...pills);
  document.getElementById("contents").append(...shown.map((each, index) => element("li", {}, element("a", { href: `#panel-${index + 1}` }, told(each.title, probe)))));
  const absent = PANELS.filter((each) => !shown.includes(each)).map((each) => `${told(each.title, probe)}: ${each.absent(probe)}`);
  if (absent.length) document.getElementById("absent").append("Not on this page: ", absent.join(" "));
  show(record, shown, 0, place);
}

start();
