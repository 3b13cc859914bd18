"""Models for sentence-similarity in LiteRT-LM: what its embedding engine supports, and the files for it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from kerasformer.errors import ExportError
from kerasformer.export.job import ExportJob
from kerasformer.export.targets.litert_lm import litertlm_file
from kerasformer.export.targets.litert_lm.text_encoder import write_embedder, write_encoder
from kerasformer.tokenization import Tokenizer

TASK = "sentence-similarity"


def check(job: ExportJob) -> None:
    """Refuses models whose embeddings LiteRT-LM would compute differently.

    Raises:
        ExportError: The tokenizer is to be in the graph, or does more than to put the same tokens before and after
            every text.
    """
    around(job.model.tokenizer)
    if job.in_graph:
        raise ExportError(
            "LiteRT-LM reads the tokenizer from its own file. Received: tokenizer='in-graph'. Remove tokenizer"
        )


def around(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Returns the ids that the tokenizer puts before and after each text, which LiteRT-LM adds by itself.

    Raises:
        ExportError: They depend on the text, or tokens have a type other than 0.
    """
    added = {tuple(map(tuple, _around(tokenizer, text))) for text in ("a", "a b", "A longer text, with 12 signs.")}
    if len(added) > 1 or any(tokenizer.backend.encode("a").type_ids):
        raise ExportError(
            "LiteRT-LM's embedding engine puts the same tokens before and after every text, all of type 0. Received: a "
            f"tokenizer that encodes 'a' as {tokenizer.encode('a')} with special tokens, and as "
            f"{tokenizer.encode('a', add_special_tokens=False)} without. Export with "
            "format='tflite' and without a target"
        )
    before, after = added.pop()
    return list(before), list(after)


def _around(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int]]:
    """Returns the ids before and after a text; both empty if the text without them is not part of the whole."""
    whole, bare = tokenizer.encode(text), tokenizer.encode(text, add_special_tokens=False)
    starts = [i for i in range(len(whole) - len(bare) + 1) if whole[i : i + len(bare)] == bare]
    if not starts:
        return whole, []  # different for each text, which `around` refuses
    return whole[: starts[0]], whole[starts[0] + len(bare) :]


def write(job: ExportJob, graphs: Path, tokenizer: Path, path: Path) -> None:
    """Writes a `.litertlm` file for the embedding engine.

    Args:
        job: The model.
        graphs: A verified TFLite file with a signature for each length.
        tokenizer: Path of a `tokenizer.json`.
        path: The file.
    """
    with TemporaryDirectory(prefix="kerasformer-") as folder:
        embedder, encoder = Path(folder) / "embedder.tflite", Path(folder) / "encoder.tflite"
        write_embedder(embedder)
        write_encoder(graphs, encoder)
        message = litertlm_file.embedding_metadata(*around(job.model.tokenizer))
        litertlm_file.write_embedding_model(path, message, tokenizer, embedder, encoder)
