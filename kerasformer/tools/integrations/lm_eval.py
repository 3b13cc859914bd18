"""A model of the Language Model Evaluation Harness that scores texts on a bundle or a checkpoint, without a server.

`python -m kerasformer.tools.integrations.lm_eval` is the command `lm-eval` with this model: `--model kerasformer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasformer import telemetry
from kerasformer.basics.arguments import check, integer, optional
from kerasformer.engines import left_padded
from kerasformer.errors import InputError
from kerasformer.extras import require
from kerasformer.pipelines import pipeline
from kerasformer.tools.evaluation.choosing import Row, continuations, open_decoder

require("lm_eval", "lm-eval")

from lm_eval.api.model import TemplateLM  # noqa: E402
from lm_eval.api.registry import register_model  # noqa: E402
from lm_eval.models.utils import Collator, normalize_gen_kwargs, postprocess_generated_text  # noqa: E402
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window  # noqa: E402
from tqdm import tqdm  # noqa: E402


@register_model("kerasformer")
class KerasformerLM(TemplateLM):
    """A decoder-only model on any engine, whose log-likelihoods are those of the harness' model `hf`, up to rounding.

    Args:
        source: Bundle, checkpoint, preset, hub id, or a pipeline for text-generation.
        batch_size: Number of texts in one batch.
        max_length: Length in tokens of the windows of long texts; by default the capacity of the engine.
        max_gen_toks: Number of new tokens if a task has no limit.
        options: Options of the runtime of a bundle, such as `num_threads`. Those that the harness passes to every model
            are ignored: `device` and `max_batch_size`.
    Raises:
        InputError: the model does not generate, or has an encoder; or a limit exceeds the capacity.
        MissingExtraError: lm-eval is not installed.
    """

    def __init__(
        self, source: Any, batch_size: Any = 8, max_length: int | None = None, max_gen_toks: int = 256, **options: Any
    ) -> None:
        super().__init__()
        options = {name: value for name, value in options.items() if name not in ("device", "max_batch_size")}
        self.pipe = source if hasattr(source, "engine") else pipeline(source, "text-generation", **options)
        self.step, self.tokenizer = open_decoder(self.pipe)
        self.batch_size = check("batch_size", int(batch_size) if str(batch_size).isdigit() else batch_size, integer(1))
        self.max_gen_toks, capacity = check("max_gen_toks", max_gen_toks, integer(1)), self.step.capacity
        self.max_length = check("max_length", max_length, optional(integer(2, capacity))) or capacity
        ends = [id_ for id_ in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id) if id_ is not None]
        if not ends:
            raise InputError(
                "A tokenizer with a start or an end token was expected, which precedes texts. Received: none"
            )
        self._first, self._end = ends[0], ends[-1]

    tokenizer_name = property(lambda self: str(self.pipe.info.name), doc="Name of the model, for caches of requests.")
    eot_token_id = property(lambda self: self._end, doc="Id of the end token.")
    prefix_token_id = property(lambda self: self._first, doc="Id of the token before a text without a context.")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Returns the ids of a text; special tokens are added as by the tokenizer, but never a second start token."""
        if add_special_tokens is None:
            add_special_tokens = not string.startswith(self.tokenizer.decode([self._first]))
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Returns the text of a conversation."""
        text = self.tokenizer.apply_chat_template(
            chat_history,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
            tokenize=False,
        )
        return str(text)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        # The last token is not read, so that there may be one more.
        rows: list[Row] = [(context[len(text) - self.max_length - 1 :], text) for _, context, text in requests]
        if wrong := [len(text) for _, text in rows if not 1 <= len(text) <= self.max_length]:
            raise InputError(f"A text after a context must have 1 to {self.max_length} tokens. Received: {wrong[0]}")
        with tqdm(total=len(rows), disable=disable_tqdm, desc="Running loglikelihood requests") as bar:
            found = continuations(self.step, rows, self.batch_size, lambda count, _: bar.update(count - bar.n))
        return [(float(one.logprobs.sum(dtype=np.float64)), one.greedy) for one in found]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Returns the log-likelihood of each whole text, in windows of `max_length` tokens."""
        windows, owners = [], []
        for index, each in enumerate(requests):
            tokens = self.tok_encode(each.args[0])
            for pair in get_rolling_token_windows(tokens, self._first, self.max_length, context_len=1):
                windows.append((None, *make_disjoint_window(pair)))
                owners.append(index)
        logs = [log for log, _ in self._loglikelihood_tokens(windows, disable_tqdm)]
        return [float(sum) for sum in np.bincount(owners, logs, len(requests))]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Returns the continuation of each context up to the first of its stop texts."""
        arguments, texts = [each.args for each in requests], []
        order = Collator(arguments, lambda each: -len(each[0]), lambda each: each[1], "gen_kwargs")
        for part in order.get_batched(n=self.batch_size):
            options: dict[str, Any] = {**normalize_gen_kwargs(part[0][1], self.max_gen_toks)}
            stops, count = [text for text in options.pop("until") if text], options.pop("max_gen_toks")
            check("max_gen_toks", count, integer(1, self.max_length - 1))
            options |= {"max_new_tokens": count, "stop_strings": stops or None}
            rows = [(self.tok_encode(text) or [self._first])[count - self.max_length :] for text, _ in part]
            written = self.pipe.prompt(rows[0], **options).request.write(self.step, *left_padded(rows))
            texts += [postprocess_generated_text(text, stops, None) for (text,) in written.texts]
        return list(order.get_original(texts))


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    telemetry.switch_off()
    cli_evaluate()
