"""The cache of packed weights: damaged and partial files, concurrent creation, and the size limit."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kerasformer.engines import weight_cache
from kerasformer.engines.weight_cache import entries, folder_of, key_of, load, trim
from kerasformer.errors import InputError


class Maker:
    """Reads or writes a file, and counts the writes."""

    def __init__(self, content: bytes = b"packed") -> None:
        self.content, self.written, self.read = content, 0, 0

    def __call__(self, path: Path) -> bytes:
        if path.is_file():
            self.read += 1
            return path.read_bytes()
        self.written += 1
        path.write_bytes(self.content)
        return self.content


def test_a_file_is_created_once(tmp_path: Path) -> None:
    make = Maker()
    assert [load(tmp_path, "key", make) for _ in range(3)] == [b"packed"] * 3
    assert (make.written, make.read) == (1, 2)
    load(tmp_path, "other", make)
    assert make.written == 2


@pytest.mark.parametrize("damaged", [b"", b"pack", b"packeD", b"packed and more"])
def test_a_damaged_file_is_created_again(tmp_path: Path, damaged: bytes) -> None:
    make = Maker()
    load(tmp_path, "key", make)
    (entry,) = entries(tmp_path)
    entry.path.write_bytes(damaged)
    assert load(tmp_path, "key", make) == b"packed"
    assert (make.written, make.read) == (2, 0)
    assert [each.path.read_bytes() for each in entries(tmp_path)] == [b"packed"]


def test_files_of_a_killed_process_are_not_used(tmp_path: Path) -> None:
    def dies(path: Path) -> None:
        path.write_bytes(b"pac")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(tmp_path, "key", dies)
    assert not list(tmp_path.iterdir())
    killed = tmp_path / "key-1234.unfinished"
    killed.write_bytes(b"pac")
    make = Maker()
    assert load(tmp_path, "key", make) == b"packed" and killed.exists()
    os.utime(killed, (time.time() - 7200,) * 2)
    trim(tmp_path, 1000)
    assert not killed.exists()


def test_nothing_is_cached_if_no_file_is_written(tmp_path: Path) -> None:
    assert load(tmp_path, "key", lambda path: 3) == 3
    assert not list(tmp_path.iterdir())


def test_concurrent_creation(tmp_path: Path) -> None:
    makers = [Maker() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda make: load(tmp_path, "key", make), makers)) == {b"packed"}
    assert len(entries(tmp_path)) == 1
    assert not list(tmp_path.glob("*.unfinished"))


def test_the_least_recently_used_file_is_removed(tmp_path: Path) -> None:
    for age, key in enumerate(("new", "old", "oldest")):
        load(tmp_path, key, Maker(key.encode() * 10))
        (path,) = tmp_path.glob(f"{key}-*")
        os.utime(path, (time.time() - 100 * age - 50,) * 2)
    load(tmp_path, "oldest", Maker())  # counts as a use
    load(tmp_path, "next", Maker(b"12345"), max_bytes=100)
    assert [entry.path.name.split("-")[0] for entry in entries(tmp_path)] == ["next", "oldest", "new"]
    assert trim(tmp_path, 0) == 5 + 60 + 30
    assert not entries(tmp_path)


def test_keys_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert key_of("a", "b") == key_of("a", "b") != key_of("a", "c")
    processor = weight_cache._processor()
    monkeypatch.setattr(weight_cache, "_processor", lambda: processor + " newer")
    other = key_of("a", "b")
    monkeypatch.undo()
    assert other != key_of("a", "b")
    monkeypatch.setenv("KERASFORMER_CACHE", str(tmp_path / "chosen"))
    assert folder_of(True) == tmp_path / "chosen" and (tmp_path / "chosen").is_dir()
    assert folder_of(None) is None and folder_of(False) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="must be a folder"):
        folder_of(tmp_path / "file")


def test_a_user_without_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("KERASFORMER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "home", home)
    assert weight_cache.user_folder() == tmp_path / "kerasformer"
    monkeypatch.delenv("XDG_CACHE_HOME")
    with pytest.raises(InputError, match="Set the environment variable KERASFORMER_CACHE"):
        folder_of(True)
