// A strip of tokens, of which one is chosen.

import { element } from "./dom.js";

/**
 * Returns buttons for tokens, one of which is pressed.
 *
 * @param tokens Objects with `text`, and optionally `quiet` for those that cannot be chosen and `below`, an element.
 * @param label Name of the group.
 * @param selected Index of the chosen one.
 * @param choose Called with the index of another choice.
 */
export function strip(tokens, label, selected, choose) {
  const buttons = tokens.map(({ text, quiet, below = null, title = null }, index) =>
    quiet
      ? element("span", { class: "token quiet" }, text)
      : element("button", { type: "button", class: "token", title, "aria-pressed": String(index === selected), onclick: () => press(index) }, element("span", {}, text), below),
  );
  function press(index) {
    buttons.forEach((button, other) => button.tagName === "BUTTON" && button.setAttribute("aria-pressed", String(other === index)));
    choose(index);
  }
  return element("div", { class: "strip", role: "group", "aria-label": label }, buttons);
}
