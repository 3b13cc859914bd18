"""Asks the page's own tokenizer, in Node, whether it reads the texts that a bundle carries as its model does."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from kerasformer.errors import BundleError
from kerasformer.tokenization.hard_texts import FILE

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
    """Compares the ids that the page would make with those of the model.

    Args:
        bundle: Its folder.
        library: The page's library.
        tokenizers: The module of `@huggingface/tokenizers` that it loads.

    Returns:
        Whether the question could be asked: Node is there, and the bundle, of a version that carries such texts, has
        some. The page asks it again when it opens the bundle.

    Raises:
        BundleError: it reads one of them otherwise; names the text.
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
        except (OSError, ValueError, subprocess.TimeoutExpired):  # an old Node
            return False
    if problem is not None:
        raise BundleError(f"{problem}. Received: {bundle}")
    return True
