// Panel: the model in several precisions, side by side, with the token where they part.

import { element, percent } from "./dom.js";
import { row, unpacked } from "./arrays.js";
import { placeStrip } from "./choices.js";

const SMALLEST = 1e-6; // nats: the lowest end of the bars

export const COMPARISON = {
  title: ({ record }) => (record.precisions.length > 1 ? record.precisions.map(({ name }) => name).join(", ") : "Precisions"),
  texts: ({ record }) => [
    `Rounded weights make a model smaller, and its probabilities a little different; these are real bundles, run by their own engine.`,
    record.model.generates
      ? "The bars below the tokens are the divergence (KL) from the first precision, on a logarithmic scale; the texts show where each of them parts."
      : "The divergence (KL) is 0 where the probabilities are equal; the first precision is what the others are compared with.",
  ],
  absent: ({ record }) =>
    record.model.bundle
      ? "There is nothing to compare: no bundle of this model with another recipe lies beside this one."
      : record.precisions.length > 1
        ? `There is nothing to compare: ${record.precisions.at(-1).note}`
        : "There is nothing to compare: the page was made without quantized bundles.",
  has: ({ text }) => text.comparison.length > 1,
  draw(page) {
    const { comparison } = page.text;
    if (comparison[0].cosine !== undefined) return [vectors(page)];
    const parts = comparison.map((each) => ({ ...each, shares: unpacked(each.shares), words: unpacked(each.words), best: page.words(each.best), divergence: unpacked(each.divergence).values, written: each.written && page.words(each.written) }));
    const [first, ...others] = parts;
    const details = element("div", { class: "details", "aria-live": "polite" });
    const most = Math.max(SMALLEST * 10, ...others.flatMap(({ divergence }) => [...divergence]));
    const height = (value) => Math.max(0, Math.min(1, Math.log(Math.max(value, SMALLEST) / SMALLEST) / Math.log(most / SMALLEST)));
    const bars = (place) =>
      element("span", { class: "divergences", "aria-hidden": "true" }, others.map(({ divergence, best }, index) => element("span", { class: `precision-${index + 2}${best[place].text === first.best[place].text ? "" : " parts"}`, style: { "--height": height(divergence[place]).toFixed(3) } })));
    const show = (place) => details.replaceChildren(...place_details(page, parts, place));
    const start = others.map(({ best }) => best.findIndex(({ text }, place) => text !== first.best[place].text)).filter((place) => place >= 0);
    const place = start.length ? Math.min(...start) : page.firstPlace;
    show(place);
    return [
      summary(page, parts),
      page.record.model.generates ? texts(page, parts) : null,
      placeStrip(page, place, show, bars),
      page.text.choices.places.length > 1 ? legend(parts) : null,
      details,
    ];
  },
};

const bytes = (count) => (count >= 1e6 ? `${(count / 1e6).toFixed(1)} MB` : `${Math.max(1, Math.round(count / 1e3))} kB`);
const small = (value) => (value === 0 ? "0" : value < 0.0001 ? value.toExponential(0).replace("e-", " · 10⁻").replace(/\d+$/, (digits) => [...digits].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")) : value.toPrecision(2));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Index of the first token of another text that differs; -1 if both are equal as far as they go. */
export function parting(first, other) {
  const length = Math.max(first.length, other.length);
  for (let index = 0; index < length; index++) if (first[index]?.id !== other[index]?.id) return index;
  return -1;
}

function summary(page, parts) {
  const { generates } = page.record.model;
  const sizes = Object.fromEntries(page.record.precisions.map(({ name, bytes: size }) => [name, size]));
  const notes = page.record.precisions.filter(({ note }) => note).map(({ name, note }) => element("p", { class: "muted small" }, `${name}: ${note}`));
  const heads = ["", "size", "mean KL", "largest KL", generates ? "best token is the same" : "best answer is the same", generates ? "same text for" : null].filter((head) => head !== null);
  const rows = parts.map((part, index) => {
    const same = part.best.filter(({ text }, place) => text === parts[0].best[place].text).length;
    const at = part.written && parting(parts[0].written, part.written);
    const cells = index === 0
      ? [bytes(sizes[part.name]), "–", "–", "–", generates ? `${part.written.length} tokens` : null]
      : [bytes(sizes[part.name]), small(mean([...part.divergence])), small(Math.max(...part.divergence)), `${same} of ${part.best.length}`, generates ? (at < 0 ? `all ${part.written.length} tokens` : `${at} tokens`) : null];
    return element("tr", {}, element("th", { scope: "row" }, element("span", { class: `dot precision-${index + 1}` }), part.name), cells.filter((cell) => cell !== null).map((cell) => element("td", {}, cell)));
  });
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Summary of the precisions" },
    element("table", { class: "numbers" }, element("thead", {}, element("tr", {}, heads.map((head) => (head ? element("th", { scope: "col" }, head) : element("td", {}))))), element("tbody", {}, rows)), notes);
}

/** The text that each precision writes, with the token where it parts from the first one. */
function texts(page, parts) {
  const first = parts[0].written;
  const lines = parts.map(({ name, written }, index) => {
    const at = index === 0 ? -1 : parting(first, written);
    const tokens = written.map(({ text }, place) => (place === at ? element("mark", {}, text) : element("span", { class: at >= 0 && place > at ? "after" : null }, text.replaceAll("␣", " "))));
    const ended = at >= written.length ? [element("mark", {}, "(ends)")] : [];
    const verdict = index === 0 ? "" : at < 0 ? "the same text" : at < written.length ? `parts at token ${at + 1}: ${written[at].text} instead of ${first[at]?.text ?? "the end"}` : `ends at token ${at + 1}, instead of ${first[at].text}`;
    return [element("dt", {}, element("span", { class: `dot precision-${index + 1}` }), name, verdict ? element("small", { class: at < 0 ? "good" : "bad" }, verdict) : null), element("dd", {}, tokens, ended)];
  });
  return element("div", {}, element("h3", {}, page.isSeq2Seq ? "What each writes" : "How each continues"), element("dl", { class: "texts" }, lines), elsewhere(page, parts));
}

/** Where the precisions part in other texts, if they do not in this one. */
function elsewhere(page, parts) {
  if (parts.some(({ written }) => parting(parts[0].written, written) >= 0)) return null;
  for (const text of page.record.texts) {
    const [first, ...others] = text.comparison.map(({ written }) => page.words(written));
    const index = others.findIndex((written) => parting(first, written) >= 0);
    if (index >= 0) return element("p", { class: "muted small" }, `In the text “${page.nameOf(text)}”, ${text.comparison[index + 1].name} parts at token ${parting(first, others[index]) + 1}.`);
  }
  return null;
}

function legend(parts) {
  return element("p", { class: "muted small legend" }, parts.slice(1).flatMap(({ name }, index) => [element("span", { class: `dot precision-${index + 2}` }), `${name}   `]), "A bar with a thick end marks another best token.");
}

/** The candidates of one place with their probabilities in each precision. */
function place_details(page, parts, place) {
  const candidates = [...row(parts[0].words, place)].filter((word, rank, list) => list.indexOf(word) === rank);
  const order = candidates.map((word) => [...row(parts[0].words, place)].indexOf(word));
  const heads = parts.map(({ name }, index) => element("th", { scope: "col" }, element("span", { class: `dot precision-${index + 1}` }), name));
  const most = Math.max(...parts.flatMap(({ shares }) => [...row(shares, place)]));
  const rows = order.map((rank) => {
    const shares = parts.map(({ shares: all }) => row(all, place)[rank]);
    const word = page.word(row(parts[0].words, place)[rank]);
    return element("tr", {}, element("th", { scope: "row" }, word), shares.map((share, index) => {
      const best = parts[index].best[place].text === word;
      const change = 100 * (share - shares[0]);
      return element("td", { class: best ? "best" : null },
        element("span", { class: "track" }, element("span", { class: `precision-${index + 1}`, style: { width: `${((100 * share) / most).toFixed(2)}%` } })),
        element("span", {}, percent(share)),
        index ? element("small", {}, `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(Math.abs(change) < 1 ? 2 : 1)}`) : null);
    }));
  });
  const divergences = parts.slice(1).map(({ name, divergence }) => `${name} ${small(divergence[place])}`).join(", ");
  return [
    element("h3", {}, page.isNext ? `Probabilities from which “${page.placeName(place)}” came` : `Probabilities: ${page.placeName(place)}`),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Candidates" }, element("table", { class: "numbers candidates" }, element("thead", {}, element("tr", {}, element("td", {}), heads)), element("tbody", {}, rows))),
    element("p", { class: "muted small" }, `KL: ${divergences} nats. Small numbers are differences in percentage points.`),
  ];
}

function vectors(page) {
  const rows = page.record.precisions.filter((each) => !each.note || each.bytes).map(({ name, bytes: size }, index) =>
    element("tr", {}, element("th", { scope: "row" }, element("span", { class: `dot precision-${index + 1}` }), name), element("td", {}, bytes(size)), element("td", {}, index ? page.text.comparison[index].cosine.toFixed(4) : "–")));
  return element("table", { class: "numbers" }, element("thead", {}, element("tr", {}, element("td", {}), element("th", { scope: "col" }, "size"), element("th", { scope: "col" }, "cosine with the first"))), element("tbody", {}, rows));
}
