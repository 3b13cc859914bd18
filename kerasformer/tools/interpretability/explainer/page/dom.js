// Elements of the page. Texts are children, which are set as text and never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element; `attributes` whose names begin with "on" are listeners, and `null` and `false` set none. */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Creates an element of SVG. */
export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [property, set] of Object.entries(value)) node.style.setProperty(property, set);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return node;
}

/** A slider with its name and its value. */
export function slider(name, { min, max, step, value, shown }, change) {
  const output = element("output", {}, shown(value));
  const input = element("input", {
    type: "range", min, max, step, value,
    oninput: () => {
      output.textContent = shown(Number(input.value));
      input.setAttribute("aria-valuetext", shown(Number(input.value)));
      change(Number(input.value));
    },
    "aria-valuetext": shown(value),
  });
  return element("label", { class: "slider" }, element("span", {}, name), output, input);
}

export const percent = (share) => (share >= 0.0995 || share === 0 ? `${(100 * share).toFixed(1)} %` : share >= 0.00095 ? `${(100 * share).toFixed(2)} %` : "< 0.1 %");
export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
