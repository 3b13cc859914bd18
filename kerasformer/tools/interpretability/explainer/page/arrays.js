// Arrays of the record: base64 of small types in little-endian order, with a shape.

const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };

/** Returns the numbers of an array, `{ shape, values }`. */
export function unpacked({ shape, type, data }) {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return { shape, values: new TYPES[type](bytes.buffer) };
}

/** Returns row `index` of the last axis, counted over all axes before it. */
export function row(array, index) {
  const length = array.shape.at(-1);
  return array.values.subarray(index * length, (index + 1) * length);
}
