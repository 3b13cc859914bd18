// A promise-based interface to the worker. library/README.md describes the messages.

/** An error that the worker reported; `name` is that of the Python exception, such as `"CapacityError"`. */
export class EngineError extends Error {
  /**
   * @param {string} name @param {string} message
   * @param {{most?: number, received?: number, option?: string}} [tokens] Numbers of tokens, if a text is too long, or an option.
   */
  constructor(name, message, { most, received, option } = {}) {
    super(message);
    Object.assign(this, { name, most, received, option });
  }
}

export class Engine {
  #worker = null;
  #last = 0;
  #requests = new Map(); // id -> {resolve, reject, onProgress, onToken}

  /**
   * Opens a bundle, after closing the open one.
   * @param {{base: string, task: string, engine: string, threads: number, accelerator: string}} request
   * @param {(progress: {stage: string, file: string, loaded: number, total: number}) => void} onProgress
   * @returns {Promise<{info: any, seconds: number, bytes: number}>}
   */
  load(request, onProgress) {
    return this.#send({ type: "load", ...request }, { onProgress });
  }

  /**
   * Runs the model on one input.
   * @param {any} inputs
   * @param {Object} options
   * @param {(text: string) => void} onToken
   * @returns {Promise<{result: any, figures: any}>}
   */
  run(inputs, options, onToken) {
    return this.#send({ type: "run", inputs, options }, { onToken });
  }

  /**
   * Compares answers in this browser with those of the Keras model.
   * @param {any} references The content of the bundle's references.json.
   * @returns {Promise<any>} See `Verdict` in library/reference_check.js.
   */
  async check(references) {
    return (await this.#send({ type: "check", references }, {})).verdict;
  }

  /** Cancels the running requests: a generation returns its text so far, any other request fails with an `AbortError`. */
  cancel() {
    for (const id of this.#requests.keys()) this.#worker.postMessage({ type: "cancel", id });
  }

  /** Terminates the worker at once, and frees its memory. */
  end(error = new EngineError("AbortError", "The engine was stopped.")) {
    this.#worker?.terminate();
    this.#worker = null;
    for (const { reject } of this.#requests.values()) reject(error);
    this.#requests.clear();
  }

  #send(message, callbacks) {
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      this.#requests.set(id, { resolve, reject, ...callbacks });
      this.#started().postMessage({ ...message, id });
    });
  }

  #started() {
    if (this.#worker === null) {
      this.#worker = new Worker("worker.js");
      this.#worker.onmessage = ({ data }) => this.#receive(data);
      this.#worker.onerror = (event) => {
        event.preventDefault();
        const reason = event.message || "a file of the page is missing";
        this.end(new EngineError("RuntimeError", `The worker stopped: ${reason}`));
      };
    }
    return this.#worker;
  }

  #receive(message) {
    const request = this.#requests.get(message.id);
    if (!request) return; // the request was abandoned
    if (message.type === "progress") request.onProgress?.(message);
    else if (message.type === "token") request.onToken?.(message.text);
    else {
      this.#requests.delete(message.id);
      if (message.type === "error") request.reject(new EngineError(message.name, message.message, message));
      else request.resolve(message);
    }
  }
}
