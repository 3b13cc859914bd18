/** Chat templates: conversations to text, as `Tokenizer.apply_chat_template` of the Python package. */
import { InputError, TokenizerError } from "../errors.js";
import { render } from "./limited_template.js";

/** @typedef {Record<string, any>} Message A message, such as `{ role: "user", content: "Hello" }`. */

/** Names of special tokens, which are variables of a template. */
const SPECIAL_TOKENS = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/** White space that Python's `strip` removes. */
const SPACE = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";
/** Methods of strings whose argument the library ignores, as functions of the string and the argument. */
const STRIPS = {
  " strip": (/** @type {any} */ text, /** @type {any} */ characters) => strip(text, characters, true, true),
  " lstrip": (/** @type {any} */ text, /** @type {any} */ characters) => strip(text, characters, true, false),
  " rstrip": (/** @type {any} */ text, /** @type {any} */ characters) => strip(text, characters, false, true),
};
/** Roles that every template may get; a template may name others. */
const ROLES = ["system", "developer", "user", "assistant", "tool", "function"];
const REASONING = ["reasoning_content", "thinking", "reasoning"];

export class ChatTemplate {
  /**
   * @param {any} library The module `@huggingface/jinja`.
   * @param {any} template Value of `chat_template` in `tokenizer_config.json`: a template, or a list of named ones, of which
   *   `default` is used, and `tool_use` if tools are given.
   * @param {import("./tokenizer.js").Tokenizer} tokenizer
   * @throws {TokenizerError} The template is damaged, or none of several is the default one.
   */
  constructor(library, template, tokenizer) {
    const named = Array.isArray(template) ? template : [{ name: "default", template }];
    const source = (/** @type {string} */ wanted) => named.find(({ name }) => name === wanted)?.template;
    this.library = library;
    this.tokenizer = tokenizer;
    this.parsed = parse(library, source("default"));
    this.parsedForTools = source("tool_use") === undefined ? this.parsed : parse(library, source("tool_use"));
    this.source = source("default");
    this.sourceForTools = source("tool_use") ?? this.source;
  }

  /**
   * The text of a conversation.
   * @param {Message[]} messages
   * @param {Record<string, any>} [options] `add_generation_prompt`, `tools`, `documents`, and further variables of the template.
   * @throws {InputError} The template refuses the conversation, exceeds a limit, or uses an operation that the library lacks.
   */
  render(messages, options = {}) {
    const named = SPECIAL_TOKENS.map((name) => [name, this.tokenizer.named(name)]).filter(([, token]) => token !== null);
    const given = { tools: null, documents: null, add_generation_prompt: false, ...Object.fromEntries(named), ...options };
    checkObjects("tools", given.tools);
    checkObjects("documents", given.documents);
    const conversation = checked(messages).map(withReasoning);
    const [parsed, source] = given.tools?.length ? [this.parsedForTools, this.sourceForTools] : [this.parsed, this.source];
    const text = best(conversation, (messages) => render(this.library, parsed, { ...STRIPS, ...given, messages }));
    checkRoles(conversation, source);
    return text;
  }

  /** The tokens of a prompt for an answer. @param {Message[]} messages @param {Record<string, any>} [options] @returns {number[]} */
  prompt(messages, options = {}) {
    return this.encode(this.render(messages, { add_generation_prompt: true, ...options }));
  }

  /** The token that the template puts after an answer, or `null` if there is none. @returns {number | null} */
  get turnEnd() {
    const answer = "Kerasformer";
    let text;
    try {
      text = this.render([{ role: "user", content: answer }, { role: "assistant", content: answer }]);
    } catch {
      return null; // a template for other roles
    }
    const after = text.slice(text.lastIndexOf(answer) + answer.length).trimStart();
    const first = after ? this.encode(after)[0] : undefined;
    return first !== undefined && this.tokenizer.isAdded(first) && (this.tokenizer.token(first) ?? "").trim() ? first : null;
  }

  /** @param {string} text @returns {number[]} */
  encode(text) {
    return this.tokenizer.encode(text, null, false).map(({ id }) => id);
  }
}

/** Parses a template. @param {any} library @param {any} source */
function parse(library, source) {
  if (typeof source !== "string") throw new TokenizerError("chat_template must be a template, or a list with one that is called default");
  try {
    const { parsed } = new library.Template(source);
    replaceStrips(parsed);
    return parsed;
  } catch (error) {
    throw new TokenizerError(`The chat template cannot be used in a browser: ${error}`, { cause: error });
  }
}

/**
 * Renders a conversation with the keys that are `null`, or else without those that the template cannot read: with those of the
 * content alone, then with none.
 * @param {Message[]} conversation @param {(messages: Message[]) => string} write
 */
function best(conversation, write) {
  /** @param {string[]} kept */
  const without = (...kept) => conversation.map((message) => {
    return Object.fromEntries(Object.entries(message).filter(([name, value]) => value !== null || kept.includes(name)));
  });
  const hasNull = conversation.some((message) => Object.values(message).includes(null));
  const texts = [];
  let failure;
  for (const messages of hasNull ? [conversation, without("content"), without()] : [conversation]) {
    try {
      texts.push(write(messages));
    } catch (error) {
      failure ??= error;
    }
  }
  if (!texts.length) {
    throw new InputError(`The chat template failed: ${/** @type {any} */ (failure).message}`, { cause: failure });
  }
  const counts = texts.map((text) => (text.match(/None|null/g) ?? []).length);
  return texts[counts.indexOf(Math.min(...counts))];
}

/** Returns messages without keys that are undefined. @param {any} messages @returns {Message[]} */
function checked(messages) {
  if (!Array.isArray(messages) || !messages.length) {
    throw new InputError(`A conversation must be a list of messages. Received: ${JSON.stringify(messages)}`);
  }
  return messages.map((message, index) => {
    if (typeof message?.role !== "string") {
      throw new InputError(`Message ${index} must have a role, such as { role: "user", content: "Hello" }. Received: ${JSON.stringify(message)}`);
    }
    return Object.fromEntries(Object.entries(message).filter(([, value]) => value !== undefined));
  });
}

/** Checks roles that the template did not refuse; most templates write any role as it is. @param {Message[]} messages @param {string} source */
function checkRoles(messages, source) {
  for (const [index, { role }] of messages.entries()) {
    if (ROLES.includes(role) || source.includes(`'${role}'`) || source.includes(`"${role}"`)) continue;
    const expected = `${ROLES.join(", ")}, or another one that the chat template names`;
    throw new InputError(`Message ${index} has an unknown role. Expected one of ${expected}. Received: ${JSON.stringify(role)}`);
  }
}

/** @param {string} name @param {any} value */
function checkObjects(name, value) {
  if ((value ?? null) === null) return;
  if (Array.isArray(value) && value.every((each) => each && typeof each === "object")) return;
  throw new InputError(`${name} must be a list of objects, or null. Received: ${JSON.stringify(value)?.slice(0, 80)}`);
}

/** Adds a message's reasoning under the names that templates read. @param {Message} message @returns {Message} */
function withReasoning(message) {
  const name = REASONING.find((each) => (message[each] ?? null) !== null);
  return name === undefined ? message : { thinking: message[name], ...message, reasoning_content: message[name] };
}

/**
 * Removes characters from the ends of a text, as Python's `strip`.
 * @param {any} text @param {any} characters By default, white space. @param {boolean} start @param {boolean} end
 */
function strip(text, characters, start, end) {
  characters ??= SPACE;
  if (typeof text !== "string" || typeof characters !== "string") throw new Error("strip() needs a text, and optionally a text of characters");
  const [letters, removed] = [[...text], new Set(characters)];
  let [first, last] = [0, letters.length];
  while (start && first < last && removed.has(letters[first])) first++;
  while (end && first < last && removed.has(letters[last - 1])) last--;
  return letters.slice(first, last).join("");
}

/**
 * Replaces calls of the methods in `STRIPS` by calls of these functions. Their names begin with a space, so that no
 * variable of a template has them.
 * @param {any} node A node of a parsed template, or a list of nodes.
 */
function replaceStrips(node) {
  if (typeof node !== "object" || node === null) return;
  Object.values(node).forEach(replaceStrips);
  const name = node.type === "CallExpression" && node.callee.type === "MemberExpression" && !node.callee.computed && ` ${node.callee.property.value}`;
  if (name && name in STRIPS) {
    node.args.unshift(node.callee.object);
    node.callee = { type: "Identifier", value: name };
  }
}
