// The controls of a generation, and what they say in the names of kf.pipeline.

import { find, make, options } from "./elements.js";
import { FieldError } from "./failures.js";
import { complaint, mend } from "./questions.js";

/** Controls in their order; those with `only` count in that mode. */
const CONTROLS = [
  { name: "num_beams", label: "Beams", kind: "number", min: 2, max: 16, step: 1, start: 4, only: "beams", help: "Texts side by side; shown at the end" },
  { name: "temperature", label: "Temperature", kind: "range", min: 0.1, max: 2, step: 0.05, start: 0.8, only: "sample" },
  { name: "top_p", label: "Top-p", kind: "range", min: 0.05, max: 1, step: 0.05, start: 0.95, only: "sample" },
  { name: "top_k", label: "Top-k", kind: "number", min: 0, max: 1000, step: 1, start: 50, only: "sample", help: "0: all tokens" },
  { name: "seed", label: "Seed", kind: "number", min: 0, max: 4294967295, step: 1, start: "", only: "sample", help: "Empty: another text each time" },
  { name: "max_new_tokens", label: "Most tokens", kind: "number", min: 1, max: 4096, step: 1, start: 60 },
  { name: "repetition_penalty", label: "Repetition penalty", kind: "number", min: 0.5, max: 3, step: 0.01, start: 1, help: "1: none" },
  { name: "no_repeat_ngram_size", label: "Never repeat runs of", kind: "number", min: 0, max: 20, step: 1, start: 0, help: "So many tokens; 0: allowed" },
  { name: "stop", label: "Stop at this text", kind: "text", start: "" },
];
const MODES = [
  { value: "greedy", label: "Greedy" },
  { value: "beams", label: "Beams" },
  { value: "sample", label: "Sample" },
];

/**
 * Fills the settings with the controls, at the bundle's own values.
 * @param {Object<string, any>} generation Of the model, as in generation_config.json.
 */
export function show(generation) {
  const searches = generation.num_beams > 1;
  const own = { ...generation, num_beams: searches ? generation.num_beams : null };
  const usual = generation.do_sample ? "sample" : searches ? "beams" : "greedy";
  find("settings-fields").replaceChildren(
    make("fieldset", { className: "wide plain" },
      make("legend", {}, "Next token"),
      make("div", { className: "options" }, ...options("mode", MODES, usual))),
    ...CONTROLS.map((control) => (control.kind === "range" ? slider : field)(control, own[control.name] ?? control.start)));
  find("settings-fields").oninput = refresh;
  refresh();
}

/**
 * What the controls say.
 * @returns {Object<string, any>} Settings of a generation.
 * @throws {FieldError} A number is not one that the control takes.
 */
export function settings() {
  const said = { do_sample: mode() === "sample", num_beams: 1 };
  for (const control of CONTROLS.filter(counts)) {
    const input = find(`set-${control.name}`);
    if (!input.checkValidity()) {
      throw new FieldError(input.id, `A number from ${control.min} to ${control.max}, please${input.value && `, not ${input.value}`}.`);
    }
    if (input.value === "") continue;
    if (control.name === "stop") said.stop = [input.value];
    else said[control.name] = Number(input.value);
  }
  return said;
}

/**
 * Settings by the names of their controls, for a link.
 * @param {Object<string, any>} told What `settings` gave.
 * @returns {Object<string, string>}
 */
export function inLink(told) {
  const chosen = told.do_sample ? "sample" : told.num_beams > 1 ? "beams" : "greedy";
  const said = CONTROLS.filter(({ name, only = chosen }) => told[name] !== undefined && only === chosen);
  return { mode: chosen, ...Object.fromEntries(said.map(({ name }) => [name, String(told[name])])) };
}

/** Sets the controls that a link names. @param {Object<string, string>} said */
export function fill(said) {
  const chosen = [...document.getElementsByName("mode")].find((each) => /** @type {any} */ (each).value === said.mode);
  if (chosen) /** @type {any} */ (chosen).checked = true;
  for (const { name } of CONTROLS) if (name in said) find(`set-${name}`).value = said[name];
  refresh();
}

/** A seed by chance, short enough to be typed again. */
export function freshSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0] % 1_000_000;
}

/** Hides what does not count, and sums the choice up in the closed settings. */
function refresh() {
  for (const control of CONTROLS) {
    const input = find(`set-${control.name}`);
    input.closest(".field").hidden = !counts(control);
    const shown = find(`shown-${control.name}`);
    if (shown) shown.textContent = Number(input.value).toFixed(2);
  }
  const how = {
    greedy: "greedy",
    beams: `${find("set-num_beams").value} beams`,
    sample: `sample, temperature ${Number(find("set-temperature").value)}`,
  };
  find("settings-line").textContent = `${how[mode()]}, up to ${find("set-max_new_tokens").value} tokens`;
}

function counts({ only }) {
  return !only || only === mode();
}

function mode() {
  return /** @type {any} */ (document.querySelector("input[name=mode]:checked")).value;
}

function slider({ name, label, min, max, step }, start) {
  return make("div", { className: "field slider" },
    make("label", { htmlFor: `set-${name}` }, label, make("output", { id: `shown-${name}` })),
    make("input", { id: `set-${name}`, type: "range", min, max, step, value: start }));
}

function field({ name, label, kind, min, max, step, help }, start) {
  const limits = kind === "number" ? { min, max, step, inputMode: "decimal" } : { autocomplete: "off" };
  const id = `set-${name}`;
  const input = make("input", { id, type: kind, ...limits, value: start, aria: { describedby: `${help ? `help-${name} ` : ""}error-${id}` }, oninput: () => mend(id) });
  return make("div", { className: "field" },
    make("label", { htmlFor: id }, label), input, complaint(id),
    ...(help ? [make("small", { id: `help-${name}` }, help)] : []));
}
