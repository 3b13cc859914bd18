"""The Kotlin of model cards compiles against the declarations of LiteRT's sources."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.code_blocks import programs
from tests.export.card.test_card import MODELS, written
from tests.foreign.environments import HERE, HOME, need

# As in litert/kotlin/src/main/kotlin of google-ai-edge/LiteRT, 2.1 and later.
DECLARATIONS = """
package com.google.ai.edge.litert

import android.content.AssetManager

enum class Accelerator { CPU, GPU, NPU }

abstract class TensorBuffer : AutoCloseable {
    abstract fun writeInt(data: IntArray)
    abstract fun writeFloat(data: FloatArray)
    abstract fun readFloat(): FloatArray
}

abstract class CompiledModel : AutoCloseable {
    class Options(vararg val accelerators: Accelerator)

    abstract fun createInputBuffer(inputName: String, signature: String = ""): TensorBuffer
    abstract fun createOutputBuffer(outputName: String, signature: String = ""): TensorBuffer
    abstract fun run(inputs: Map<String, TensorBuffer>, outputs: Map<String, TensorBuffer>, signature: String = "")

    companion object {
        fun create(assetManager: AssetManager, assetName: String, options: Options): CompiledModel = TODO()
    }
}
"""


def test_the_kotlin_of_cards_compiles(tmp_path):
    need("kotlin")
    if shutil.which("java") is None:
        pytest.skip("Kotlin's compiler needs Java")
    (jars,) = (HOME / "kotlin").glob("lib/python*/site-packages/run_kotlin_kernel/jars")
    (tmp_path / "declarations.kt").write_text(DECLARATIONS)
    for name, model in MODELS.items():
        folder = tmp_path / name
        folder.mkdir()
        written(folder, model())
        (block,) = programs(folder, "kotlin")
        (tmp_path / f"{name}.kt").write_text(block)
    sources = [str(path) for path in (HERE.parent / "kotlin" / "android.kt", *sorted(tmp_path.glob("*.kt")))]
    compiler = ["org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-stdlib", "-no-reflect", "-Werror"]
    library = ":".join(map(str, jars.glob("kotlin-stdlib-*")))
    command = ["java", "-cp", f"{jars}/*", *compiler, "-classpath", library, "-d", str(tmp_path / "classes"), *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
