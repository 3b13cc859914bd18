"""Whether the tests notice defects: `python -m benchmarks.mutants [--only NAME …] [--out FILE.json]`.

A mutant is a copy of the source with one small, plausible slip. The forty below were chosen by reading the code and not
the tests, so that the share of those that a test notices tells how many other slips would be noticed. For each, the
closest tests run first, and, if all of them pass, those of `tests/core`; both end at the first failure. A test that
fails without the mutant, too, does not count.

    python -m benchmarks.mutants --check                # whether every mutant still applies to the source
    python -m benchmarks.mutants --unmutated            # whether the tests pass in a copy without a mutant
    python -m benchmarks.mutants --near --only NAME     # the closest tests alone
    python -m benchmarks.mutants --out mutants.json     # all; continues where an earlier run was stopped
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks import quiet_environment

ROOT = Path(__file__).parents[1]
MARKS = "not grid and not release"
"""The default expression of `pyproject.toml`."""
ALL = "tests/core"
"""Tests that run if the closest ones pass."""
_FAILED = re.compile(r"^\S* (tests/\S+\.py::.*)$|^ERROR (tests/\S+\.py)\b", re.MULTILINE)
"""A failed test, in the line of `tests/conftest.py`; or a file that cannot be imported, in the summary of pytest."""
_DIED = re.compile(r'File "\S*?/(tests/\S+)", line \d+ in (test_\w+)')
"""The test in which the process died, in the traceback of `faulthandler`."""
_WHERE = """
import importlib.util
for name in ("kerasformer", "kerasformer.export", "kerasformer.zoo"):
    print(importlib.util.find_spec(name).origin)
"""


@dataclass(frozen=True)
class Mutant:
    """A slip in the source.

    Attributes:
        name: Name for the command line and the results.
        file: The changed file, relative to the repository.
        before: Text that the file contains exactly once.
        after: Text that takes its place.
        wrong: What is wrong then.
        near: Tests that are closest, as paths or ids of pytest.
    """

    name: str
    file: str
    before: str
    after: str
    wrong: str
    near: tuple[str, ...]

    def applied(self, source: str) -> str:
        """Returns the source with the slip.

        Raises:
            ValueError: the source does not contain the text exactly once, or the result is not another program.
        """
        count = source.count(self.before)
        if count != 1:
            raise ValueError(f"{self.name}: {self.file} must contain the text {self.before!r} once. Received: {count}")
        mutated = source.replace(self.before, self.after)
        try:
            same = _program(mutated) == _program(source)
        except SyntaxError as error:
            raise ValueError(f"{self.name}: {self.file} cannot be compiled with {self.after!r}: {error}") from error
        if same:
            raise ValueError(f"{self.name}: {self.file} is the same program with {self.after!r}")
        return mutated


@cache
def _program(source: str) -> str:
    """Returns what a source means, without comments and spaces."""
    return ast.dump(ast.parse(source))


@dataclass(frozen=True)
class Result:
    """What the tests made of a mutant.

    Attributes:
        verdict: `"killed"`, `"survived"`, or `"open"` if only the closest tests were run, and passed.
        by: The test that failed, or how the process ended; empty unless killed.
        stage: `"near"` or `"all"`, the tests that were run last.
        seconds: Time of all tests of the mutant.
    """

    verdict: str
    by: str
    stage: str
    seconds: float


MUTANTS: dict[str, tuple[Mutant, ...]] = {
    "layers": (
        Mutant(
            "window-one-wider",
            "kerasformer/layers/masks.py",
            "return key > query - window",
            "return key >= query - window",
            "A causal sliding window shows one token more.",
            ("tests/core/layers/test_attention.py", "tests/core/layers/test_cache.py"),
        ),
        Mutant(
            "rolling-cache-one-slot-short",
            "kerasformer/layers/cache.py",
            "return window + margin - 1",
            "return window + margin - 2",
            "After all tokens of the margin were discarded, the oldest key of the window has been overwritten.",
            ("tests/core/layers/test_cache.py", "tests/core/export/test_rolling_caches.py"),
        ),
        Mutant(
            "dynamic-rotary-length-one-short",
            "kerasformer/layers/attention_spec.py",
            "length = ops.max(positions, axis=2, keepdims=True) + 1.0",
            "length = ops.max(positions, axis=2, keepdims=True)",
            "Rotary scaling by the length of the text takes the last position for the length.",
            ("tests/core/layers/test_positions.py", "tests/core/zoo/test_rotary_config.py"),
        ),
        Mutant(
            "alibi-slopes-of-further-heads",
            "kerasformer/layers/positions/alibi.py",
            "np.arange(1, 2 * (num_heads - power), 2)",
            "np.arange(1, num_heads - power + 1)",
            "If the number of heads is not a power of two, the further heads have slopes that others have already.",
            ("tests/core/layers/test_positions.py",),
        ),
        Mutant(
            "int8-key-scales-of-other-heads",
            "kerasformer/layers/primitives.py",
            "queries = queries * np.repeat(scales.key, spec.group_size, axis=0)",
            "queries = queries * np.tile(scales.key, (spec.group_size, 1, 1))",
            "With grouped heads and an int8 cache, queries are multiplied by the scales of another group's keys.",
            ("tests/core/export/test_int8_caches.py",),
        ),
        Mutant(
            "layer-norm-epsilon-outside-the-root",
            "kerasformer/layers/primitives.py",
            "y = centered * ops.rsqrt(variance + epsilon)",
            "y = centered / (ops.sqrt(variance) + epsilon)",
            "Layer normalization adds epsilon to the standard deviation instead of the variance.",
            ("tests/core/layers/test_primitives.py", "tests/core/layers/test_parity.py"),
        ),
    ),
    "weights": (
        Mutant(
            "interleaved-heads-saved-side-by-side",
            "kerasformer/models/layouts.py",
            "return np.concatenate(grouped, axis=1).reshape(",
            "return np.concatenate(grouped, axis=0).reshape(",
            "Saving writes fused queries, keys and values one after the other instead of by heads.",
            ("tests/core/zoo/test_round_trip.py",),
        ),
        Mutant(
            "float16-range-of-positive-weights",
            "kerasformer/models/weights.py",
            "max(-tensor.min(), tensor.max()) > np.finfo(dtype).max",
            "tensor.max() > np.finfo(dtype).max",
            "Weights below the range of float16 become minus infinity instead of being reported.",
            ("tests/core/zoo/test_wrong_weights.py",),
        ),
        Mutant(
            "gamma-and-beta-swapped",
            "kerasformer/models/weight_table.py",
            r"""re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", self.renamed.get(name, name)))""",
            r"""re.sub(r"\.gamma$", ".bias", re.sub(r"\.beta$", ".weight", self.renamed.get(name, name)))""",
            "Scales and biases of norms are exchanged in checkpoints with the names of TensorFlow.",
            ("tests/core/zoo/test_older_checkpoints.py", "tests/core/zoo/test_loading.py"),
        ),
        Mutant(
            "ignored-tensors-by-their-beginning",
            "kerasformer/models/weight_table.py",
            "any(re.fullmatch(pattern, bare) for pattern in self.ignored)",
            "any(re.match(pattern, bare) for pattern in self.ignored)",
            "An unknown tensor whose name begins like one without parameters is dropped silently.",
            ("tests/core/zoo/test_wrong_weights.py", "tests/core/zoo/test_loading.py"),
        ),
        Mutant(
            "dynamic-rotary-with-a-given-length",
            "kerasformer/models/rotary_config.py",
            'if max_length is not None and (rope_type == "dynamic" or "original_length" not in values):',
            'if max_length is not None and "original_length" not in values:',
            "Dynamic rotary scaling grows from another length than max_position_embeddings.",
            ("tests/core/zoo/test_rotary_config.py",),
        ),
    ),
    "tokenization": (
        Mutant(
            "odd-token-to-the-first-text",
            "kerasformer/tokenization/truncation.py",
            "(shorter, budget - shorter) if first <= second else",
            "(shorter, budget - shorter) if first < second else",
            "Of two equally long texts that share an odd number of tokens, the first keeps one more.",
            (
                "tests/core/tokenization/test_parity.py",
                "tests/core/tokenization/test_tokenizer.py",
            ),
        ),
        Mutant(
            "chunk-after-the-last-one",
            "kerasformer/tokenization/truncation.py",
            "starts = range(0, max(count - size, 0) + step, step)",
            "starts = range(0, count, step)",
            "A text with overlapping chunks gets another one, which lies within the last.",
            (
                "tests/core/tokenization/test_parity.py",
                "tests/core/tokenization/test_tokenizer.py",
            ),
        ),
        Mutant(
            "assistant-mask-one-token-early",
            "kerasformer/tokenization/chats.py",
            "(starts[row] < end) & (ends[row] > start) &",
            "(starts[row] < end) & (ends[row] >= start) &",
            "The token before an answer counts as one of the assistant's.",
            ("tests/core/tokenization/chat_templates/test_parity.py",),
        ),
        Mutant(
            "row-as-long-as-a-static-length",
            "kerasformer/tokenization/padding.py",
            "min((width for width in widths if width >= longest), default=longest)",
            "min((width for width in widths if width > longest), default=longest)",
            "A row that has exactly one of the lengths of a static graph is padded to the next one.",
            ("tests/core/tokenization/test_tokenizer.py",),
        ),
        Mutant(
            "stream-forgets-what-it-dropped",
            "kerasformer/tokenization/streaming.py",
            "            self._returned = len(self._decode(self._ids))\n",
            "",
            "After 32 tokens, a stream returns no text until it would be longer than all text before.",
            ("tests/core/tokenization/test_streaming.py",),
        ),
    ),
    "decoding": (
        Mutant(
            "end-allowed-as-the-first-token",
            "kerasformer/generation/rules.py",
            "if history.num_new < (config.min_new_tokens or 0):",
            "if 0 < history.num_new < (config.min_new_tokens or 0):",
            "The minimum length does not apply to the first token.",
            ("tests/core/generation/test_rules.py",),
        ),
        Mutant(
            "nucleus-one-token-larger",
            "kerasformer/generation/selection.py",
            "first_above(sums, nextafter(mass, 0))",
            "first_above(sums, mass)",
            "Top-p keeps a further token if those before it hold exactly the mass.",
            ("tests/core/generation/test_selection.py", "tests/core/generation/test_samplers.py"),
        ),
        Mutant(
            "random-numbers-of-other-rows",
            "kerasformer/generation/loop.py",
            "numbers if len(outputs) == self._count else numbers[outputs]",
            "numbers[: len(outputs)]",
            "After a row has ended, the rows after it sample with the random numbers of others.",
            ("tests/core/generation/test_sampled_runs.py", "tests/core/generation/test_loop.py"),
        ),
        Mutant(
            "ended-candidates-beyond-the-beams",
            "kerasformer/generation/beams.py",
            "np.argwhere(ended[:, : self.config.num_beams])",
            "np.argwhere(ended)",
            "Beam search also stores hypotheses that end beyond the best as many as there are beams.",
            ("tests/core/generation/test_beams.py",),
        ),
        Mutant(
            "beams-that-never-stop-early-do",
            "kerasformer/generation/beams.py",
            'self.config.early_stopping == "never" and self.config.length_penalty > 0',
            'self.config.early_stopping == "never" and self.config.length_penalty < 0',
            'With early_stopping="never", the bound of what can still be found has the wrong length.',
            ("tests/core/generation/test_beams.py",),
        ),
        Mutant(
            "stop-string-at-the-end-of-the-prompt",
            "kerasformer/generation/stopping.py",
            "max(0, known - len(string) + 1)",
            "max(0, known - len(string))",
            "A stop string that the prompt ends with ends the answer at its first token.",
            ("tests/core/generation/test_stopping.py",),
        ),
    ),
    "engines": (
        Mutant(
            "litert-copy-without-the-last-slot",
            "kerasformer/engines/litert/step.py",
            "self._engine.copy(source, new.caches[name], self._used(name, row.position))",
            "self._engine.copy(source, new.caches[name], self._used(name, row.position - 1))",
            "The copy of a row lacks its last key and value.",
            ("tests/core/engines/test_litert.py", "tests/core/engines/test_steps.py"),
        ),
        Mutant(
            "litert-reach-without-the-encoded-text",
            "kerasformer/engines/litert/step.py",
            "return max(self.position + count, self.encoded)",
            "return self.position + count",
            "The first steps of an answer attend only to the beginning of a long encoded text.",
            ("tests/core/engines/test_litert.py", "tests/core/engines/test_steps.py"),
        ),
        Mutant(
            "onnx-positions-of-padded-rows-from-one",
            "kerasformer/engines/onnx/step.py",
            "np.maximum(np.cumsum(self.mask(length), axis=1) - 1, 0)",
            "np.cumsum(self.mask(length), axis=1)",
            "In a batch with padding, positions are one too high.",
            ("tests/core/engines/test_onnx_runtime.py", "tests/core/engines/test_steps.py"),
        ),
        Mutant(
            "onnx-rows-permuted-the-other-way",
            "kerasformer/engines/onnx/step.py",
            "self._process(ids[np.argsort(cache_rows)], state)",
            "self._process(ids[cache_rows], state)",
            "After a permutation of three rows, tokens reach the caches of other rows.",
            ("tests/core/engines/test_onnx_runtime.py", "tests/core/engines/test_steps.py"),
        ),
        Mutant(
            "likelihood-one-finite-row-suffices",
            "kerasformer/engines/likelihood.py",
            "if not np.isfinite(greatest).all():",
            "if not np.isfinite(greatest).any():",
            "The likelihood of a text is NaN instead of an error if another text of the batch is finite.",
            (
                "tests/core/generation/test_likelihood.py",
                "tests/core/engines/test_likelihood.py",
                "tests/core/pipelines/test_likelihood.py",
            ),
        ),
        Mutant(
            "saved-state-checksum-not-compared",
            "kerasformer/engines/saved_state.py",
            'if f"{zlib.crc32(content.data, _header_checksum(header)):08x}" != checksum:',
            "if not checksum:",
            "The file of a saved state with changed bytes is used.",
            ("tests/core/engines/test_saved_states.py",),
        ),
    ),
    "bundles and files": (
        Mutant(
            "digest-without-external-weights",
            "kerasformer/bundle/manifest.py",
            'if name in models or name.endswith(".onnx_data") or name.startswith("variables/")',
            'if name in models or name.startswith("variables/")',
            "Two ONNX bundles that differ in their external weights alone count as the same model.",
            ("tests/core/bundle/test_bundle.py", "tests/core/engines/test_saved_states.py"),
        ),
        Mutant(
            "number-that-is-a-boolean",
            "kerasformer/basics/arguments.py",
            "if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):",
            "if not isinstance(value, types):",
            "A manifest with true in the place of an integer is accepted.",
            ("tests/core/bundle/test_bundle.py", "tests/core/bundle/test_interface.py"),
        ),
        Mutant(
            "repair-removes-the-only-copy",
            "kerasformer/files/publishing.py",
            "if any((destination / mark).is_file() for mark in _CONTENT):",
            "if destination.exists():",
            "The old bundle is removed although another folder, which is none, has taken its place.",
            ("tests/core/files/test_publishing.py",),
        ),
        Mutant(
            "link-out-of-the-folder",
            "kerasformer/files/sources.py",
            "target = local_path(path)",
            "target = folder.resolve() / name",
            "A file of a checkpoint may be a link to any other file of the machine.",
            ("tests/core/files/test_files.py", "tests/core/files/test_sources.py"),
        ),
        Mutant(
            "adapter-scale-by-the-common-rank",
            "kerasformer/bundle/adapters.py",
            "self.alpha_pattern, module, self.alpha)), self.rank_of(module)",
            "self.alpha_pattern, module, self.alpha)), self.rank",
            "A module with a rank of its own has the scale of the other modules.",
            ("tests/core/zoo/test_adapters.py", "tests/core/engines/test_adapters.py"),
        ),
    ),
    "exporters": (
        Mutant(
            "tflite-rows-at-the-first-position",
            "export/formats/tflite/signatures.py",
            "cache_of_slots(tensors, input_pos[row], own.capacity, cache_length, own.scales[layer])",
            "cache_of_slots(tensors, input_pos[0], own.capacity, cache_length, own.scales[layer])",
            "In a step of several texts, all write to the slot of the first one.",
            ("tests/core/export/formats/test_to_tflite.py", "tests/core/export/test_cache_lengths.py"),
        ),
        Mutant(
            "tflite-window-without-room-for-padding",
            "export/formats/tflite/signatures.py",
            "margin = max((MIN_REWIND, *(length for length in steps if length <= capacity)))",
            "margin = MIN_REWIND",
            "The padding of a long prefill overwrites keys in the window of a short cache.",
            (
                "tests/core/export/test_options.py",
                "tests/core/export/test_rolling_caches.py",
            ),
        ),
        Mutant(
            "onnx-zero-point-in-the-middle",
            "export/formats/onnx/matrix_nodes.py",
            "return scale, round(-low / scale)",
            "return scale, 128",
            "Static activations whose range is not symmetric are clipped on one side.",
            ("tests/core/export/formats/test_onnx_recipes.py",),
        ),
        Mutant(
            "onnx-pairs-of-negative-levels",
            "export/formats/onnx/rounding.py",
            "return np.maximum(positive, -negative)",
            "return positive",
            "Two adjacent negative weights may be so large that their sum saturates on CPUs without VNNI.",
            ("tests/core/export/formats/test_onnx_rounding.py",),
        ),
        Mutant(
            "rotation-without-the-scales-of-norms",
            "export/quantization/rotation.py",
            "add(kernel, lambda value: rotation.of_columns(value * scale))",
            "add(kernel, lambda value: rotation.of_columns(value))",
            "Norms lose their scales when the hidden states are rotated.",
            ("tests/core/export/quantization/test_rotation.py",),
        ),
        Mutant(
            "errors-of-corrected-weights",
            "export/quantization/compensation.py",
            "errors[i] = original[i] - rounded",
            "errors[i] = target - rounded",
            "Rounding with calibration passes on only the last error of a weight, not that against the original.",
            ("tests/core/export/quantization/test_compensation.py",),
        ),
        Mutant(
            "not-a-number-is-within-the-tolerance",
            "kerasformer/bundle/figures.py",
            "if not self.max_error <= limits.tolerance:",
            "if self.max_error > limits.tolerance:",
            "A bundle whose largest error is NaN passes the comparison with Keras.",
            ("tests/core/engines/test_comparison.py", "tests/core/export/test_verify.py"),
        ),
    ),
}
"""The mutants by the part of the package that they change."""


def named() -> dict[str, Mutant]:
    return {mutant.name: mutant for mutants in MUTANTS.values() for mutant in mutants}


def problems(mutants: Iterable[Mutant], root: Path = ROOT) -> list[str]:
    """Returns a line for each mutant that does not apply to the source, or whose closest tests do not exist."""
    found = []
    for mutant in mutants:
        try:
            mutant.applied((root / mutant.file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            found.append(str(error))
        missing = [path for path in mutant.near if not (root / path.partition("::")[0]).exists()]
        found += [f"{mutant.name}: the tests {path} do not exist" for path in missing]
    return found


@contextmanager
def copied_tree(mutant: Mutant | None = None) -> Iterator[Path]:
    """Provides a copy of the repository, from which the package is imported, with or without a mutant.

    `zoo/` and `export/` are also linked to their places in the package; tests that read the tree follow no linked
    folder and so find the layout of the repository.
    """
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with TemporaryDirectory(prefix="kerasformer-mutant-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder, "tree")
        Path(folder, "tmp").mkdir()
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():  # otherwise it was removed and not committed yet
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
        for room in ("zoo", "export"):
            (tree / "kerasformer" / room).symlink_to(Path("..", room), target_is_directory=True)
        if mutant is not None:
            file = tree / mutant.file
            file.write_text(mutant.applied(file.read_text(encoding="utf-8")), encoding="utf-8")
        _check_imports(tree)
        yield tree


def _environment(tree: Path) -> dict[str, str]:
    """Returns the environment of tests in a copy, whose temporary files lie beside it."""
    return {**quiet_environment(), "PYTHONPATH": str(tree), "TMPDIR": str(tree.parent / "tmp")}


def _check_imports(tree: Path) -> None:
    """Checks that the package is imported from a copy, and not from where it is installed.

    Raises:
        RuntimeError: it is not.
    """
    command, environment = [sys.executable, "-c", _WHERE], _environment(tree)
    answer = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = answer.stdout.splitlines()
    if len(found) != 3 or not all(Path(path).is_relative_to(tree) for path in found):
        raise RuntimeError(f"The package must be imported from the copy {tree}. Received: {found}")


@dataclass(frozen=True)
class Suite:
    """The tests that run, and how.

    Attributes:
        marks: Expression that selects tests by their marks.
        timeout: Seconds that each of the two runs of a mutant may take.
        near: Whether the closest tests run alone.
        broken: Tests that have failed without a mutant, too, and are left out from then on.
    """

    marks: str
    timeout: float
    near: bool = False
    broken: list[str] = field(default_factory=list)

    def failure(self, tree: Path, paths: Sequence[str], without: Sequence[str] = ()) -> str | None:
        """Runs tests in a copy, in one process, up to the first that fails.

        Args:
            tree: The copy.
            paths: Paths or ids of the tests.
            without: Paths or ids of those among them that do not run.

        Returns:
            The test that failed, or how the process ended; `None` if all tests passed.

        Raises:
            RuntimeError: there are no such tests.
        """
        options = ["-x", "-q", "-p", "no:cacheprovider", "-n", "0", "--color=no", "-m", self.marks]
        options += [f"--deselect={path}" for path in (*without, *self.broken)]
        printed = tree.parent / "printed.txt"  # not a pipe, which processes that tests leave behind would keep open
        with printed.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *paths],
                cwd=tree,
                env=_environment(tree),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            status = process.wait(self.timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # also the processes that tests have started
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return f"no end within {self.timeout:g} s"
            raise
        output = printed.read_text(encoding="utf-8", errors="replace")
        if status == 0 or (status == 5 and "deselected" in output):  # all of them are of another tier
            return None
        failed, died = _FAILED.search(output), _DIED.search(output)
        if status in (1, 2) and failed is not None:
            return failed[1] or failed[2]
        if status in (4, 5):
            raise RuntimeError(f"Tests were expected: {', '.join(paths)}. Received:\n{output[-2000:]}")
        end = f"signal {-status}" if status < 0 else f"status {status}"
        return f"the process ended with {end}" + ("" if died is None else f" in {died[1]}::{died[2]}")

    def first_failure(self, tree: Path, paths: Sequence[str]) -> tuple[str, str | None]:
        """Runs the closest tests in a copy and, if they pass, the others, unless `near` is set.

        Returns:
            `"near"` or `"all"`, the tests that were run last, and their failure as in `failure`.
        """
        failed = self.failure(tree, paths)
        if failed is not None or self.near:
            return "near", failed
        return "all", self.failure(tree, [ALL], without=paths)

    def killed_by(self, tree: Path, paths: Sequence[str]) -> tuple[str, str | None]:
        """Runs the tests on a mutant, as `first_failure`, without those that also fail without it."""
        while True:
            stage, failed = self.first_failure(tree, paths)
            if failed is None or not failed.startswith("tests/"):
                return stage, failed
            with copied_tree() as unchanged:
                if self.failure(unchanged, [failed]) is None:
                    return stage, failed
            self.broken.append(failed)


def tried(mutant: Mutant, suite: Suite) -> Result:
    start = time.monotonic()
    with copied_tree(mutant) as tree:
        stage, by = suite.killed_by(tree, mutant.near)
    verdict = "killed" if by is not None else "open" if suite.near else "survived"
    return Result(verdict, by or "", stage, round(time.monotonic() - start, 1))


def _read(path: Path | None) -> dict[str, Result]:
    if path is None or not path.exists():
        return {}
    return {name: Result(**content) for name, content in json.loads(path.read_text(encoding="utf-8")).items()}


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(named()), help="mutants; all by default")
    parser.add_argument("--marks", default=MARKS, help=f"tests by their marks; {MARKS!r} by default")
    parser.add_argument("--out", type=Path, help="JSON file of results, to which those that it lacks are added")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds of each run of tests; 3600 by default")
    parser.add_argument("--near", action="store_true", help="run the closest tests alone")
    parser.add_argument("--check", action="store_true", help="run nothing, and check that every mutant applies")
    parser.add_argument("--unmutated", action="store_true", help="run the tests without a mutant")
    options = parser.parse_args(arguments)
    if unknown := set(options.only) - set(named()):
        parser.error(f"unknown mutants: {', '.join(sorted(unknown))}. Expected some of {', '.join(named())}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    options, console = _arguments(arguments), Console(width=None if sys.stdout.isatty() else 180)
    if found := problems(named().values()):
        console.print("\n".join(found), style="red", markup=False)
        return 1
    if options.check:
        console.print(f"{len(named())} mutants apply")
        return 0
    mutants = [named()[name] for name in options.only]
    suite = Suite(options.marks, options.timeout, options.near)
    if options.unmutated:
        paths = tuple(dict.fromkeys(path for mutant in mutants for path in mutant.near))
        with copied_tree() as tree:
            _, failed = suite.first_failure(tree, paths)
        console.print(f"fails without a mutant: {failed}" if failed else "all pass without a mutant", markup=False)
        return int(failed is not None)
    results = _read(options.out)
    for mutant in mutants:
        if mutant.name in results and results[mutant.name].verdict != "open":
            continue
        results[mutant.name] = result = tried(mutant, suite)
        console.print(f"{mutant.name}: {result.verdict} {result.by} ({result.seconds:.0f} s)", markup=False)
        if options.out is not None:
            content = {name: asdict(each) for name, each in results.items()}
            options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for mutant in mutants:
        if results[mutant.name].verdict == "survived":
            console.print(f"{mutant.name} survived: {mutant.wrong}", style="red", markup=False)
    counts = Counter(results[mutant.name].verdict for mutant in mutants)
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + f" of {len(mutants)}")
    if suite.broken:
        console.print(f"Left out, since they fail without a mutant: {', '.join(suite.broken)}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
