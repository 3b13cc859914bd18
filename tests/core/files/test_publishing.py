"""Publishing under failures: several processes at once, full disks, read-only folders."""

from __future__ import annotations

import errno
import os
import resource
import time
from pathlib import Path

import pytest

from kerasformer import bundle
from kerasformer.errors import BundleError
from kerasformer.files import publishing
from tests.core.bundle.test_bundle import content, publish_new, write_bundle


def test_staging_folders_are_removed_after_a_day_without_a_change(tmp_path):
    write_bundle(tmp_path / "out", b"old")
    with bundle.staging(tmp_path / "out") as folder:
        (folder / "half").write_bytes(b"x")
        hours = 3600
        for age, kept in ((23 * hours, True), (25 * hours, False)):
            os.utime(folder, (time.time() - age,) * 2)
            assert content(tmp_path / "out") == b"old"
            assert folder.exists() == kept


def test_other_folders_are_kept(tmp_path):
    write_bundle(tmp_path / "out")
    neighbours = [".out2.kerasformer-new-abc", "out.kerasformer-new-abc", ".out.new"]
    for name in neighbours:
        (tmp_path / name).mkdir()
    (tmp_path / ".out.kerasformer-new-link").symlink_to(tmp_path / ".out.new")
    content(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".out.kerasformer-new-link", *neighbours}


def test_an_old_bundle_is_kept_until_another_folder_is_out_of_its_way(tmp_path):
    """Between the two renames of a replacement, another program made a folder of the same name."""
    out = tmp_path / "out"
    write_bundle(tmp_path / ".out.kerasformer-old-1", b"old")
    out.mkdir()
    (out / "notes.txt").write_text("of another program")
    with pytest.raises(BundleError, match="only a bundle or an empty folder may be replaced"):
        publish_new(out)
    (out / "notes.txt").unlink()
    assert content(out) == b"old"


@pytest.mark.parametrize("by", ["a reader", "another writer"])
def test_a_folder_put_there_between_the_two_renames_is_replaced(tmp_path, monkeypatch, by):
    """A reader moves the old bundle back; another writer puts a new one there; the last writer wins."""
    out, rename, seen = tmp_path / "out", Path.rename, []
    write_bundle(out, b"old")

    def then_interrupt(self, target):
        result = rename(self, target)
        if "kerasformer-old" in str(target) and not seen:
            seen.append(None)
            if by == "another writer":
                write_bundle(out, b"of another process")
            seen.append(content(out))
        return result

    monkeypatch.setattr(Path, "rename", then_interrupt)
    publish_new(out)
    assert seen[1] == (b"old" if by == "a reader" else b"of another process")
    assert content(out) == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_bundle_of_another_writer_needs_overwrite(tmp_path, monkeypatch):
    out, flush = tmp_path / "out", publishing._flush

    def then_publish(*paths):
        flush(*paths)
        monkeypatch.setattr(publishing, "_flush", flush)
        publish_new(out, b"of another process")

    monkeypatch.setattr(publishing, "_flush", then_publish)
    with pytest.raises(BundleError, match="already exists"), bundle.staging(out) as folder:
        write_bundle(folder)
        bundle.publish(folder, out)
    assert content(out) == b"of another process"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


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
    with pytest.raises(BundleError, match="could not be written.*choose another"):
        publish_new(tmp_path / location)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_read_only_folder_raises(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path))

    monkeypatch.setattr(publishing.tempfile, "mkdtemp", refuse)  # permissions do not stop root
    with pytest.raises(BundleError, match="could not be written: .*[Pp]ermission"):
        publish_new(tmp_path / "out")
    assert not list(tmp_path.iterdir())
