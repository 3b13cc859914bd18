"""`kerasformer chat`, a conversation with a model in the terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kerasformer.basics.options import declared
from kerasformer.cli.console import (
    Source,
    Threads,
    delayed_warnings,
    lines_of_stdin,
    on_terminal,
    open_pipeline,
    print_error,
    print_warning,
    say,
    table,
    waiting,
)
from kerasformer.cli.declared_options import passed, with_options
from kerasformer.errors import ChatTemplateError, InputError, KerasformerError
from kerasformer.files.publishing import write_json
from kerasformer.files.reading import decode, local_path, parse_json, read_text, setting_of
from kerasformer.generation import GenerationConfig

if TYPE_CHECKING:
    from kerasformer.pipelines import Session

_PROMPT, _MORE = "> ", "… "
_CHAT_SETTINGS = ("chat_template_kwargs", "documents", "drop_oldest_turns", "tools")
"""Options of a conversation that are not generation settings."""


@with_options([GenerationConfig], "max_new_tokens", "temperature", "top_p", "seed", shows_defaults=False)
def chat(
    source: Source,
    system: Annotated[str | None, typer.Option(help="System prompt, which describes how to answer.")] = None,
    chat_template: Annotated[
        Path | None, typer.Option(help="File with a chat template to use instead of the model's.")
    ] = None,
    drop_oldest_turns: Annotated[
        bool, typer.Option("--drop-oldest-turns", help="Leave out the oldest turns of a conversation that is too long.")
    ] = False,
    load: Annotated[Path | None, typer.Option(help="File with a conversation to continue, from /save.")] = None,
    session: Annotated[
        Path | None,
        typer.Option(help="File with a conversation and its caches: continued if it exists, and written at the end."),
    ] = None,
    threads: Threads = None,
    **options: Any,
) -> None:
    """Talk to a model.

    The answer is printed while it is generated; Ctrl-C stops it. Lines that start with / are commands: /help lists
    them. Without a terminal, each line of standard input is a message, and each answer is printed. A conversation with
    --session FILE is continued by the next command with the same file, which does not read it again.
    """
    settings = passed(options)
    if drop_oldest_turns:
        settings["drop_oldest_turns"] = True
    pipe = open_pipeline(source, "text-generation", num_threads=threads)
    if chat_template is not None:
        pipe.tokenizer.chat_template = read_text(local_path(chat_template))
    if pipe.tokenizer.chat_template is None:
        raise ChatTemplateError(
            "This model has no chat template, since it was trained to continue text. Received: "
            f"{source}. Use kerasformer run, or pass --chat-template …"
        )
    chat_session = ChatSession(pipe, settings, system)
    if session is not None:
        chat_session.open(session)
    if load is not None:
        chat_session.load(str(load))
    interactive = sys.stdin.isatty()
    if interactive:
        name = local_path(source).name if Path(source).exists() else source
        say(f"{name} ({pipe.info.name} on {pipe.engine}). Write a message, or /help.")
        if pipe.engine == "keras":
            say(f"Faster as a bundle: kerasformer export {source} OUT --quantize int8, then kerasformer chat OUT.")
    chat_session.run(_lines(interactive))
    if session is not None:
        chat_session.close(session)
    if chat_session.failed and not interactive:
        raise typer.Exit(1)


class ChatSession:
    """A conversation with slash commands.

    Args:
        pipe: Pipeline for text-generation, with a chat template.
        settings: Generation settings and options of conversations.
        system: System prompt, if any.
    Attributes:
        messages: The messages so far, without the system prompt.
        failed: Whether a line caused an error.
    """

    def __init__(self, pipe: Any, settings: dict[str, Any], system: str | None) -> None:
        self.pipe, self.settings, self.system = pipe, settings, system
        self.messages: list[dict[str, object]] = []
        self.failed = False
        self._kept: Session | None = None
        self._compiles = pipe.engine == "keras"
        self._commands: dict[str, tuple[Callable[[str], None], str, str]] = {
            "help": (self.help, "", "List the commands."),
            "system": (self.set_system, "[TEXT]", "Set the system prompt; without a text, remove it."),
            "reset": (self.reset, "", "Start a new conversation."),
            "undo": (self.undo, "", "Take back the last message and its answer."),
            "retry": (self.retry, "", "Answer the last message again."),
            "save": (self.save, "FILE", "Save the conversation as JSON."),
            "load": (self.load, "FILE", "Continue a saved conversation."),
            "set": (
                self.set,
                "[NAME [VALUE]]",
                "Change a setting; without a value, remove it; without a name, list all.",
            ),
            "exit": (self.help, "", "End the chat; also Ctrl-D, or Ctrl-C twice."),
        }

    def open(self, file: Path) -> None:
        """Continues the conversation of a session file, if there is one, with its caches.

        Raises:
            InputError: it is a session of another model.
            SourceError: it is damaged.
        """
        self._kept = self.pipe.session()
        if local_path(file).exists():
            self._kept = self.pipe.load_session(file)
            self._continue(self._kept.note, str(file))

    def close(self, file: Path) -> None:
        """Writes the conversation and its caches to a session file, if there are any."""
        if self._kept is not None and self._kept.num_tokens and self.messages:
            self._kept.note = json.dumps(self._conversation(self.messages), ensure_ascii=False)
            self._kept.save(file)

    def run(self, lines: Iterator[str]) -> None:
        """Processes lines until `/exit` or the last one; an error is printed and does not end the session."""
        for line in lines:
            if line.strip() in ("/exit", "/quit"):
                return
            try:
                self.process(line)
            except KerasformerError as error:
                self.failed = True
                print_error(str(error))
            except KeyboardInterrupt:
                print_warning("Stopped. The conversation is unchanged.")

    def process(self, line: str) -> None:
        """Runs a command, or answers a message.

        Raises:
            KerasformerError: the line could not be processed; the conversation is unchanged.
        """
        line = decode(os.fsencode(line), "the message")
        text = line.strip()
        if not text:
            return
        if not text.startswith("/"):
            self._answer([*self.messages, {"role": "user", "content": line}])
            return
        name, _, rest = text[1:].partition(" ")
        if name not in self._commands:
            raise InputError(
                f"Unknown command. Expected one of {', '.join(map('/{}'.format, self._commands))}. Received: /{name}"
            )
        self._commands[name][0](rest.strip())

    def help(self, rest: str = "") -> None:
        """Lists the commands."""
        width = max(len(f"/{name} {usage}") for name, (_, usage, _) in self._commands.items())
        for name, (_, usage, text) in self._commands.items():
            say(f"{f'/{name} {usage}':{width}}  {text}")
        say("A line that ends with \\ continues in the next one. Ctrl-C stops an answer.")

    def set_system(self, text: str) -> None:
        """Sets or removes the system prompt."""
        self.system = text or None

    def reset(self, rest: str = "") -> None:
        """Removes all messages except the system prompt."""
        self.messages = []

    def undo(self, rest: str = "") -> None:
        """Removes the last message of the user and everything after it."""
        self.messages = self._before_last_question()

    def retry(self, rest: str = "") -> None:
        """Generates another answer to the last message of the user."""
        before = self._before_last_question()
        self._answer(self.messages[: len(before) + 1])

    def save(self, file: str) -> None:
        """Writes the conversation to a JSON file."""
        path = local_path(_required(file, "/save FILE"))
        try:
            write_json(path, self._conversation(self.messages))
        except OSError as error:
            raise InputError(f"The conversation cannot be saved: {error}") from error
        say(f"{len(self.messages)} messages saved in {path}")

    def load(self, file: str) -> None:
        """Reads a conversation from a JSON file."""
        path = local_path(_required(file, "/load FILE"))
        self._continue(read_text(path), str(path))

    def _continue(self, text: str, name: str) -> None:
        from kerasformer.tokenization import checked_messages

        messages = checked_messages(parse_json(text, name))
        first = messages[0]
        if first["role"] == "system" and isinstance(first.get("content"), str):
            self.system, messages = first["content"], messages[1:]
        self.messages = messages
        say(f"{len(messages)} messages loaded from {name}")

    def set(self, text: str) -> None:
        """Changes or removes a setting; without a name, lists all."""
        from kerasformer.generation import GenerationConfig

        name, _, value = text.replace("=", " ", 1).partition(" ")
        if not name:
            values = {**self.pipe.generation_config.to_dict(), **self.settings}
            table("Settings", ["name", "value"], [(name, json.dumps(value)) for name, value in values.items()])
            known = [name for name, (_, option) in declared(GenerationConfig).items() if option.in_shell]
            known += _CHAT_SETTINGS
            say(f"Others: {', '.join(each for each in known if each not in values)}")
            return
        if not value.strip():
            self.settings.pop(name, None)
            return
        setting = dict([setting_of(f"{name}={value.strip()}")])
        if name not in _CHAT_SETTINGS:
            GenerationConfig().replace(**setting)  # checks the name and the value
        self.settings |= setting

    def _answer(self, messages: list[dict[str, object]]) -> None:
        """Prints the answer to the last message; if it is interrupted, the part so far is kept.

        Raises:
            KeyboardInterrupt: it is interrupted before its first piece.
        """
        kept = {} if self._kept is None else {"session": self._kept}
        with self.pipe.stream(self._conversation(messages), **self.settings, **kept) as stream:
            try:
                with delayed_warnings():
                    try:
                        pieces = iter(stream)
                        with waiting("Compiling, once…" if self._compiles else "Reading…"):
                            first = next(pieces, "")
                        self._compiles = False
                        for piece in chain([first], pieces):
                            print(piece, end="", flush=True)
                    finally:
                        print(flush=True)
            except KeyboardInterrupt:
                if not stream.text:
                    raise
        self.messages = [*messages, {"role": "assistant", "content": stream.text}]

    def _conversation(self, messages: list[dict[str, object]]) -> list[dict[str, Any]]:
        return messages if self.system is None else [{"role": "system", "content": self.system}, *messages]

    def _before_last_question(self) -> list[dict[str, object]]:
        """Returns the messages before the last one of the user.

        Raises:
            InputError: there is none.
        """
        questions = [index for index, message in enumerate(self.messages) if message["role"] == "user"]
        if not questions:
            raise InputError("There is no message yet. Write one first")
        return self.messages[: questions[-1]]


def _required(value: str, usage: str) -> str:
    if not value:
        raise InputError(f"A file name was expected: {usage}. Received: none")
    return value


def _lines(interactive: bool) -> Iterator[str]:
    """Yields the lines of standard input; lines that end with a backslash are joined with the next one.

    Bytes that are not UTF-8 become lone surrogates, as in arguments of a command. On a terminal, Ctrl-C discards the
    line, and Ctrl-C again is the end.
    """
    if interactive:
        with suppress(ImportError):  # not on Windows
            import readline  # noqa: F401 - input() then has a history and can edit lines
    piped = iter(()) if interactive else lines_of_stdin()
    parts: list[str] = []
    interrupted = False
    while True:
        try:
            line = input(_MORE if parts else _PROMPT) if interactive else _text(next(piped))
        except UnicodeDecodeError as error:
            line = _text(error.object)
        except (EOFError, StopIteration):
            if parts:
                yield "\n".join(parts)
            if interactive and on_terminal():
                print()
            return
        except KeyboardInterrupt:
            if not interactive:
                raise
            if interrupted:
                print()
                return
            say("\nPress Ctrl-C again, or type /exit, to end the session.")
            interrupted, parts = True, []
            continue
        interrupted = False
        if line.endswith("\\"):
            parts.append(line[:-1])
            continue
        yield "\n".join([*parts, line])
        parts = []


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
