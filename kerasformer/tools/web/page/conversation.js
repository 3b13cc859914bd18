// The conversation of the page: its messages, and their display.

import { make } from "./elements.js";

const NAMES = { user: "You", assistant: "Answer" };
let messages = [];

/** The messages of the next question. @param {string} system The system prompt, or "". @param {string} text */
export function nextTurn(system, text) {
  const before = messages.filter(({ role }) => role !== "system");
  return [...(system.trim() ? [{ role: "system", content: system }] : []), ...before, { role: "user", content: text }];
}

/** Keeps the messages of an answer for the next question. @param {{role: string, content: string}[]} answered */
export function keep(answered) {
  messages = answered;
}

/** The messages so far, without a question that has no answer. */
export function kept() {
  return messages;
}

/** Starts a new conversation. */
export function reset() {
  messages = [];
}

/** The elements of messages. @param {{role: string, content: string}[]} shown @returns {Node[]} */
export function turns(shown) {
  return shown.filter(({ role }) => role in NAMES).map(({ role, content }) => turn(role, make("p", { className: "text" }, content)));
}

/** The element of a message. @param {"user" | "assistant"} role @param {Node} text */
export function turn(role, text) {
  return make("div", { className: `turn ${role}` }, make("p", { className: "muted small" }, NAMES[role]), text);
}
