"""The check of TFLite files on LiteRT's GPU delegate: what it reports, and what can be wrong with a machine or a file.

What the delegate computes is in tests/core/export/formats/test_gpu_graph.py and test_gpu_rules.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kerasformer.cli import app
from kerasformer.cli.verify_command import verify
from kerasformer.errors import BundleError, InputError
from kerasformer.export.formats.tflite import flatbuffer
from kerasformer.tools.gpu import check_gpu, driver, find_driver
from tests.core.export.formats.test_gpu_rules import CASES, floats, graph
from tests.core.export.gpu import need_gpu
from tests.core.export.text_models import shared_bundle


def written(path: Path, model: object) -> Path:
    path.write_bytes(bytes(flatbuffer._pack(model)))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that the delegate runs."""
    return written(tmp_path / "tanh.tflite", graph("TANH", [floats(1, 1, 5, 4)], [floats(1, 1, 5, 4)]))


def test_drivers(tmp_path, monkeypatch):
    """The one that is named, those of a machine with a GPU, one in software, or an error with what installs one."""
    monkeypatch.setattr(driver.ctypes.util, "find_library", lambda name: f"lib{name}.so.1")
    named, other = tmp_path / "named.json", tmp_path / "software.json"
    named.write_text("{}")
    assert find_driver({"VK_DRIVER_FILES": str(named)}) == {"VK_DRIVER_FILES": str(named)}
    with pytest.raises(InputError, match="VK_ICD_FILENAMES must name files of Vulkan drivers. Received: .*software"):
        find_driver({"VK_ICD_FILENAMES": str(other)})
    monkeypatch.setattr(driver, "_SYSTEM", (str(tmp_path / "none"),))
    monkeypatch.setattr(driver, "_SOFTWARE", (str(other),))
    with pytest.raises(InputError, match="needs a Vulkan driver. Found: none in .*apt-get install"):
        find_driver({})
    other.write_text("{}")
    assert find_driver({}) == {"VK_ICD_FILENAMES": str(other)}
    monkeypatch.setattr(driver, "_DEVICES", (str(tmp_path / "renderD*"),))
    monkeypatch.setattr(driver, "_SYSTEM", (str(tmp_path),))
    assert find_driver({}) == {"VK_ICD_FILENAMES": str(other)}
    (tmp_path / "renderD128").touch()
    assert find_driver({}) == {}
    (tmp_path / "renderD128").unlink()
    monkeypatch.setattr(driver, "_SOFTWARE", ())
    assert find_driver({}) == {}
    monkeypatch.setattr(driver.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(InputError, match=r"Vulkan's loader, libvulkan.so.1, which was not found; on Debian: apt-get"):
        find_driver({})


def test_files_that_cannot_be_checked(tmp_path):
    other = tmp_path / "other.tflite"
    other.write_bytes(b"not a model")
    with pytest.raises(BundleError, match="A TFLite file was expected. Received: .*other.tflite"):
        check_gpu(other)
    with pytest.raises(BundleError, match="for bundles of the format tflite. Received: onnx"):
        check_gpu(shared_bundle("bert-text-classification", "onnx"))
    with pytest.raises(InputError, match=r"shares must be numbers above 0, up to 1. Received: \(0.0,\)"):
        check_gpu(other, shares=(0.0,))


@pytest.mark.grid
def test_a_driver_that_refuses_and_a_limit_of_time(file, tmp_path, monkeypatch):
    need_gpu()
    late = check_gpu(file, timeout=0.05)
    assert str(late.failure).startswith("it did not end within 0 seconds")
    broken = tmp_path / "driver.json"
    broken.write_text(
        json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": "/none.so", "api_version": "1.3.0"}})
    )
    monkeypatch.setenv("VK_DRIVER_FILES", str(broken))
    report = check_gpu(file)
    assert not report.is_right() and report.adapter == "" and report.failure


@pytest.mark.grid
def test_a_file_without_signatures_is_not_right(tmp_path):
    need_gpu()
    model = graph("TANH", [floats(1, 1, 5, 4)], [floats(1, 1, 5, 4)])
    model.signatureDefs = []
    report = check_gpu(written(tmp_path / "none.tflite", model))
    assert report.failure is not None and not report.is_right()


@pytest.mark.grid
def test_the_command(file, tmp_path):
    """It ends with 0 for a file that is right and with 1 for others, and survives a delegate that does not."""
    need_gpu()
    run = CliRunner().invoke
    right = run(app, ["verify", str(file), "--accelerator", "gpu"])
    assert right.exit_code == 0 and "right: the largest error of 1 outputs is at most 0.001" in right.output
    read = json.loads(run(app, ["verify", str(file), "--accelerator", "gpu", "--json"]).output)
    assert read["right"] and read["outputs"][0]["signature"] == "run" and read["adapter"]
    wrong, fatal = (CASES[rule][0] for rule in ("broadcast-product", "blockwise-weights"))
    result = run(app, ["verify", str(written(tmp_path / "wrong.tflite", wrong)), "--accelerator", "gpu"])
    assert result.exit_code == 1 and "wrong: 1 of 1 outputs differ" in result.output
    assert "broadcast-product" in result.output
    result = run(app, ["verify", str(written(tmp_path / "fatal.tflite", fatal)), "--accelerator", "gpu"])
    assert result.exit_code == 1 and "not run to its end: the delegate ended the process" in result.output


def test_another_accelerator_is_refused(file):
    with pytest.raises(InputError, match="--accelerator must be gpu. Received: 'npu'"):
        verify(str(file), accelerator="npu")
