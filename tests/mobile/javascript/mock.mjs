/** The engines of the vectors: the mock model, and recorded outputs; mobile/vectors/README.md describes both. */

const mix = (hashed, value) => {
  hashed = Math.imul(hashed ^ value, 0x9e3779b1);
  hashed = Math.imul(hashed ^ (hashed >>> 15), 0x85ebca77);
  return hashed ^ (hashed >>> 13);
};

export class Mock {
  constructor(model) {
    Object.assign(this, model);
  }

  start(encoder) {
    return encoder === null ? this.seed : [...encoder, 0xffffffff].reduce(mix, this.seed);
  }

  logits(start, history) {
    const hashed = history.slice(-this.order).reduce(mix, start);
    return Float32Array.from({ length: this.vocab_size }, (_, token) => (mix(hashed, token) >>> 8) / 1048576 - 8);
  }
}

/** The model behind the interface `Step`. @param {Mock} mock */
export function mockStep(mock) {
  const isEncoderDecoder = mock.encoder_capacity !== undefined;
  return {
    isEncoderDecoder,
    capacity: mock.capacity,
    encoderCapacity: mock.encoder_capacity,
    vocabSize: mock.vocab_size,
    start: async (ids) => (isEncoderDecoder ? { start: mock.start(ids), ids: [] } : { start: mock.start(null), ids: ids.slice(0, -1) }),
    resume: async ({ start, ids }, length, more) => ({ start, ids: [...ids.slice(0, length), ...more] }),
    step: async (token, { start, ids }) => {
      const state = { start, ids: [...ids, token] };
      return { logits: mock.logits(start, state.ids), state };
    },
    release: () => {},
    memory: () => 0,
    close: () => {},
  };
}

/** An encoder that has read some texts before. @param {any[]} recorded @param {number} maxLength */
export function mockForward(recorded, maxLength) {
  return {
    maxLength,
    run: async ({ ids, segments, ...slots }) => {
      const read = { ids, types: segments.some(Boolean) ? segments : undefined, ...slots };
      const fields = ["ids", "types", "word_slots", "label_slots"];
      const found = recorded.find((row) => fields.every((name) => String(row[name]) === String(read[name])));
      if (!found) throw new Error(`This text was not recorded. Received: ${JSON.stringify(read)}`);
      return Object.fromEntries(Object.entries(found.outputs).map(([name, { values }]) => [name, Float32Array.from(values)]));
    },
    memory: () => 0,
    close: () => {},
  };
}
