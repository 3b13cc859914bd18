"""Publishing under failures: processes killed while they publish, full disks, read-only folders."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from concurrent import futures
from pathlib import Path

import pytest

from kerasformer import bundle, publishing
from kerasformer.errors import BundleError
from tests.test_bundle import content, publish_new, write_bundle

MOMENTS = 50

# A process that forks another one, which publishes bundles until it is killed. It reports every move and then pauses,
# so that some kills come between two moves.
PUBLISHER = """
import itertools, os, sys, time
from tests.test_bundle import publish_new
from pathlib import Path

from kerasformer import publishing

def reported(move):
    def call(*folders):
        result = move(*folders)
        print("moved", flush=True)
        time.sleep(0.02)
        return result
    return call

rename, exchange = Path.rename, publishing._exchange
# Every second bundle is exchanged atomically, the others are moved in two steps.
swaps = itertools.count()
Path.rename = reported(rename)
publishing._exchange = reported(lambda *folders: next(swaps) % 2 and exchange(*folders))
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        for count in itertools.count():
            publish_new(Path("out"), b"%d" % count * 20000)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_a_kill_at_any_moment_leaves_a_complete_bundle(tmp_path):
    """The next opening finds the old or the new bundle, and no other files are left."""
    publish_new(tmp_path / "out", b"first")
    rng, seen = random.Random(0), set()
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(
        [sys.executable, "-c", PUBLISHER],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(MOMENTS):
            process.stdin.write("\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            for _ in range(rng.randrange(4)):
                assert process.stdout.readline() == "moved\n"
            time.sleep(rng.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
            assert "dead\n" in iter(process.stdout.readline, "")
            seen.add(frozenset(path.name.split("-new-")[0] for path in tmp_path.iterdir()))
            assert content(tmp_path / "out")  # checks the manifest and every checksum
            assert [path.name for path in tmp_path.iterdir()] == ["out"]
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    assert len(seen) > 1, "no kill came while a bundle was written: the moments are not random"


def test_the_staging_folder_of_a_running_export_is_kept(tmp_path):
    write_bundle(tmp_path / "out", b"old")
    with bundle.staging(tmp_path / "out") as folder:
        (folder / "half").write_bytes(b"x")
        assert content(tmp_path / "out") == b"old"
        publish_new(tmp_path / "out", b"of another process")
        assert (folder / "half").exists()
    assert not folder.exists()
    assert content(tmp_path / "out") == b"of another process"


def test_other_folders_are_kept(tmp_path):
    write_bundle(tmp_path / "out")
    neighbours = [".out2.kerasformer-new-abc", "out.kerasformer-new-abc", ".out.new"]
    for name in neighbours:
        (tmp_path / name).mkdir()
    (tmp_path / ".out.kerasformer-new-link").symlink_to(tmp_path / ".out.new")
    content(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".out.kerasformer-new-link", *neighbours}


def test_a_staging_folder_removed_before_its_lock_is_created_again(tmp_path, monkeypatch):
    lock, taken = publishing._lock, []

    def late(folder):
        if not taken:
            taken.append(folder)
            folder.rmdir()
        return lock(folder)

    monkeypatch.setattr(publishing, "_lock", late)
    publish_new(tmp_path / "out")
    assert taken
    assert content(tmp_path / "out") == b"new"


def test_opening_between_the_two_moves_loses_neither_bundle(tmp_path, monkeypatch):
    write_bundle(tmp_path / "out", b"old")
    rename, opened = Path.rename, []

    def then_open(self, target):
        result = rename(self, target)
        if str(target).endswith("kerasformer-old") and not opened:
            opened.append(content(tmp_path / "out"))
        return result

    monkeypatch.setattr(Path, "rename", then_open)
    monkeypatch.setattr(publishing, "_exchange", lambda *folders: False)
    monkeypatch.setattr(publishing, "fcntl", None)  # the reader cannot see that a process is between its moves
    publish_new(tmp_path / "out")
    assert opened == [b"old"]
    assert content(tmp_path / "out") == b"new"


@pytest.mark.skipif(sys.platform == "win32", reason="locks")
def test_a_reader_waits_for_the_second_move(tmp_path, monkeypatch):
    """It neither undoes the first move nor reports a missing bundle."""
    write_bundle(tmp_path / "out", b"old")
    rename, targets, openings = Path.rename, [], []

    def open_between(self, target):
        rename(self, target)
        targets.append(Path(target).name)
        if str(target).endswith("kerasformer-old"):
            openings.append(pool.submit(content, tmp_path / "out"))
            futures.wait(openings, timeout=0.3)

    monkeypatch.setattr(Path, "rename", open_between)
    monkeypatch.setattr(publishing, "_exchange", lambda *folders: False)
    with futures.ThreadPoolExecutor() as pool:
        publish_new(tmp_path / "out", b"new")
        assert [opening.result() for opening in openings] == [b"new"]
    assert targets == [".out.kerasformer-old", "out"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_error_is_reported_and_the_old_bundle_kept(tmp_path, number):
    write_bundle(tmp_path / "out", b"old")
    with pytest.raises(BundleError, match="could not be written.*Nothing was changed"):
        with bundle.staging(tmp_path / "out") as folder:
            (folder / "half").write_bytes(b"x")
            raise OSError(number, os.strerror(number), str(folder / "model.tflite"))
    assert content(tmp_path / "out") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_other_system_errors_are_passed_on(tmp_path):
    with pytest.raises(FileNotFoundError), bundle.staging(tmp_path / "out"):
        (tmp_path / "nothing").read_bytes()


def test_a_file_above_the_size_limit_raises(tmp_path):
    """The write fails, as on a full disk."""
    write_bundle(tmp_path / "out", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(BundleError, match="could not be written.*[Ll]arge"):
            publish_new(tmp_path / "out", b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert content(tmp_path / "out") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("location", ["file/out", "file/deep/out"])
def test_a_location_that_cannot_contain_folders_raises(tmp_path, location):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BundleError, match="cannot be written there.*Choose another"):
        publish_new(tmp_path / location)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_read_only_folder_raises(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path))

    monkeypatch.setattr(publishing.tempfile, "mkdtemp", refuse)  # permissions do not stop root
    with pytest.raises(BundleError, match="cannot be written there: .*[Pp]ermission"):
        publish_new(tmp_path / "out")
    assert not list(tmp_path.iterdir())
