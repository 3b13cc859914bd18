"""Translation, with the languages of multilingual models and of task prefixes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import ClassVar, Self

from kerasformer.basics.arguments import STRING, check, optional
from kerasformer.basics.tasks import languages
from kerasformer.errors import InputError
from kerasformer.generation import GeneratedText, GenerationConfig
from kerasformer.generation.setting_names import GenerationSettings
from kerasformer.pipelines.base import LengthOptions
from kerasformer.pipelines.opening import Opened
from kerasformer.pipelines.text_to_text import Text2TextGenerationPipeline
from kerasformer.tokenization import Encoding
from kerasformer.tokenization.languages import marks
from kerasformer.tokenization.truncation import TruncationWarning

_NAMES = ("src_lang", "tgt_lang")


class TranslationPipeline(Text2TextGenerationPipeline):
    """Translates texts: `[{"translation_text": …}]`.

    The languages are those of `src_lang` and `tgt_lang`, or of a task such as `"translation_en_to_de"`. They select the
    tokens of the languages (mBART, M2M-100, NLLB), the prefix and the settings of the task (T5), or the token of the
    output's language at the start of the text, such as `>>fra<<` (models of OPUS-MT with several such languages).

    With `split="sentences"`, each sentence is translated by itself; with `split="chunks"`, as many sentences of a line
    as fit. Line breaks and the spaces between sentences are those of the text.

    There is a `TruncationWarning` for translations that are cut, unless the call sets the maximum length.
    """

    key: ClassVar[str] = "translation_text"
    splits: ClassVar[tuple[str, ...]] = ("sentences", "chunks")

    def __init__(self, opened: Opened, src_lang: str | None = None, tgt_lang: str | None = None) -> None:
        self._languages: tuple[str | None, str | None] = (None, None)
        self._marks = marks(opened.tokenizer)
        """Texts put before an input, by the codes of the languages that it can be translated to (OPUS-MT)."""
        of_task = languages(opened.task)
        if opened.tokenizer.languages or (opened.info.prefixes("translation") and opened.task == "translation"):
            src_lang, tgt_lang = src_lang or of_task[0], tgt_lang or of_task[1]
        super().__init__(opened, src_lang, tgt_lang)

    def _check_written(self, written: GeneratedText, config: GenerationConfig) -> None:
        output, cut = written.output, written.output.finish_reasons.count("length")
        limit, default = (
            (settings.max_new_tokens, settings.max_length) for settings in (config, self.generation_config)
        )
        if cut and limit == default:
            warnings.warn(
                f"{cut} of {len(output.sequences)} translations were cut after {max(map(len, output.sequences))} "
                "tokens, the maximum in the settings of the model. Pass a larger max_new_tokens, or split='sentences' "
                "to translate each sentence by itself",
                TruncationWarning,
                stacklevel=2,
            )

    def _encode(
        self, texts: Sequence[str], options: LengthOptions, pairs: Sequence[str | None] | None = None
    ) -> Encoding:
        """Tokenizes texts; each must begin with the language of its translation if the model has several marks.

        Raises:
            InputError: the language of a text is missing.
        """
        encoded = super()._encode(texts, options, pairs)
        ids = {self.tokenizer.token_to_id(mark.rstrip()) for mark in self._marks.values()}
        if len(ids) > 1 and not ids.issuperset(encoded.input_ids[:, 0].tolist()):
            raise InputError(
                "The language of the output is missing. Expected tgt_lang=… to be one of "
                f"{', '.join(self._marks)}. Received: none"
            )
        return encoded

    def _set_languages(self, src_lang: str | None, tgt_lang: str | None) -> None:
        if self._marks:
            self._mark(src_lang, tgt_lang)
            self._languages = (None, tgt_lang)
        elif self._selects_prefix:
            self._tasks_between(src_lang, tgt_lang)
            self._languages = (src_lang, tgt_lang)
        else:
            super()._set_languages(src_lang, tgt_lang)

    @property
    def _selects_prefix(self) -> bool:
        """Whether the languages of a translation select a prefix."""
        return not self.tokenizer.languages and bool(self.info.prefixes("translation"))

    def _for_call(
        self, prefix: str | None, src_lang: str | None, tgt_lang: str | None, settings: GenerationSettings
    ) -> tuple[Self, str]:
        if self._marks and prefix is None:
            mark = self._mark(src_lang, tgt_lang or self._languages[1])
            return self._for_languages(None, None, settings), mark
        if self._selects_prefix and prefix is None:
            source, target = src_lang or self._languages[0], tgt_lang or self._languages[1]
            if source is not None or target is not None:
                task = self._task_between(source, target)
                pipe = self._for_languages(None, None, settings)
                pipe.generation_config = pipe._with_task_settings(task)
                return pipe, self.info.task_prefixes[task]
        return super()._for_call(prefix, src_lang, tgt_lang, settings)

    def _mark(self, src_lang: str | None, tgt_lang: str | None) -> str:
        """Returns the text that marks the language of the output of each input; `None` marks nothing.

        Raises:
            InputError: the language is unknown, or that of the input is passed, which is not marked.
        """
        if src_lang is not None:
            raise InputError(
                "This model marks the language of the output alone. Expected: no src_lang. Received: "
                f"src_lang={src_lang!r}"
            )
        if tgt_lang is None or tgt_lang in self._marks:
            return self._marks.get(str(tgt_lang), "")
        code = check("tgt_lang", tgt_lang, STRING)
        close = get_close_matches(code, self._marks, 1, 0.5)
        hint = f". Did you mean {close[0]!r}?" if close else ""
        raise InputError(
            f"tgt_lang must be a language of the model. Expected: one of {', '.join(self._marks)}. "
            f"Received: {code!r}{hint}"
        )

    def _task_between(self, src_lang: str | None, tgt_lang: str | None) -> str:
        """Returns the task of the checkpoint that translates between two languages, one of which may be `None`.

        Raises:
            InputError: there is none, or more than one.
        """
        tasks = self._tasks_between(src_lang, tgt_lang)
        if len(tasks) > 1:
            side = 0 if src_lang is None else 1
            codes = ", ".join(str(languages(task)[side]) for task in tasks)
            raise InputError(
                f"The language of the {('input', 'output')[side]} is missing. Expected {_NAMES[side]}=… "
                f"to be one of {codes}. Received: none"
            )
        return tasks[0]

    def _tasks_between(self, src_lang: str | None, tgt_lang: str | None) -> list[str]:
        """Returns the tasks of the checkpoint that translate between two languages; `None` is any language.

        Raises:
            InputError: there is none.
        """
        wanted = {
            name: check(name, code, optional(STRING)) for name, code in zip(_NAMES, (src_lang, tgt_lang), strict=True)
        }
        known = {task: languages(task) for task in self.info.prefixes("translation")}
        tasks = [
            task
            for task, pair in known.items()
            if all(code in (None, of_task) for code, of_task in zip(wanted.values(), pair, strict=True))
        ]
        if not tasks:
            pairs = [f"{source} to {target}" for source, target in known.values()]
            received = ", ".join(f"{name}={code!r}" for name, code in wanted.items() if code is not None)
            close = get_close_matches(" to ".join(code or "" for code in wanted.values()), pairs, 1, 0.5)
            hint = f". Did you mean {close[0]}?" if close else ""
            raise InputError(
                f"The model does not translate between these languages. Expected: one of {', '.join(pairs)}. "
                f"Received: {received}{hint}"
            )
        return tasks
