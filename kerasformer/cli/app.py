"""The program `kerasformer` and its commands."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from kerasformer import __version__, process, telemetry
from kerasformer.cli import app_command
from kerasformer.cli.bench_command import bench
from kerasformer.cli.chat_command import chat
from kerasformer.cli.command import Command, Commands, examples
from kerasformer.cli.console import print_warning, say
from kerasformer.cli.demo_command import demo
from kerasformer.cli.eval_command import eval
from kerasformer.cli.explain_command import explain
from kerasformer.cli.export_command import export
from kerasformer.cli.info_command import info
from kerasformer.cli.models_command import models
from kerasformer.cli.run_command import run
from kerasformer.cli.serve_command import serve
from kerasformer.cli.shrink_command import shrink
from kerasformer.cli.train_command import train
from kerasformer.cli.verify_command import verify
from kerasformer.cli.web_command import web

app = typer.Typer(
    cls=Commands,
    help="Load Hugging Face checkpoints in Keras, export them to LiteRT and ONNX, and run them.",
    epilog=examples(
        "kerasformer demo",
        "kerasformer export sentiment-bert out --quantize int8",
        'kerasformer run out "A warm and funny film."',
        "kerasformer COMMAND --help",
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(requested: bool) -> None:
    if requested:
        say(__version__)
        raise typer.Exit


_DEDICATED_PROCESS = "dedicated process"
"""Context object that marks a run from the shell, where settings of the process may be changed."""


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors, and logs of runtimes.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.obj == _DEDICATED_PROCESS:
        telemetry.switch_off()
    if debug:
        os.environ["KERASFORMER_DEBUG"] = "1"
    elif context.obj == _DEDICATED_PROCESS and not os.environ.get("KERASFORMER_DEBUG"):
        # Logs of TensorFlow and LiteRT would hide the output of the command.
        process.silence_native_logs()
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def command(*lines: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a command, with examples at the end of its help."""
    return app.command(cls=Command, epilog=examples(*lines))


command(
    "kerasformer models",
    "kerasformer models roberta",
    "kerasformer models --json | jq .architectures.bert.tasks",
    "kerasformer models --picture models.svg",
)(models)


command(
    "kerasformer info sentiment-bert",
    "kerasformer info out --json | jq .fidelity",
    "kerasformer info t5-11b/config.json --anatomy --out t5-11b.svg",
    "kerasformer info gpt2/config.json gpt2-xl/config.json out",
    "kerasformer info --clear-cache",
)(info)
command(
    "kerasformer shrink ./bert-base-sentiment small --data reviews.tsv --layers 4 --neurons 1024 --epochs 3",
    "kerasformer shrink ./gpt2 small --data stories.txt --layers 0,3,6,9 --vocab 0.999 --quantize int4",
    "kerasformer shrink ./t5-small small --data pairs.tsv --layers 4 --decoder-layers 2 --heads 4 --neurons 1024",
    "kerasformer shrink MiniLM static --to static",
)(shrink)
command(
    "kerasformer train sentiment.toml out --data texts",
    "kerasformer train stories.toml out --data texts --set training.epochs=1 --set data.batch_size=64",
)(train)
command(
    "kerasformer export sentiment-bert out --quantize int8",
    "kerasformer export smollm2-135m-instruct out --format onnx --quantize int4 --capacity 512 --overwrite",
    "kerasformer export ./my-model out --quantize auto --max-size 60 --texts labelled.tsv",
    "kerasformer export sentiment-bert phone --target mediapipe --quantize int8",
    "kerasformer export sentiment-bert out --outputs attentions",
    "kerasformer export --list-targets",
)(export)
command(
    'kerasformer run sentiment-bert "A warm and funny film."',
    "cut -f1 reviews.tsv | kerasformer run out | cut -f2 | sort | uniq -c",
    "tail -f queue.txt | kerasformer run out --jsonl",
    'kerasformer run smollm2-135m-instruct "Tell me of the sea." --stream --top-p 0.9 --seed 1',
    """kerasformer run smollm2-135m-instruct "What is the capital of France?" --set 'choices=["Rome", "Paris"]'""",
    'kerasformer run SmolLM2-135M-Instruct.Q8_0.gguf "The capital of France is"',
    'kerasformer run qa-folder "A text that has the answer." --question "Where is it?"',
)(run)
command(
    'kerasformer explain sentiment-bert "time flies like an arrow" "fruit flies like a banana" --out view.html',
    'kerasformer explain summarizer-t5 "The cat sat on the mat." --view alignment --out alignment.png',
    'kerasformer explain out "Once upon a time" --view heads --layer 2 --head 3',
    "kerasformer explain smollm2-135m-instruct --site explained",
)(explain)
command(
    "kerasformer chat path/to/chat-model",
    "kerasformer chat SmolLM2-135M-Instruct.Q8_0.gguf",
    'kerasformer chat out --system "Answer in one sentence." --temperature 0.7 --seed 1',
    "cat questions.txt | kerasformer chat out",
)(chat)
command(
    "kerasformer web smollm2-135m-instruct site",
    "kerasformer web Chat=chat-out Reviews=out site --overwrite --serve",
    "kerasformer web site --serve --port 9000 --host 0.0.0.0",
)(web)
command(
    "kerasformer app android sentiment-bert my-app",
    "kerasformer app ios SmolLM2-135M-Instruct.Q8_0.gguf my-chat",
    "kerasformer app android out my-app",
)(app_command.app)
command(
    "kerasformer serve out",
    "kerasformer serve smollm2-135m-instruct embeddings=./all-MiniLM-L6-v2 --port 9000",
    "KERASFORMER_API_KEY=secret kerasformer serve out --host 0.0.0.0 --max-running 4 --max-tokens 256",
)(serve)


command("kerasformer verify out", "kerasformer verify out --json | jq .faithful")(verify)
command(
    "kerasformer eval out --data reviews.tsv --text-column 2 --label-column label",
    "kerasformer eval out --data articles.jsonl --task summarization",
    "kerasformer eval t5-folder out-int8 --data test.tsv --task translation --set num_beams=4",
    "kerasformer eval out --data test.en --references test.de --task translation --outputs texts.jsonl",
    "kerasformer eval sentiment-bert --glue sst2 --data dev.tsv --errors 10 --picture confusion.png",
    "kerasformer eval summarizer-t5 --baseline story-gpt2 --data articles.jsonl --json",
)(eval)


command(
    "kerasformer bench out",
    "kerasformer bench out-int8 out-int4 sentiment-bert --compare --rounds 20",
    "kerasformer bench out --lengths 16 --lengths 256 --num-threads 2",
    "kerasformer bench out --card",
    "kerasformer bench out --json figures.json --picture figures.png",
)(bench)
command("kerasformer demo", "kerasformer demo --folder /tmp/bundles --json")(demo)


def main() -> None:
    """Runs the program `kerasformer`."""
    warnings.showwarning = _show_warning
    # Python shows a warning with the same words once, but each truncated text has its own.
    warnings.filterwarnings("always", message="truncated to ")
    app(obj=_DEDICATED_PROCESS)


def _show_warning(message: Warning | str, category: type[Warning], *location: Any, **options: Any) -> None:
    """Prints warnings of this package in one line; those of other packages are for developers and are not shown."""
    if category.__module__.startswith("kerasformer") or category is UserWarning:
        print_warning(str(message))
