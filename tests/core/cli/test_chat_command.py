"""`kerasformer chat`: answers, slash commands, errors, interruption and piped input."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import warnings

import pytest

import kerasformer as kf
from kerasformer.cli import chat_command
from kerasformer.cli.chat_command import ChatSession
from kerasformer.errors import CapacityError, SourceError
from kerasformer.generation import GenerationConfig
from tests import tiny_text
from tests.core.cli.test_cli import main, standard_input
from tests.core.tokenization.chat_templates.chat_model import save_model
from tests.core.tokenization.chat_templates.conversations import TEMPLATES
from tests.keras_pipelines import keras_pipeline

pytestmark = pytest.mark.grid


class Parrot:
    """A pipeline that answers with the number of messages and the last one."""

    engine = "onnxruntime"

    def __init__(self):
        self.calls = []
        self.interrupted = False
        self.generation_config = GenerationConfig(top_k=7, eos_token_id=2)

    def stream(self, messages, **settings):
        self.calls.append((messages, settings))
        if "long" in messages[-1]["content"]:
            raise CapacityError("The conversation is too long, pass drop_oldest_turns=True")
        return Pieces([str(len(messages)), " ", messages[-1]["content"]], self.interrupted)


class Pieces:
    def __init__(self, pieces, interrupted):
        self.pieces, self.interrupted, self.text = pieces, interrupted, ""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __iter__(self):
        for piece in self.pieces:
            if self.interrupted and self.text:
                raise KeyboardInterrupt
            self.text += piece
            yield piece
        if "full" in self.text:
            warnings.warn("the cache is full", UserWarning, stacklevel=1)


@pytest.fixture
def session():
    return ChatSession(Parrot(), {"seed": 1}, "Be brief.")


def run(session, *lines):
    session.run(iter(lines))
    return session


def test_turns(session, capsys):
    run(session, "Hello", "", "What?", "/exit", "unread")
    assert capsys.readouterr().out == "2 Hello\n4 What?\n"
    assert [message["content"] for message in session.messages] == ["Hello", "2 Hello", "What?", "4 What?"]
    assert session.pipe.calls[0] == (
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        {"seed": 1},
    )


def test_undo_retry_and_reset(session, capsys):
    run(session, "one", "two", "/retry")
    assert capsys.readouterr().out == "2 one\n4 two\n4 two\n"
    assert len(run(session, "/undo").messages) == 2
    assert run(session, "/reset").messages == [] and session.system == "Be brief."
    run(session, "/undo")
    assert session.failed and "There is no message yet" in capsys.readouterr().err


def test_the_system_prompt(session):
    run(session, "/system Rhyme.", "one", "/system", "two")
    assert [call[0][0]["content"] for call in session.pipe.calls] == ["Rhyme.", "one"]


def test_settings(session, capsys):
    run(session, "/set temperature 0.5", "/set drop_oldest_turns=true", "/set seed", "one")
    assert session.pipe.calls[0][1] == {"temperature": 0.5, "drop_oldest_turns": True}
    capsys.readouterr()
    run(session, "/set")
    shown = capsys.readouterr().out.splitlines()
    assert {"eos_token_id\t2", "top_k\t7", "temperature\t0.5", "drop_oldest_turns\ttrue"} <= {*shown[:-1]}
    assert shown[-1].startswith("Others: ") and "max_new_tokens" in shown[-1] and "documents" in shown[-1]
    assert "temperature" not in shown[-1] and "prefix_allowed_tokens_fn" not in shown[-1]
    for line, message in (("/set temperature hot", "temperature must be"), ("/set temprature 1", "temperature")):
        run(session, line)
        assert message in capsys.readouterr().err
    assert session.settings["temperature"] == 0.5


def test_files(session, tmp_path, capsys):
    file = tmp_path / "talk.json"
    run(session, "one", f"/save {file}")
    assert [message["role"] for message in json.loads(file.read_text())] == ["system", "user", "assistant"]
    other = run(ChatSession(Parrot(), {}, None), f"/load {file}")
    assert (other.system, other.messages) == ("Be brief.", session.messages)
    capsys.readouterr()
    file.write_text('[{"content": "no role"}]')
    for line, message in (
        (f"/load {file}", "must be a dict with a role"),
        ("/load nowhere.json", "is missing"),
        ("/load", "A file name was expected"),
        (f"/save {tmp_path}", "cannot be saved"),
    ):
        run(other, line)
        assert message in " ".join(capsys.readouterr().err.split())
    assert other.messages == session.messages


def test_errors_do_not_end_the_session(session, capsys):
    run(session, "/dance", "a long message", "short")
    out, err = capsys.readouterr()
    assert "Unknown command" in err and "/help" in err and "too long" in err
    assert out == "2 short\n" and session.failed and len(session.messages) == 2


@pytest.mark.filterwarnings("always:the cache is full")
def test_warnings_stand_on_lines_of_their_own(session, capsys, monkeypatch):
    monkeypatch.setattr("warnings.showwarning", lambda message, *_, **__: print(f"Warning: {message}"))
    run(session, "full", "More")
    assert capsys.readouterr().out == "2 full\nWarning: the cache is full\n4 More\n"


def test_an_interrupted_answer_is_kept(session, capsys):
    session.pipe.interrupted = True
    run(session, "Hello")
    session.pipe.interrupted = False
    run(session, "More")
    assert capsys.readouterr().out == "2\n4 More\n"
    assert session.messages[1] == {"role": "assistant", "content": "2"}


def test_an_answer_that_is_interrupted_before_its_first_word(session, capsys):
    session.pipe.stream = interrupt
    run(session, "Hello", "/help")
    out, err = capsys.readouterr()
    assert "Stopped" in err and "/help" in out and session.messages == [] and not session.failed


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_lines_that_continue(monkeypatch):
    standard_input(monkeypatch, b"one\\\ntwo\nthree\nfour\\")
    assert list(chat_command._lines(interactive=False)) == ["one\ntwo", "three", "four"]


def test_piped_input(tmp_path, monkeypatch, capsys):
    save_model(tmp_path / "model")
    standard_input(monkeypatch, b"Who is it?\n/set max_new_tokens 0\nsp\xe4t?\nIs it late?\n")
    assert main("chat", str(tmp_path / "model"), "--max-new-tokens", "3", "--system", "Be brief.") == 1
    out, err = capsys.readouterr()
    assert "max_new_tokens must be" in err and "not in UTF-8" in err
    pipe = kf.pipeline(tmp_path / "model")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is it?"}]
    first = pipe(messages, max_new_tokens=3)[0]["generated_text"]
    second = pipe([*first, {"role": "user", "content": "Is it late?"}], max_new_tokens=3)[0]["generated_text"]
    assert out == f"{first[-1]['content']}\n{second[-1]['content']}\n"


def test_a_session_file_is_continued(tmp_path, capsys):
    save_model(tmp_path / "model")
    pipe, file = keras_pipeline(tmp_path / "model"), tmp_path / "talk.session"
    sessions = [ChatSession(pipe, {"max_new_tokens": 3}, system) for system in ("Be brief.", None)]
    for number, (session, question) in enumerate(zip(sessions, ("Who is it?", "Is it late?"), strict=True)):
        session.open(file)
        assert len(session.messages) == 2 * number
        run(session, question)
        session.close(file)
    assert sessions[1].system == "Be brief." and len(sessions[1].messages) == 4
    kept = pipe.load_session(file)
    assert [each["content"] for each in json.loads(kept.note)] == [
        "Be brief.",
        *(each["content"] for each in sessions[1].messages),
    ]
    assert sessions[1]._kept.reused > 10
    capsys.readouterr()
    (tmp_path / "damaged").write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SourceError, match="not a complete saved state"):
        sessions[0].open(tmp_path / "damaged")
    ChatSession(pipe, {}, None).close(tmp_path / "empty")
    assert not (tmp_path / "empty").exists()


def test_a_model_without_a_template(capsys):
    assert main("chat", "story-gpt2") == 1
    assert "no chat template" in capsys.readouterr().err


@pytest.fixture(scope="module")
def talkative(tmp_path_factory):
    """A bundle whose answers take several seconds."""
    tokenizer = tiny_text.byte_pairs()
    sizes = {"hidden_dim": 24, "num_layers": 1, "num_heads": 2, "intermediate_dim": 32, "max_length": 8192}
    model = kf.zoo.build("llama", vocab_size=tokenizer.vocab_size, eos_token_id=0, **sizes)
    model.tokenizer = tokenizer
    return kf.export.export(model, tmp_path_factory.mktemp("chat") / "bundle", "onnx", capacity=8192)


@pytest.mark.grid
@pytest.mark.skipif(sys.platform == "win32", reason="terminals and signals")
def test_ctrl_c_stops_an_answer_and_twice_the_session(talkative, tmp_path):
    """A real process with a real terminal and real signals."""
    template, file = tmp_path / "template.jinja", tmp_path / "talk.json"
    template.write_text(TEMPLATES["chatml"])
    command = [sys.executable, "-m", "kerasformer.cli", "chat", str(talkative), "--chat-template", str(template)]
    long = ["--set", "max_new_tokens=8000", "--set", "min_new_tokens=8000", "--seed", "1"]
    import pty

    terminal, end = pty.openpty()
    # Background jobs of a shell, and their children, ignore Ctrl-C.
    settings = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    settings["env"] = {**os.environ, "TERM": "dumb", "COLUMNS": "400"}
    process = subprocess.Popen([*command, *long], stdin=end, stdout=end, stderr=end, **settings)
    os.close(end)
    printed = ""

    def until(pattern):
        """Waits for an output after that of the last call."""
        nonlocal printed
        seen = ""
        while not re.search(pattern, seen):
            assert select.select([terminal], [], [], 60)[0], f"no {pattern!r} in {printed!r}"
            piece = os.read(terminal, 65536).decode(errors="replace")
            seen, printed = seen + piece, printed + piece

    def enter(line):
        os.write(terminal, f"{line}\n".encode())

    def interrupt():
        # A signal after the prompt is shown and before input() waits is only noticed at the next key, in any program
        # that uses readline. On a busy machine this takes a while; people are slower.
        time.sleep(1)
        process.send_signal(signal.SIGINT)

    try:
        until("> $")
        enter("Who is it?")
        until(r"Who is it\?\r\n.*\S")
        interrupt()
        until("\n> $")
        enter("/set min_new_tokens")
        until("> $")
        enter("/set max_new_tokens 4")
        until("> $")
        enter("Is it late?")
        until("\n.*\n> $")
        enter(f"/save {file}")
        until("4 messages saved(.|\n)*> $")
        interrupt()
        until("Ctrl-C again(.|\n)*> $")
        interrupt()
        assert process.wait(60) == 0, printed
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert "Traceback" not in printed and "Error" not in printed
    messages = json.loads(file.read_text())
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2
    assert messages[0]["content"] == "Who is it?" and messages[1]["content"]
    assert len(kf.Tokenizer.load(talkative).encode(messages[1]["content"])) < 8000
