// The worker that computes, as promises. See library/README.md for its messages.

/** An error that the worker told of; `name` is the one of Python, such as `"CapacityError"`. */
export class EngineError extends Error {
  /** @param {string} name @param {string} message @param {{most?: number, received?: number}} [tokens] Of a text that is too long. */
  constructor(name, message, { most, received } = {}) {
    super(message);
    Object.assign(this, { name, most, received });
  }
}

export class Engine {
  #worker = null;
  #last = 0;
  #waiting = new Map(); // id -> {resolve, reject, onProgress, onToken}

  /**
   * Opens a bundle; the one before it is closed.
   * @param {{base: string, engine: string, threads: number}} wanted
   * @param {(progress: {stage: string, file: string, loaded: number, total: number}) => void} onProgress
   * @returns {Promise<{info: any, seconds: number, bytes: number}>}
   */
  load(wanted, onProgress) {
    return this.#ask({ type: "load", ...wanted }, { onProgress });
  }

  /**
   * Answers.
   * @param {any} inputs
   * @param {Object} options
   * @param {(text: string) => void} onToken
   * @returns {Promise<{result: any, figures: any}>}
   */
  run(inputs, options, onToken) {
    return this.#ask({ type: "run", inputs, options }, { onToken });
  }

  /** Ends what is under way: a generation gives what it has, anything else ends with an `AbortError`. */
  cancel() {
    for (const id of this.#waiting.keys()) this.#worker.postMessage({ type: "cancel", id });
  }

  /** Ends the worker at once, with whatever memory it holds. */
  end(error = new EngineError("AbortError", "The engine was stopped.")) {
    this.#worker?.terminate();
    this.#worker = null;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  #ask(message, callbacks) {
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, ...callbacks });
      this.#started().postMessage({ ...message, id });
    });
  }

  #started() {
    if (this.#worker === null) {
      this.#worker = new Worker("worker.js");
      this.#worker.onmessage = ({ data }) => this.#heard(data);
      this.#worker.onerror = (event) => {
        event.preventDefault();
        const what = event.message ? `: ${event.message}` : ", for a file of the page is missing";
        this.end(new EngineError("RuntimeError", `the engine ended${what}.`));
      };
    }
    return this.#worker;
  }

  #heard(message) {
    const asked = this.#waiting.get(message.id);
    if (!asked) return; // of a question that was given up
    if (message.type === "progress") asked.onProgress?.(message);
    else if (message.type === "token") asked.onToken?.(message.text);
    else {
      this.#waiting.delete(message.id);
      if (message.type === "error") asked.reject(new EngineError(message.name, message.message, message));
      else asked.resolve(message);
    }
  }
}
