"""Runs the page's tokenizer in Node and compares its token ids with those of a bundle's model."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from kerasformer.errors import BundleError
from kerasformer.tokenization import FILE

_SECONDS = 60
_PROGRAM = """
import { readFileSync } from "node:fs";
import * as library from "./tokenizers.mjs";
import { checkTexts } from "./library/tokenization/hard_texts.js";
import { Tokenizer } from "./library/tokenization/tokenizer.js";

const [content, settings, texts] = process.argv.slice(2).map((path) => JSON.parse(readFileSync(path, "utf-8")));
let problem = null;
try {
  checkTexts(new Tokenizer(library, content, settings), texts);
} catch (error) {
  problem = error.message;
}
console.log(JSON.stringify({ problem }));
"""


def check_tokens(bundle: Path, library: Path, tokenizers: Path) -> bool:
    """Compares the token ids of the page's tokenizer with those of the model.

    The page repeats this check when it opens the bundle.

    Args:
        bundle: The folder of the bundle.
        library: The folder of the page's library.
        tokenizers: The module of `@huggingface/tokenizers` that the library loads.

    Returns:
        Whether the check was possible: Node is installed, and the bundle contains texts for this check.

    Raises:
        BundleError: The ids of a text differ; the message contains the text.
    """
    node, files = shutil.which("node"), [bundle / name for name in ("tokenizer.json", "tokenizer_config.json", FILE)]
    if node is None or not all(path.is_file() for path in files):
        return False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(library, folder / "library")
        shutil.copyfile(tokenizers, folder / "tokenizers.mjs")
        (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
        (folder / "check.js").write_text(_PROGRAM, encoding="utf-8")
        command = [node, str(folder / "check.js"), *(str(path.resolve()) for path in files)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=_SECONDS)
            problem = json.loads(done.stdout)["problem"]
        except (OSError, ValueError, subprocess.TimeoutExpired):  # Node is too old
            return False
    if problem is not None:
        raise BundleError(f"{problem}. Received: {bundle}")
    return True
