// Panel: the text, coloured by what each token adds to the score of the answer.

import { element } from "./dom.js";

const MOST = 2; // words that the sentence below names on each side

export const REASON = {
  title: "Why this answer",
  texts: ({ text }) => [
    "Blue parts raise the score of the answer, and orange ones lower it; the stronger the colour, the more.",
    text.reason?.method === "occlusion"
      ? "A part counts as much as the score falls without it."
      : "The parts add up to the difference from the score of an empty text (integrated gradients).",
  ],
  absent: () => "This model answers with a vector or has no score for one answer.",
  has: ({ text }) => text.reason !== null,
  draw(page) {
    const { reason } = page.text;
    const shares = reason.parts.filter(([, share]) => share !== null);
    const greatest = Math.max(...shares.map(([, share]) => Math.abs(share))) || 1;
    const parts = reason.parts.map(([text, share]) =>
      share ? element("span", { class: share > 0 ? "raises" : "lowers", title: signed(share), style: { "--share": (Math.abs(share) / greatest).toFixed(3) } }, text) : text);
    const sides = [["Most of it comes from", 1], ["It is lowered by", -1]].map(([about, sign]) => {
      const best = shares.filter(([text, share]) => share * sign > 0 && text.trim()).sort(([, first], [, second]) => (second - first) * sign).slice(0, MOST);
      return best.length ? `${about} ${best.map(([text, share]) => `“${text.trim()}” (${signed(share)})`).join(" and ")}.` : null;
    });
    return [
      element("h3", {}, reason.title),
      element("p", { class: "reasons", dir: "auto" }, parts),
      element("p", { class: "muted small" }, sides.filter(Boolean).join(" ")),
    ];
  },
};

const signed = (share) => `${share < 0 ? "−" : "+"}${Math.abs(share).toFixed(2)}`;
