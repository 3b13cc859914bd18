"""`kerasformer chat`: answers, slash commands, errors, interruption and piped input."""

from __future__ import annotations

import io
import json
import sys

import pytest

import kerasformer as kf
from kerasformer.cli import chat_command
from kerasformer.cli.chat_command import ChatSession
from kerasformer.errors import CapacityError
from tests.chat_templates.chat_model import save_model
from tests.test_cli import main


class Parrot:
    """A pipeline that answers with the number of messages and the last one."""

    def __init__(self):
        self.calls = []
        self.interrupted = False

    def stream(self, messages, **settings):
        self.calls.append((messages, settings))
        if "long" in messages[-1]["content"]:
            raise CapacityError("The conversation is too long")
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
    run(session, "/set")
    assert "temperature = 0.5" in capsys.readouterr().out
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


def test_an_interrupted_answer_is_kept(session, capsys):
    session.pipe.interrupted = True
    run(session, "Hello")
    session.pipe.interrupted = False
    run(session, "More")
    assert capsys.readouterr().out == "2\n4 More\n"
    assert session.messages[1] == {"role": "assistant", "content": "2"}


def test_help(session, capsys):
    run(session, "/help")
    out = capsys.readouterr().out
    assert all(f"/{name}" in out for name in "help system reset undo retry save load set exit".split())


def test_lines_that_continue(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\\\ntwo\nthree\nfour\\"))
    assert list(chat_command._lines(interactive=False)) == ["one\ntwo", "three", "four"]


def test_piped_input(tmp_path, monkeypatch, capsys):
    save_model(tmp_path / "model")
    monkeypatch.setattr(sys, "stdin", io.StringIO("Who is it?\n/set max_new_tokens 0\nIs it late?\n"))
    assert main("chat", str(tmp_path / "model"), "--max-new-tokens", "3", "--system", "Be brief.") == 1
    out, err = capsys.readouterr()
    assert "max_new_tokens must be" in err
    pipe = kf.pipeline(None, tmp_path / "model")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is it?"}]
    first = pipe(messages, max_new_tokens=3)[0]["generated_text"]
    second = pipe([*first, {"role": "user", "content": "Is it late?"}], max_new_tokens=3)[0]["generated_text"]
    assert out == f"{first[-1]['content']}\n{second[-1]['content']}\n"


def test_a_model_without_a_template(capsys):
    assert main("chat", "story-gpt2") == 1
    assert "no chat template" in capsys.readouterr().err
