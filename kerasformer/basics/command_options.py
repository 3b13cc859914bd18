"""Options that a function and a command share, each declared once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from kerasformer.basics.arguments import BOOLEAN, FUNCTION, STRING, Kind, instance, integer, number, one_of, sequence
from kerasformer.basics.options import Option
from kerasformer.basics.progress import CountProgress, StageProgress

_PATH = instance("a path", str, Path)
_LARGEST = 100_000  # MB: more than any model file, so that a larger limit was meant in bytes
_MEGABYTES = number(above=0).where(
    lambda size: size <= _LARGEST,
    f"a number of MB (1e6 bytes) above 0, up to {_LARGEST:,}; for 30,000,000 bytes, pass 30",
)
_TEMPLATE = Kind("a template or a function", lambda value: value if callable(value) else STRING.convert(value))


class BenchOptions(TypedDict, total=False):
    """Options of `bench`.

    Attributes:
        prompt_length: Prompt length in tokens, for models that generate; by default 32, or less if the capacity is
            less.
        new_tokens: Number of tokens to generate for each prompt; by default 128, or less if the capacity is less.
        lengths: Text lengths in tokens, for models that do not generate; by default 16 and 128, or less if the maximum
            length is less.
        texts: File with one text per line, which are used instead of random tokens; in Python, also a list of texts.
        batch_size: Number of texts in one batch.
        num_threads: Number of CPU threads; the runtime's default otherwise.
        rounds: Number of measurements of each input, after a first run that is reported separately.
        compare: Measure all sources in turns, with ratios to the first one. All of them are then in memory at once;
            otherwise, they are measured one after another.
        engines: Whether to measure one bundle in all engines that it has files for (also ONNX Runtime GenAI and
            LiteRT-LM), in turns, with ratios to this package's engine. LiteRT-LM reads texts, so all engines do.
        progress: Called with each stage.
    """

    prompt_length: Annotated[int | None, Option(integer(1))]
    new_tokens: Annotated[int | None, Option(integer(1))]
    lengths: Annotated[Sequence[int] | None, Option(sequence(integer(1)))]
    texts: Annotated[str | Path | Sequence[str] | None, Option()]
    batch_size: Annotated[int, Option(integer(1), 1)]
    num_threads: Annotated[int | None, Option(integer(1))]
    rounds: Annotated[int, Option(integer(1), 5)]
    compare: Annotated[bool, Option(BOOLEAN, False)]
    engines: Annotated[bool, Option(BOOLEAN, False, in_shell=False)]
    progress: Annotated[StageProgress | None, Option(FUNCTION, in_shell=False)]


class EvaluationOptions(TypedDict, total=False):
    """Options of `evaluate`.

    Attributes:
        task: Task of the model, such as `summarization`; the model's own by default.
        references: Files with the reference of each line of the data, if the data is a file of plain lines.
        text_column: Column of the texts in a file: a name, or a number starting at 1; a common name by default.
        label_column: Column of the labels or references, likewise.
        glue: Task of GLUE or SuperGLUE, such as `cola` or `boolq`, with its columns, classes and metrics. A model for
            text2text-generation reads the texts in T5's form; it alone reads `copa`, `multirc`, `record`, `wic`, `wsc`.
        skip_bad: Skip rows of a file that cannot be read or lack a label, and count them.
        limit: Number of texts to use, from the first; all by default.
        batch_size: Number of texts in one batch.
        num_threads: Number of CPU threads of a bundle; the runtime's default otherwise.
        stride: For perplexity, the number of tokens by which the window moves over a text that is longer than the
            cache; by default the whole cache, so that parts of a text do not see each other.
        last_word: For text-generation, whether the model predicts the last word of each text, as for LAMBADA.
        choices: For models that generate, texts of which the most likely one is the model's answer, in a gap `XXXXX` of
            the text or after it; for classifiers with one class, texts to score. A row of the data may have its own, in
            a column `choices`.
        template: Form of a prompt with `{text}`, and `{label}` at its end, for `choices`; in Python, also a prompt of
            `kerasformer.prompt`.
        bleu_tokenizer: Tokenizer of BLEU, such as `zh` or `ja-mecab`; by default one that suits the script.
        settings: Arguments of the pipeline for generated texts, such as `{"num_beams": 4}`.
        progress: Called with the number of completed texts.
    """

    task: Annotated[str | None, Option(STRING)]
    references: Annotated[Sequence[str | Path] | None, Option(sequence(_PATH))]
    text_column: Annotated[str | None, Option(STRING)]
    label_column: Annotated[str | None, Option(STRING)]
    glue: Annotated[str | None, Option(STRING)]
    skip_bad: Annotated[bool, Option(BOOLEAN, False)]
    limit: Annotated[int | None, Option(integer(1))]
    batch_size: Annotated[int, Option(integer(1), 8)]
    num_threads: Annotated[int | None, Option(integer(1))]
    stride: Annotated[int | None, Option(integer(1))]
    last_word: Annotated[bool, Option(BOOLEAN, False)]
    choices: Annotated[Sequence[str] | None, Option(sequence(STRING, 2))]
    template: Annotated[str | Callable[[Any], str] | None, Option(_TEMPLATE)]
    bleu_tokenizer: Annotated[str | None, Option(STRING)]
    settings: Annotated[Mapping[str, object] | None, Option(instance("a dictionary", dict), in_shell=False)]
    progress: Annotated[CountProgress | None, Option(FUNCTION, in_shell=False)]


class BaselineOptions(TypedDict, total=False):
    """Options of the baselines of `kerasformer eval`.

    Attributes:
        train: File of training texts for the baselines of a classification, read like the data: their most frequent
            class, and what the model of `--baseline` makes of them.
    """

    train: Annotated[str | Path | None, Option(_PATH)]


class PruningOptions(TypedDict, total=False):
    """Options of `prune_vocabulary`.

    Attributes:
        languages: Codes of the languages to keep, for a model whose texts are marked with a language; all by default.
        min_count: Number of times that a token must occur in the texts; rarer ones are split into shorter tokens.
        coverage: Share of the tokens of the texts that must remain; the most frequent ones are kept.
    """

    languages: Annotated[Sequence[str] | None, Option(sequence(STRING))]
    min_count: Annotated[int, Option(integer(1), 1)]
    coverage: Annotated[float, Option(number(0, 1), 1.0)]


class CutOptions(TypedDict, total=False):
    """Options of `kerasformer.tools.training.prune`.

    Attributes:
        layers: Layers to keep, as indices such as `0,2,4`, or as a number of evenly spaced ones; of an encoder-decoder
            those of the encoder.
        decoder_layers: Layers of the decoder of an encoder-decoder to keep, likewise.
        heads: Number of attention heads of each layer. Configurations without a size of the heads (BERT, GPT-2) need a
            width of this many times that size.
        neurons: Number of neurons of each feed-forward network.
        width: Size of the hidden states; with it, such configurations have as many heads as it holds.
    """

    layers: Annotated[str | int | Sequence[int] | None, Option()]
    decoder_layers: Annotated[str | int | Sequence[int] | None, Option()]
    heads: Annotated[int | None, Option(integer(1))]
    neurons: Annotated[int | None, Option(integer(1))]
    width: Annotated[int | None, Option(integer(1))]


class ShrinkOptions(CutOptions, total=False):
    """Options of `kerasformer.tools.training.shrink`, beside those of `CutOptions`.

    Attributes:
        to: `static`: distil a model for embeddings to a table of token vectors, without texts and without training;
            `width` is then the size of a vector, 256 by default.
        sif: Of a table of token vectors, the coefficient by which frequent tokens weigh less; 0 for equal weights.
        task: Task of the model, such as `summarization`; the model's own by default.
        vocab: Share of the tokens of the texts that must remain in the vocabulary, such as 0.999; 1 keeps all tokens
            that the texts need. By default, the vocabulary stays as it is.
        quantize: `int8` or `int4`: train the last epochs with the weights rounded as in the bundle of that name.
        format: Format of that bundle, `litert` or `onnx`.
        epochs: Number of passes over the texts after each cut.
        learning_rate: Learning rate of AdamW, which decreases along a cosine.
        batch_size: Number of texts in one batch.
        max_length: Number of tokens to which texts are truncated.
        temperature: Temperature of the soft targets.
        hard_weight: Weight of the loss on the labels, if all texts have one: classes of texts or words, answers or
            texts to write; of a decoder also without labels, on the next token of the text.
        importance: `weights` or `data`: how heads, neurons and channels are chosen, by the magnitude of their weights,
            or by the gradients of the distillation loss on the texts.
        held_out: Share of the texts, the last ones, on which quality is measured, and nothing is trained.
        seed: Seed of the order of the batches.
        progress: Called with each step and epoch.
    """

    to: Annotated[str | None, Option(one_of("static"))]
    sif: Annotated[float, Option(number(0, 1), 1e-4)]
    task: Annotated[str | None, Option(STRING)]
    vocab: Annotated[float | None, Option(number(above=0, high=1))]
    quantize: Annotated[str | None, Option(one_of("int8", "int4"))]
    format: Annotated[str, Option(one_of("litert", "onnx"), "litert")]
    epochs: Annotated[int, Option(integer(1), 3)]
    learning_rate: Annotated[float, Option(number(above=0), 3e-4)]
    batch_size: Annotated[int, Option(integer(1), 32)]
    max_length: Annotated[int, Option(integer(2), 128)]
    temperature: Annotated[float, Option(number(above=0), 2.0)]
    hard_weight: Annotated[float, Option(number(0), 1.0)]
    importance: Annotated[str, Option(one_of("weights", "data"), "weights")]
    held_out: Annotated[float, Option(number(0, 0.9), 0.1)]
    seed: Annotated[int, Option(integer(0), 0)]
    progress: Annotated[StageProgress | None, Option(FUNCTION, in_shell=False)]


class SearchLimits(TypedDict, total=False):
    """Limits of `kerasformer.search`, beside the options of an export.

    Attributes:
        max_size: Largest total size of the model files, in MB (1e6 bytes).
        max_latency: Largest latency on this machine, in milliseconds per token, or per text for a model that does not
            generate.
        min_agreement: Smallest share of answers whose most probable choice is that of the Keras model.
    """

    max_size: Annotated[float | None, Option(_MEGABYTES)]
    max_latency: Annotated[float | None, Option(number(above=0))]
    min_agreement: Annotated[float, Option(number(0, 1), 0.98)]


class SiteOptions(TypedDict, total=False):
    """Options of `kerasformer.tools.web.site.build`.

    Attributes:
        title: Title of the page.
        runtime_files: Folder where `npm ci` was run with the page's package.json; by default, npm is run here.
        given_texts: Also copy reference answers to texts that were passed to the export. They contain the token ids of
            these texts, which visitors of the page can read.
        overwrite: Replace an existing site.
    """

    title: Annotated[str, Option(STRING, "Kerasformer")]
    runtime_files: Annotated[str | Path | None, Option(_PATH)]
    given_texts: Annotated[bool, Option(BOOLEAN, False)]
    overwrite: Annotated[bool, Option(BOOLEAN, False)]
