/** Text generation and text-to-text generation. */
import { InputError, throwIfAborted } from "../errors.js";
import { beamSearch } from "../decoding/beams.js";
import { generate } from "../decoding/loop.js";
import { plan } from "../decoding/plan.js";
import { settle } from "../decoding/settings.js";
import { TextStream } from "../tokenization/streaming.js";
import { whole } from "./chunks.js";
import { defaultPrefix, spoken } from "./languages.js";
import { checkText } from "./shared.js";

/** @typedef {import("./shared.js").Bundle} Bundle */
/** @typedef {import("./shared.js").Controls} Controls */

const KEYS = /** @type {Record<string, string>} */ ({
  summarization: "summary_text",
  translation: "translation_text",
});

/** Maximum number of tokens of an answer, unless the settings limit it. */
const ANSWER_TOKENS = 256;

/** Continues a text; returns `[{ generated_text }]`. @type {import("./shared.js").Task} */
export async function textGeneration(bundle, inputs, options, controls) {
  const { return_full_text: full = true, ...settings } = options;
  const prompt = checkText(inputs, "prompt");
  const ids = bundle.tokenizer.encode(defaultPrefix(bundle.info, "text-generation") + prompt).map(({ id }) => id);
  if (!ids.length) {
    throw new InputError(`A prompt needs at least one token. Received: ${JSON.stringify(prompt)}`);
  }
  const { text, figures } = await generateText(bundle, ids, settings, controls);
  return { result: [{ generated_text: (full ? prompt : "") + text }], figures };
}

/**
 * Answers the last message of a conversation, a list of `{ role, content }`; returns `[{ generated_text }]` with all messages and
 * the answer. The answer also ends with the token that the chat template puts after it. Only the tokens after those that the
 * conversation has in common with the last one are read.
 * @type {import("./shared.js").Task}
 */
export async function conversation(bundle, inputs, options, controls) {
  const { return_full_text: full = true, tools = null, documents = null, chat_template_kwargs: variables = {}, ...settings } = options;
  const { chat, manifest: { info } } = bundle;
  if (!chat) throw new InputError("This model has no chat template, since it was trained to continue text. Pass a text");
  const ids = chat.prompt(inputs, { ...variables, tools, documents });
  const own = settings.eos_token_id ?? null;
  const ends = new Set([info.generation.eos_token_id ?? [], info.eos_token_id ?? [], chat.turnEnd ?? []].flat());
  const limited = { ...info.generation, ...settings };
  const length = limited.max_new_tokens == null && limited.max_length == null ? { max_new_tokens: ANSWER_TOKENS } : {};
  const chosen = { ...length, ...settings, eos_token_id: own ?? [...ends] };
  const { text, figures } = await generateText(bundle, ids, chosen, controls, bundle.conversationCache);
  return { result: [{ generated_text: full ? [...inputs, { role: "assistant", content: text }] : text }], figures };
}

/**
 * Generates a text from another; returns `[{ generated_text }]`, or with the key of the task.
 * @type {import("./shared.js").Task}
 */
export async function text2textGeneration(bundle, inputs, options, controls) {
  const { prefix = null, src_lang = null, tgt_lang = null, truncation = false, ...settings } = options;
  if (checkText(inputs) === "") throw new InputError("An input text was expected. Received: an empty text");
  const given = { ...storedSettings(bundle), ...settings };
  const languages = spoken(bundle, { src_lang, tgt_lang }, prefix, given);
  const { chunks: [tokens], figures: { lost_tokens } } = whole(bundle, languages.prefix + inputs, truncation);
  const ids = languages.mark(tokens.map(({ id }) => id));
  const { text, figures } = await generateText(bundle, ids, settings, controls, null, languages.settings);
  return { result: [{ [KEYS[bundle.info.task] ?? "generated_text"]: text }], figures: { ...figures, lost_tokens } };
}

/** The generation settings of the bundle for its task. @param {Bundle} bundle @returns {Record<string, any>} */
function storedSettings({ info, engine }) {
  return { ...info.generation, ...(engine.isEncoderDecoder ? info.task_settings?.[info.task] : {}) };
}

/**
 * @param {Bundle} bundle @param {number[]} prompt @param {Record<string, any>} settings @param {Controls} controls
 * @param {import("../decoding/prefix_cache.js").PrefixCache | null} [cache] Caches of an earlier text.
 * @param {Record<string, any>} [changes] Changes of the bundle's settings.
 */
async function generateText(bundle, prompt, settings, { onToken = () => {}, signal }, cache = null, changes = {}) {
  const step = /** @type {import("../decoding/plan.js").Step} */ (bundle.engine);
  const stored = { ...storedSettings(bundle), ...changes };
  if (stored.eos_token_id == null) stored.eos_token_id = bundle.info.eos_token_id;
  const config = settle(stored, settings);
  const run = plan(step, prompt, config, (ids) => bundle.tokenizer.writer.decode(ids), signal, cache);
  throwIfAborted(signal);
  const pieces = new Pieces(bundle, step.isEncoderDecoder ? [] : prompt, onToken);
  const started = performance.now();
  let first = started;
  let tokens = 0;
  const generator = config.num_beams > 1 ? searched(run) : generate(run);
  let next = await generator.next();
  for (; !next.done; next = await generator.next()) {
    if (tokens++ === 0) first = performance.now();
    pieces.put(next.value);
  }
  const text = pieces.end();
  const streamed = config.num_beams === 1 && tokens > 1;
  const later = (performance.now() - (streamed ? first : started)) / 1000;
  return {
    text,
    figures: {
      prompt_tokens: prompt.length,
      ...(cache && { reused_tokens: cache.reused }),
      tokens,
      first_token_seconds: (first - started) / 1000,
      tokens_per_second: later > 0 ? (tokens - Number(streamed)) / later : null,
      finish_reason: next.value,
    },
  };
}

/** Yields the tokens of a beam search, which are known only at its end. @param {import("../decoding/plan.js").Plan} run @returns {AsyncGenerator<number, string>} */
async function* searched(run) {
  const { tokens, reason } = await beamSearch(run);
  yield* tokens;
  return reason;
}

/** Decodes the new text piece by piece, in the context of the prompt: a token may start with a space or inside a word. */
class Pieces {
  /** @param {Bundle} bundle @param {number[]} prompt @param {(text: string) => void} onToken */
  constructor({ tokenizer: { writer: tokenizer } }, prompt, onToken) {
    this.stream = new TextStream(tokenizer);
    this.onToken = onToken;
    const before = this.stream.put(prompt);
    this.hidden = tokenizer.decode(prompt, true).length - before.length;
    this.text = "";
  }

  /** @param {number} token */
  put(token) {
    this.show(this.stream.put([token]));
  }

  end() {
    this.show(this.stream.end());
    return this.text;
  }

  /** Passes a piece on, without text that belongs to the prompt. @param {string} piece */
  show(piece) {
    const hidden = Math.min(this.hidden, piece.length);
    this.hidden -= hidden;
    const shown = piece.slice(hidden);
    if (!shown) return;
    this.text += shown;
    this.onToken(shown);
  }
}
