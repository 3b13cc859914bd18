// Creates elements from data. Text is inserted only as text nodes, so that no model or file can inject markup.

/**
 * Creates an element.
 * @param {string} tag
 * @param {Object<string, any>} [properties] Properties of the element; `data` and `aria` are objects of attributes.
 * @param {...(Node | string)} children
 * @returns {any}
 */
export function make(tag, properties = {}, ...children) {
  const { data = {}, aria = {}, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  Object.assign(element.dataset, data);
  for (const [name, value] of Object.entries(aria)) element.setAttribute(`aria-${name}`, value);
  element.append(...children);
  return element;
}

/** Returns the element with an id. @param {string} id @returns {any} */
export function find(id) {
  return document.getElementById(id);
}

/** Creates radio buttons that look like buttons. @param {string} name @param {{value: string, label: string, detail?: string}[]} choices @param {string} chosen */
export function options(name, choices, chosen) {
  return choices.map(({ value, label, detail }) =>
    make("label", { className: "option" },
      make("input", { type: "radio", name, value, checked: value === chosen }),
      make("span", {}, make("b", {}, label), ...(detail ? [make("small", {}, detail)] : []))));
}

/** Creates the elements of a list of terms and values. @param {[string, string][]} pairs */
export function terms(pairs) {
  return pairs.map(([term, value]) => make("div", {}, make("dt", {}, term), make("dd", {}, value)));
}

/** `12.3 MB`. @param {number} bytes */
export function megabytes(bytes) {
  const value = bytes / 1e6;
  return `${value >= 100 ? value.toFixed(0) : value.toFixed(1)} MB`;
}

/** `97.1 %`. @param {number} share */
export function percent(share) {
  return `${share === 1 ? "100" : (100 * share).toFixed(1)} %`;
}

/** `4.1 ms`, `85 ms`, `1.24 s`. @param {number} time In seconds. */
export function milliseconds(time) {
  return time < 0.0995 ? `${(1000 * time).toFixed(time < 0.00995 ? 2 : 1)} ms` : seconds(time);
}

/** `1.24 s`, `85 ms`. @param {number} time */
export function seconds(time) {
  return time >= 1 ? `${time.toFixed(time >= 10 ? 1 : 2)} s` : `${Math.round(1000 * time)} ms`;
}
