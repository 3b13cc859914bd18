/** The tasks, by their Hugging Face names. */
import { InputError } from "../errors.js";
import { featureExtraction } from "./feature_extraction.js";
import { fillMask } from "./fill_mask.js";
import { conversation, text2textGeneration, textGeneration } from "./generation.js";
import { questionAnswering } from "./question_answering.js";
import { sentenceSimilarity } from "./sentence_similarity.js";
import { textClassification } from "./text_classification.js";
import { tokenClassification } from "./token_classification.js";
import { zeroShotClassification } from "./zero_shot_classification.js";
import { zeroShotTokenClassification } from "./zero_shot_token_classification.js";

/** @type {Record<string, import("./shared.js").Task>} */
export const TASKS = {
  "text-classification": textClassification,
  "text-ranking": textClassification,
  "zero-shot-classification": zeroShotClassification,
  "token-classification": tokenClassification,
  "zero-shot-token-classification": zeroShotTokenClassification,
  "question-answering": questionAnswering,
  "fill-mask": fillMask,
  "feature-extraction": featureExtraction,
  "sentence-similarity": sentenceSimilarity,
  "text-generation": textGeneration,
  conversation,
  "text2text-generation": text2textGeneration,
  summarization: text2textGeneration,
  translation: text2textGeneration,
};

/** Tasks that models for another task perform. @type {Record<string, string>} */
const PERFORMED_BY = {
  conversation: "text-generation",
  summarization: "text2text-generation",
  translation: "text2text-generation",
  "text-ranking": "text-classification",
  "zero-shot-classification": "text-classification",
};

/** Returns a task, or throws if a model for another task does not perform it. @param {string} task @param {string} known */
export function checkTask(task, known) {
  if (!(task in TASKS)) throw new InputError(`Unsupported task. Expected one of ${Object.keys(TASKS).join(", ")}. Received: ${task}`);
  if (task === known || (PERFORMED_BY[task] ?? task) === (PERFORMED_BY[known] ?? known)) return task;
  throw new InputError(`This bundle is for ${known}. Received: the task ${task}`);
}
