/** The tasks, by their Hugging Face names. */
import { featureExtraction } from "./feature_extraction.js";
import { fillMask } from "./fill_mask.js";
import { text2textGeneration, textGeneration } from "./generation.js";
import { questionAnswering } from "./question_answering.js";
import { textClassification } from "./text_classification.js";
import { tokenClassification } from "./token_classification.js";

/** @type {Record<string, import("./shared.js").Task>} */
export const TASKS = {
  "text-classification": textClassification,
  "token-classification": tokenClassification,
  "question-answering": questionAnswering,
  "fill-mask": fillMask,
  "feature-extraction": featureExtraction,
  "text-generation": textGeneration,
  "text2text-generation": text2textGeneration,
  summarization: text2textGeneration,
  translation: text2textGeneration,
};
