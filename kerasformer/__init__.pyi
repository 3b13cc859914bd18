from kerasformer import errors, export, layers, zoo
from kerasformer.pipelines import pipeline
from kerasformer.pipelines.embedding_index import EmbeddingIndex
from kerasformer.tokenization import Tokenizer
from kerasformer.tools import training
from kerasformer.tools.evaluation import evaluate, prompt
from kerasformer.tools.evaluation.choosing import choose
from kerasformer.tools.evaluation.decoding_sweep import sweep
from kerasformer.tools.evaluation.likelihood import next_token_distribution, sequence_logprob
from kerasformer.tools.interpretability.anatomy import anatomy
from kerasformer.tools.interpretability.attention_sources import attention
from kerasformer.tools.interpretability.attribution import attribute
from kerasformer.tools.interpretability.contextual import contextual
from kerasformer.tools.interpretability.lens import logit_lens
from kerasformer.tools.interpretability.projection import projection
from kerasformer.tools.search import search
from kerasformer.zoo import load

__version__: str
__all__ = [
    "EmbeddingIndex",
    "Tokenizer",
    "__version__",
    "anatomy",
    "attention",
    "attribute",
    "choose",
    "contextual",
    "errors",
    "evaluate",
    "export",
    "layers",
    "load",
    "logit_lens",
    "next_token_distribution",
    "pipeline",
    "projection",
    "prompt",
    "search",
    "sequence_logprob",
    "sweep",
    "training",
    "zoo",
]
