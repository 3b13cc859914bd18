/**
 * Evaluation of chat templates within the limits of `kerasformer.tokenization.chat_templates.sandbox`: on time, and on the size of each value.
 * A value is measured after it was computed; JavaScript itself limits a text to some hundred million characters.
 */

const MAX_SECONDS = 2;
const MAX_CHARACTERS = 2_000_000;
const MAX_ITEMS = 100_000;
/** Number of characters that an item counts as, since it takes as much memory and time. */
const ITEM_SIZE = 8;

/**
 * Renders a template.
 * @param {any} library The module `@huggingface/jinja`.
 * @param {any} parsed A parsed template. @param {Record<string, any>} variables
 * @returns {string}
 * @throws {Error} The template fails, or exceeds a limit.
 */
export function render(library, parsed, variables) {
  const environment = new library.Environment();
  for (const [name, value] of Object.entries({ ...globals(library), ...variables })) environment.set(name, value);
  return new (limited(library.Interpreter))(environment).run(parsed).value;
}

/** The variables of every template. @param {any} library @returns {Record<string, any>} */
function globals(library) {
  const now = new library.Template("{{ strftime_now(form) }}");
  return {
    true: true, True: true, false: false, False: false, none: null, None: null,
    range,
    raise_exception: (/** @type {string} */ message) => {
      throw new Error(message);
    },
    strftime_now: (/** @type {string} */ form) => now.render({ form }),
  };
}

/** The function `range` of Python. @param {...number} limits */
function range(...limits) {
  const [start, stop, step] = limits.length === 1 ? [0, limits[0], 1] : [...limits, 1];
  const count = Math.max(Math.ceil((stop - start) / step), 0);
  if (!(count <= MAX_ITEMS)) throw new Error(`range(${limits}) has more than ${shown(MAX_ITEMS)} items`);
  return Array.from({ length: count }, (_, index) => start + index * step);
}

/** A class of interpreters whose evaluations are limited. @param {any} Interpreter @returns {any} */
function limited(Interpreter) {
  return class extends Interpreter {
    deadline = performance.now() + 1000 * MAX_SECONDS;

    /** @param {any} node A node of the parsed template. @param {any} environment */
    evaluate(node, environment) {
      if (performance.now() > this.deadline) throw new Error(`it runs for more than ${MAX_SECONDS} seconds, the limit`);
      const value = super.evaluate(node, environment);
      if (node?.type !== "Identifier") checkSize(value);
      return value;
    }

    /** Refuses to write an undefined value as `null`. @param {any} value @param {any} filter @param {any} environment */
    applyFilter(value, filter, environment) {
      if ((filter.callee ?? filter).value === "tojson") {
        checkSize(value); // it may be cyclic
        for (const part of parts(value)) if (part?.type === "UndefinedValue") throw new Error("tojson of an undefined value");
      }
      return super.applyFilter(value, filter, environment);
    }
  };
}

/** Checks that the texts and items of a value together do not exceed the limit; also of shared and cyclic ones. @param {any} value */
function checkSize(value) {
  let size = 0;
  for (const part of parts(value)) {
    size += ITEM_SIZE + (typeof part?.value === "string" ? part.value.length : 0);
    if (size > MAX_CHARACTERS) throw new Error(`it creates a value of more than ${shown(MAX_CHARACTERS)} characters, the limit`);
  }
}

/** Yields a value, its items, their items, and so on. @param {any} value A value of the library. @returns {Generator<any>} */
function* parts(value) {
  const rest = [value];
  while (rest.length) {
    const part = rest.pop();
    yield part;
    if (Array.isArray(part?.value) || part?.value instanceof Map) for (const item of part.value.values()) rest.push(item);
  }
}

/** @param {number} limit */
const shown = (limit) => limit.toLocaleString("en-US");
