// Panel: a beam search that grows step by step.

import { drawn, element, percent, slider } from "./dom.js";

const WIDTH = 132; // of a column
const BOX = { width: 104, height: 36 };
const ROW = 46;
const TOP = 30;
const LEFT = 56;

export const BEAMS = {
  title: "Beams",
  texts: [
    "Beam search continues the best few beginnings at once, and compares them by the sum of the log-probabilities (Σ) of their tokens.",
    "Solid lines go on, dashed ones were dropped, and the thick path is the text that is returned.",
  ],
  absent: ({ record }) =>
    record.model.family === "decoder"
      ? "This head answers at once and writes no text, so there are no beginnings to compare."
      : record.model.family === "encoder"
        ? "An encoder writes no text, so there are no beginnings to compare."
        : "This head writes no text, although the model has a decoder, so there are no beginnings to compare.",
  has: ({ text }) => text.beams !== null,
  draw(page) {
    const { beams } = page.text;
    const { steps } = beams;
    const all = beams.count * ROW + TOP;
    const picture = drawn("svg", { class: "beams", width: LEFT + steps.length * WIDTH, height: all, viewBox: `0 0 ${LEFT + steps.length * WIDTH} ${all}`, role: "img", "aria-labelledby": "beam-text" });
    const described = element("p", { class: "summary", id: "beam-text", "aria-live": "polite" });
    const y = (rank) => TOP + rank * ROW + ROW / 2;
    const root = y((steps[0].filter((node) => node[4]).length - 1) / 2);
    const groups = steps.map((nodes, step) => {
      const x = LEFT + step * WIDTH;
      const lines = [];
      const boxes = [drawn("text", { x: x + BOX.width / 2, y: 16, class: "step" }, `step ${step + 1}`)];
      nodes.forEach(([parent, word, share, total, kept, ended, best], rank) => {
        const style = `${kept ? (ended ? "ended" : "kept") : "dropped"}${best ? " best" : ""}`;
        const from = parent < 0 ? [LEFT - 32, root] : [x - WIDTH + BOX.width, y(parent)];
        const half = (x - from[0]) / 2;
        const curve = drawn("path", { class: style, d: `M${from[0]} ${from[1]}C${from[0] + half} ${from[1]} ${x - half} ${y(rank)} ${x} ${y(rank)}` });
        best ? lines.push(curve) : lines.unshift(curve);
        const text = page.word(word);
        boxes.push(drawn("g", { class: style },
          drawn("title", {}, `${text}: ${percent(share)}, sum of log-probabilities ${total.toFixed(2)}, ${kept ? (ended ? "ended" : "continued") : "dropped"}`),
          drawn("rect", { x, y: y(rank) - BOX.height / 2, width: BOX.width, height: BOX.height, rx: 8 }),
          drawn("text", { x: x + BOX.width / 2, y: y(rank) - 2, class: "word" }, text.length > 13 ? `${text.slice(0, 12)}…` : text),
          drawn("text", { x: x + BOX.width / 2, y: y(rank) + 12, class: "number" }, `${percent(share)}   Σ ${total.toFixed(1).replace("-", "−")}`)));
      });
      return drawn("g", {}, lines, boxes);
    });
    picture.append(drawn("circle", { cx: LEFT - 32, cy: root, r: 5 }), ...groups);
    const scrolled = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tree of beams" }, picture);
    const show = (count, follow = true) => {
      groups.forEach((group, step) => group.classList.toggle("later", step >= count));
      described.textContent = sentence(page, steps.slice(0, count));
      if (follow) scrolled.scrollTo({ left: LEFT + count * WIDTH - scrolled.clientWidth, behavior: "smooth" });
    };
    const control = slider("Step", { min: 1, max: steps.length, step: 1, value: steps.length, shown: (value) => `${value} of ${steps.length}` }, (value) => { stop(); show(value); });
    let timer = null;
    const button = element("button", { type: "button", class: "plain", onclick: () => (timer ? stop() : play()) }, "Let it grow");
    const stop = () => {
      clearInterval(timer);
      timer = null;
      button.textContent = "Let it grow";
    };
    const play = () => {
      let count = 0;
      button.textContent = "Stop";
      const grow = () => {
        const input = control.querySelector("input");
        count += 1;
        input.value = count;
        control.querySelector("output").textContent = `${count} of ${steps.length}`;
        show(count);
        if (count === steps.length) stop();
      };
      timer = setInterval(grow, 900);
      grow();
    };
    show(steps.length, false);
    return [element("div", { class: "actions" }, button, control), scrolled, described];
  },
};

/** Tokens as a text: pieces carry their spaces, except those of vocabularies that mark none. */
const joined = (tokens) => (tokens.some((token) => token.includes("␣")) ? tokens.join("").replaceAll("␣", " ").trim() : tokens.join(" "));

/** The best beginning so far, in words. */
function sentence(page, steps) {
  const alive = steps.at(-1).map((node, index) => ({ node, index })).filter(({ node }) => node[4]);
  const returned = steps.at(-1).findIndex((node) => node[6]);
  if (!alive.length) return "All beams have ended.";
  const path = [];
  let at = returned >= 0 ? returned : alive[0].index;
  for (let step = steps.length - 1; step >= 0; step--) {
    path.unshift(page.word(steps[step][at][1]));
    at = steps[step][at][0];
  }
  return `After step ${steps.length}, ${alive.length} beams go on or have ended. ${returned >= 0 ? "The one that is returned" : "The best one"}: ${joined(path)}`;
}
