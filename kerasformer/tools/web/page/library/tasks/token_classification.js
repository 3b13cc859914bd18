/** Token classification: entities such as names, with their offsets in the text. */
import { InputError } from "../errors.js";
import { LENGTH, bestLocations, chunksOf, forwardAll, oneOf } from "./chunks.js";
import { checkText, rows, withDefaults, softmax } from "./shared.js";

const STRATEGIES = ["none", "simple", "first", "average", "max"];

/** @typedef {import("./shared.js").Token} Token */

/**
 * A token, or the tokens of a word.
 * @typedef {object} Piece
 * @property {number[]} scores Scores of the classes.
 * @property {number} start Offset of the start, in characters.
 * @property {number} end Offset of the end.
 * @property {number} index Index of the first token.
 * @property {number} word
 */

/** Returns the entities of a text: single tokens, or groups of tokens. @type {import("./shared.js").Task} */
export async function tokenClassification(bundle, inputs, options, controls) {
  const defaults = { aggregation_strategy: "none", ignore_labels: ["O"], ...LENGTH, combine: "tokens" };
  const settings = withDefaults(options, defaults);
  const strategy = oneOf("aggregation_strategy", settings.aggregation_strategy, STRATEGIES);
  const byEntities = oneOf("combine", settings.combine, ["tokens", "entities"]) === "entities";
  if (byEntities && strategy === "none") {
    throw new InputError('combine: "entities" needs an aggregation_strategy other than none, which returns tokens. Received: none');
  }
  const ignored = settings.ignore_labels;
  const text = checkText(inputs);
  const { chunks, figures } = chunksOf(bundle, text, settings);
  const outputs = await forwardAll(bundle, chunks, controls);
  const scores = outputs.map(({ logits }, chunk) => rows(logits, chunks[chunk].length).map(softmax));
  const characters = Array.from(text);
  const between = (/** @type {number} */ start, /** @type {number} */ end) => characters.slice(start, end).join("");
  const locations = bestLocations(chunks);
  if (strategy === "none") return { result: single(pieces(locations)), figures };
  if (!byEntities || chunks.length === 1) return { result: grouped(pieces(locations)), figures };
  const found = chunks.map((tokens, chunk) => grouped(pieces(tokens.map((token, index) => ({ chunk, index, token })))));
  return { result: withoutOverlaps(found.flat()), figures };

  /** @param {{ chunk: number, index: number, token: Token }[]} locations @returns {Piece[]} */
  function pieces(locations) {
    return locations
      .filter(({ token: { sequence } }) => sequence >= 0)
      .map(({ chunk, index, token: { offsets: [start, end], word, position } }) => {
        return { scores: scores[chunk][index], start, end, index: position, word };
      });
  }

  /** @param {Piece[]} pieces */
  function single(pieces) {
    return pieces
      .map((piece) => ({ ...piece, entity: bundle.manifest.info.labels[best(piece.scores)] }))
      .filter(({ entity }) => !ignored.includes(entity))
      .map(({ entity, scores, index, start, end }) => {
        return { entity, score: Math.max(...scores), index, word: between(start, end), start, end };
      });
  }

  /** @param {Piece[]} pieces */
  function grouped(pieces) {
    const decided = strategy === "simple" ? pieces : wordsOf(pieces).map((tokens) => merged(tokens, strategy));
    const { labels } = bundle.manifest.info;
    const places = placesOf(labels);
    return groups(decided, labels, places)
      .map((group) => {
        const { start } = group[0];
        const { end } = group[group.length - 1];
        const label = split(labels[best(group[0].scores)], places)[1];
        const score = mean(group.map(({ scores }) => Math.max(...scores)));
        return { entity_group: label, score, word: between(start, end), start, end };
      })
      .filter((entity) => !ignored.includes(entity.entity_group));
  }
}

/**
 * The longest of overlapping entities; of equally long ones, that with the highest score.
 * @param {{ entity_group: string, score: number, word: string, start: number, end: number }[]} entities
 */
function withoutOverlaps(entities) {
  /** @type {typeof entities} */
  const kept = [];
  for (const entity of entities.toSorted((a, b) => a.start - b.start)) {
    const last = kept[kept.length - 1];
    if (!last || entity.start >= last.end) kept.push(entity);
    else {
      const longer = entity.end - entity.start - (last.end - last.start);
      if (longer > 0 || (longer === 0 && entity.score > last.score)) kept[kept.length - 1] = entity;
    }
  }
  return kept;
}

/** Letters before a hyphen that are places in entities, of each scheme. */
const SCHEMES = ["BIES", "BMES", "BILU"];

/** The letters that are places in entities: `B` and `I`, and those of a scheme that has all letters. @param {string[]} labels */
function placesOf(labels) {
  const found = labels.filter((label) => label[1] === "-").map((label) => label[0]);
  const known = found.some((letter) => "BI".includes(letter));
  const scheme = SCHEMES.find((each) => known && found.every((letter) => each.includes(letter)));
  return `BI${scheme ?? ""}`;
}

/** Groups neighbouring pieces of one entity. @param {Piece[]} pieces @param {string[]} labels @param {string} places */
function groups(pieces, labels, places) {
  /** @type {Piece[][]} */
  const entities = [];
  let [lastPlace, last] = ["", ""];
  for (const piece of pieces) {
    const [place, label] = split(labels[best(piece.scores)], places);
    if (!entities.length || "BSU".includes(place) || "ESLU".includes(lastPlace) || label !== last) entities.push([]);
    entities[entities.length - 1].push(piece);
    [lastPlace, last] = [place, label];
  }
  return entities;
}

/** Splits `"B-PER"` into `["B", "PER"]`; labels without a place get `"I"`. @param {string} label @param {string} places */
function split(label, places) {
  return label[1] === "-" && places.includes(label[0]) ? [label[0], label.slice(2)] : ["I", label];
}

/** Groups tokens by words. @param {Piece[]} pieces @returns {Piece[][]} */
function wordsOf(pieces) {
  /** @type {Piece[][]} */
  const words = [];
  for (const piece of pieces) {
    const word = words[words.length - 1];
    if (word && word[0].word === piece.word) word.push(piece);
    else words.push([piece]);
  }
  return words;
}

/** Merges the tokens of a word into one piece. @param {Piece[]} tokens @param {string} strategy @returns {Piece} */
function merged(tokens, strategy) {
  const moreCertain = (/** @type {Piece} */ a, /** @type {Piece} */ b) => (Math.max(...b.scores) > Math.max(...a.scores) ? b : a);
  let { scores } = tokens[0];
  if (strategy === "max") scores = tokens.reduce(moreCertain).scores;
  if (strategy === "average") scores = scores.map((_, label) => mean(tokens.map((token) => token.scores[label])));
  return { ...tokens[0], scores, end: tokens[tokens.length - 1].end };
}

/** @param {number[]} scores */
const best = (scores) => scores.indexOf(Math.max(...scores));

/** @param {number[]} values */
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
