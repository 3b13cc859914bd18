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

/** Starts a new conversation. */
export function reset() {
  messages = [];
}

/** The elements of messages. @param {{role: string, content: string}[]} shown @returns {Node[]} */
export function turns(shown) {
  return shown.filter(({ role }) => role in NAMES).map(({ role, content }) => make("div", { className: `turn ${role}` },
    make("p", { className: "muted small" }, NAMES[role]), make("p", { className: "text" }, content)));
}
