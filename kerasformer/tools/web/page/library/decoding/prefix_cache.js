/**
 * Reuse of the caches of a text for a text that starts with the same tokens, as the turns of a conversation do; as in
 * `kerasformer.generation.prefix_cache`.
 */

/** Keeps the caches of the last text; a text with the same first tokens is only read from where it differs. */
export class PrefixCache {
  /** @param {import("./plan.js").Step} step */
  constructor(step) {
    this.step = step;
    /** The state of the last text, and the first tokens in its caches. @type {{ state: any, ids: number[] } | null} */
    this.kept = null;
    /** Number of tokens of the last prompt that were not read again. */
    this.reused = 0;
  }

  /** Reads a prompt, or only its last part; see `Step.start`. @param {number[]} prompt */
  async start(prompt) {
    const { kept } = this;
    this.kept = null; // a state can be resumed once
    const ids = prompt.slice(0, -1);
    const common = kept === null ? 0 : commonLength(ids, kept.ids);
    const state = kept && common ? await this.step.resume(kept.state, common, ids.slice(common)) : null;
    if (kept && !state) this.step.release(kept.state);
    this.reused = state ? common : 0;
    return state ?? this.step.start(prompt);
  }

  /** Keeps a state instead of releasing it. @param {any} state @param {number[]} ids The first tokens in its caches. */
  keep(state, ids) {
    this.clear();
    this.kept = { state, ids };
  }

  /** Frees the caches. */
  clear() {
    if (this.kept) this.step.release(this.kept.state);
    this.kept = null;
  }
}

/** The number of first tokens that two texts have in common. @param {number[]} ids @param {number[]} others */
function commonLength(ids, others) {
  const different = ids.findIndex((id, index) => id !== others[index]);
  return different < 0 ? ids.length : different;
}
