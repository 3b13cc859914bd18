"""What tests share is made once, and again after a worker was killed or its disk was full."""

from __future__ import annotations

import errno

import pytest

from tests import shared


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(shared.FOLDER, str(tmp_path))
    return tmp_path


def write(folder):
    folder.mkdir()
    (folder / "file").write_text("whole")


def test_a_folder_is_made_once():
    made = [shared.once("name", write) for _ in range(2)]
    assert made[0] == made[1] and (made[0] / "file").read_text() == "whole"


def test_what_a_killed_worker_left_is_made_again(folder):
    (folder / "name.unfinished").mkdir()
    (folder / "name.unfinished" / "half").write_text("")
    assert [file.name for file in shared.once("name", write).iterdir()] == ["file"]


def test_a_full_disk_is_named_and_the_next_run_repairs_it(folder):
    def fill(folder):
        write(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as error:
        shared.once("name", fill)
    assert str(folder / "name.unfinished") in error.value.__notes__[0] and "MB are free" in error.value.__notes__[0]
    assert (shared.once("name", write) / "file").exists()
