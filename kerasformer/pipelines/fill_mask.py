"""Masked token prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer.basics.arguments import Arguments, check, integer, one_of, sequence
from kerasformer.errors import GenerationError, InputError, TokenizerError
from kerasformer.generation import GenerationConfig
from kerasformer.generation.generation_config import SAMPLING_SETTINGS
from kerasformer.generation.samplers import sampler_of
from kerasformer.pipelines.answers import FilledText, Filling
from kerasformer.pipelines.base import LengthOptions, Pipeline, softmax
from kerasformer.pipelines.inputs import map_inputs, read_inputs, read_text
from kerasformer.pipelines.mask_filling import FillMethod, Gaps, gibbs, mask_predict


class FillMaskPipeline(Pipeline):
    """Predicts the most probable tokens for each mask token of a text, or fills all of them together (`fill`)."""

    def __call__(
        self,
        inputs: object,
        *,
        top_k: int = 5,
        batch_size: int = 8,
        truncation: bool = False,
        progress: bool = False,
    ) -> Any:
        """Fills mask tokens.

        Args:
            inputs: A text with mask tokens (`pipe.tokenizer.mask_token`), a list or an array of texts, or another
                iterable, which is read lazily.
            top_k: Number of tokens to return for each mask token.
            batch_size: Number of texts in one call of the model.
            truncation: Whether to truncate texts that exceed the model's maximum length, with a warning, instead of
                raising an error.
            progress: Whether to show a progress bar on standard error.

        Returns:
            For a text with one mask token, a list of `{"score", "token", "token_str", "sequence"}`. With several mask
            tokens, a list of such lists, whose sequences keep the other mask tokens and all special tokens. For a list
            of texts, a list of results; for another iterable, an iterator.

        Raises:
            CapacityError: a text is too long.
            InputError: a text has no mask token.
            TokenizerError: the tokenizer has no mask token.
        """
        checked, options = read_inputs(inputs, read_text), LengthOptions(truncation, in_chunks=False)
        top_k = check("top_k", top_k, integer(1))
        self._mask_token()  # refuses a tokenizer without one

        def answer(part: Sequence[str]) -> list[list[Filling] | list[list[Filling]]]:
            encoded = self._encode(part, options)
            logits = self._run(encoded, batch_size)["logits"]
            rows = zip(part, encoded.input_ids, encoded.attention_mask > 0, logits, strict=True)
            return [self._filled(text, ids[real], scores[real], top_k) for text, ids, real, scores in rows]

        return map_inputs(checked, answer, batch_size=batch_size, progress=progress, label=self.task)

    def fill(
        self,
        text: str,
        *,
        method: FillMethod = "mask_predict",
        iterations: int = 10,
        lengths: Sequence[int] | None = None,
        seed: int | None = None,
        **sampling: Any,
    ) -> FilledText:
        """Fills all mask tokens of a text together, so that they fit each other; a text of masks alone is generated.

            pipe.fill("The [MASK] [MASK] [MASK] on the sea.")
            pipe.fill("The captain [MASK] the ship.", lengths=range(1, 6))

        Args:
            text: A text with mask tokens.
            method: `"mask_predict"` fills all masks at once, and then in each iteration fewer of them again, those with
                the least probable tokens; `"gibbs"` samples one token after the other, given all others, in random
                order.
            iterations: Number of iterations; of Gibbs sampling, each visits all masks.
            lengths: Numbers of tokens to try for each mask, of which that with the best score is returned; by default,
                one token fills a mask.
            seed: Seed of Gibbs sampling.
            sampling: Settings of Gibbs sampling, such as `temperature=0.8` or `top_k=40`: those of `GenerationConfig`
                that greedy search ignores.

        Returns:
            `{"sequence", "score", "tokens", "steps"}`. Special tokens are never chosen.

        Raises:
            CapacityError: the text is too long.
            GenerationError: an invalid setting, or one that is not of sampling.
            InputError: the text has no mask token, or settings of sampling for mask-predict.
            TokenizerError: the tokenizer has no mask token.
        Reference: Ghazvininejad et al. 2019, arXiv:1904.09324; Wang and Cho 2019, arXiv:1902.04094.
        """
        text, method = read_text(text), check("method", method, one_of("mask_predict", "gibbs"))
        count = check("iterations", iterations, integer(1))
        if method != "gibbs" and (sampling or seed is not None):
            names = ", ".join([*sampling, *(["seed"] if seed is not None else [])])
            raise InputError(f"Settings of sampling are for method='gibbs'. Received: {names} for {method!r}")
        config = _sampling(sampling, seed)
        mask = self._mask_token()
        if mask not in text:
            raise self._without_mask(text)
        masks = (1,) if lengths is None else check("lengths", lengths, sequence(integer(1), least=1))
        random = np.random.default_rng(config.seed)
        answers = [
            self._filled_together(text.replace(mask, mask * number), method, count, config, random) for number in masks
        ]
        return max(answers, key=lambda answer: answer["score"])

    def _mask_token(self) -> str:
        if self.tokenizer.mask_token_id is None:
            raise TokenizerError("fill-mask needs a tokenizer with a mask token. Received: one without")
        return str(self.tokenizer.mask_token)

    def _without_mask(self, text: str) -> InputError:
        return InputError(f"The text has no {self.tokenizer.mask_token} to fill. Received: {text!r}")

    def _filled_together(
        self, text: str, method: str, iterations: int, config: GenerationConfig, random: np.random.Generator
    ) -> FilledText:
        encoded = self._encode([text], LengthOptions(in_chunks=False))
        excluded = np.array(sorted(token for token in self.tokenizer.all_special_ids if token < self.info.vocab_size))
        gaps = Gaps.of(encoded.input_ids[0], int(self.tokenizer.mask_token_id or 0), excluded)
        arrays = {name: array for name, array in encoded.inputs.items() if name in self.info.input_names}

        def scores(ids: np.ndarray) -> np.ndarray:
            return self._finite(self._forward().run({**arrays, "input_ids": ids[None]}))["logits"][0]

        rounds = (
            mask_predict(gaps, scores, iterations)
            if method == "mask_predict"
            else gibbs(gaps, scores, iterations, sampler_of(config), random)
        )
        steps = [self.tokenizer.decode(gaps.ids, skip_special_tokens=True) for _ in rounds]
        return {"sequence": steps[-1], "score": gaps.score, "tokens": gaps.ids[gaps.places].tolist(), "steps": steps}

    def _filled(
        self, text: str, ids: np.ndarray, logits: np.ndarray, top_k: int
    ) -> list[Filling] | list[list[Filling]]:
        gaps = np.flatnonzero(ids == self.tokenizer.mask_token_id)
        if not len(gaps):
            raise self._without_mask(text)
        answers = []
        for gap in gaps.tolist():
            scores = softmax(logits[gap])
            best = np.argsort(-scores, kind="stable")[:top_k].tolist()
            answers.append([self._choice(ids, gap, token, scores, len(gaps) == 1) for token in best])
        return answers[0] if len(answers) == 1 else answers

    def _choice(self, ids: np.ndarray, gap: int, token: int, scores: np.ndarray, only: bool) -> Filling:
        filled = ids.copy()
        filled[gap] = token
        return {
            "score": float(scores[token]),
            "token": token,
            "token_str": self.tokenizer.decode([token]),
            "sequence": self.tokenizer.decode(filled, skip_special_tokens=only),
        }


def _sampling(settings: Arguments, seed: int | None) -> GenerationConfig:
    """Returns settings with those of sampling alone, since Gibbs sampling has neither rules nor beams."""
    if others := sorted(set(settings) - SAMPLING_SETTINGS):
        raise GenerationError(
            "fill takes settings of sampling only. "
            f"Expected: {', '.join(sorted(SAMPLING_SETTINGS))}. Received: {', '.join(others)}"
        )
    return GenerationConfig().replace(**settings, seed=seed, do_sample=True)
