// The controls for text generation; their values are settings named as in kf.pipeline.

import { find, make, options } from "./elements.js";
import { FieldError } from "./failures.js";
import { clearError, errorElement } from "./questions.js";

/** Controls in their order; those with `only` apply only in that mode. `show` limits the number of tokens to what the model holds. */
const CONTROLS = [
  { name: "num_beams", label: "Beams", kind: "number", min: 2, max: 16, step: 1, start: 4, only: "beams", help: "The text appears at the end" },
  { name: "temperature", label: "Temperature", kind: "range", min: 0.1, max: 2, step: 0.05, start: 0.8, only: "sample" },
  { name: "top_p", label: "Top-p", kind: "range", min: 0.05, max: 1, step: 0.05, start: 0.95, only: "sample" },
  { name: "top_k", label: "Top-k", kind: "number", min: 0, max: 1000, step: 1, start: 50, only: "sample", help: "0: all tokens" },
  { name: "seed", label: "Seed", kind: "number", min: 0, max: 4294967295, step: 1, start: "", only: "sample", help: "Empty: a different text each time" },
  { name: "max_new_tokens", label: "Max. new tokens", kind: "number", min: 1, max: 4096, step: 1, start: 60 },
  { name: "repetition_penalty", label: "Repetition penalty", kind: "number", min: 0.5, max: 3, step: 0.01, start: 1, help: "1: off" },
  { name: "no_repeat_ngram_size", label: "Unique n-grams", kind: "number", min: 0, max: 20, step: 1, start: 0, help: "Size in tokens; 0: off" },
  { name: "stop_strings", label: "Stop text", kind: "text", start: "" },
];
const MODES = [
  { value: "greedy", label: "Greedy" },
  { value: "beams", label: "Beams" },
  { value: "sample", label: "Sampling" },
];

let offered = CONTROLS; // with the limits of the model

/**
 * Shows the controls, with the values that the bundle sets.
 * @param {Object<string, any>} generation The settings of the model, as in generation_config.json.
 * @param {number | null} most The most new tokens that the model's cache holds, if it is known.
 */
export function show(generation, most) {
  const limits = most ? { max: most, help: `The model holds at most ${most}` } : {};
  offered = CONTROLS.map((control) => (control.name === "max_new_tokens" ? { ...control, ...limits } : control));
  const searches = generation.num_beams > 1;
  // The stop strings of the model apply where the field is empty.
  const stored = { ...generation, num_beams: searches ? generation.num_beams : null, stop_strings: null };
  const defaultMode = generation.do_sample ? "sample" : searches ? "beams" : "greedy";
  find("settings-fields").replaceChildren(
    make("fieldset", { className: "wide plain" },
      make("legend", {}, "Method"),
      make("div", { className: "options" }, ...options("mode", MODES, defaultMode))),
    ...offered.map((control) => (control.kind === "range" ? slider : field)(control, held(control, stored[control.name] ?? control.start))));
  find("settings-fields").oninput = refresh;
  refresh();
}

/**
 * Reads the controls.
 * @returns {Object<string, any>} Settings of a generation.
 * @throws {FieldError} A number is outside the range of its control.
 */
export function settings() {
  const values = { do_sample: mode() === "sample", num_beams: 1 };
  for (const control of offered.filter(applies)) {
    const input = find(`set-${control.name}`);
    if (!input.checkValidity()) {
      throw new FieldError(input.id, `Enter a number from ${control.min} to ${control.max}.${input.value && ` Received: ${input.value}.`}`);
    }
    if (input.value === "") continue;
    if (control.name === "stop_strings") values.stop_strings = [input.value];
    else values[control.name] = Number(input.value);
  }
  return values;
}

/**
 * Settings by the names of their controls, for a link.
 * @param {Object<string, any>} used The result of `settings`.
 * @returns {Object<string, string>}
 */
export function inLink(used) {
  const usedMode = used.do_sample ? "sample" : used.num_beams > 1 ? "beams" : "greedy";
  const controls = offered.filter(({ name, only = usedMode }) => used[name] !== undefined && only === usedMode);
  return { mode: usedMode, ...Object.fromEntries(controls.map(({ name }) => [name, String(used[name])])) };
}

/** Sets the controls from the values of a link. @param {Object<string, string>} values */
export function fill(values) {
  const radio = [...document.getElementsByName("mode")].find((each) => /** @type {any} */ (each).value === values.mode);
  if (radio) /** @type {any} */ (radio).checked = true;
  for (const control of offered) if (control.name in values) find(`set-${control.name}`).value = held(control, values[control.name]);
  refresh();
}

/** A value of a control, with no more tokens than the model holds: that of a model or of a link may be for another capacity. */
function held({ name, max }, value) {
  return name === "max_new_tokens" && Number(value) > max ? max : value;
}

/** A random seed, short enough to type. */
export function freshSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0] % 1_000_000;
}

/** Hides controls that do not apply, and shows a summary of the settings beside their heading. */
function refresh() {
  for (const control of offered) {
    const input = find(`set-${control.name}`);
    input.closest(".field").hidden = !applies(control);
    const shown = find(`shown-${control.name}`);
    if (shown) shown.textContent = Number(input.value).toFixed(2);
  }
  const summaries = {
    greedy: "greedy",
    beams: `${find("set-num_beams").value} beams`,
    sample: `sampling, temperature ${Number(find("set-temperature").value)}`,
  };
  find("settings-line").textContent = `${summaries[mode()]}, up to ${find("set-max_new_tokens").value} tokens`;
}

function applies({ only }) {
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
  const input = make("input", { id, type: kind, ...limits, value: start, aria: { describedby: `${help ? `help-${name} ` : ""}error-${id}` }, oninput: () => clearError(id) });
  return make("div", { className: "field" },
    make("label", { htmlFor: id }, label), input, errorElement(id),
    ...(help ? [make("small", { id: `help-${name}` }, help)] : []));
}
