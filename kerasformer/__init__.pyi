from kerasformer import errors, export, layers, training, zoo
from kerasformer.evaluation import evaluate, prompt
from kerasformer.evaluation.decoding_sweep import sweep
from kerasformer.interpretability.anatomy import anatomy
from kerasformer.interpretability.attention import attention
from kerasformer.interpretability.attribution import attribute
from kerasformer.interpretability.contextual import contextual
from kerasformer.interpretability.lens import logit_lens
from kerasformer.interpretability.projection import projection
from kerasformer.pipelines import pipeline
from kerasformer.pipelines.choosing import choose
from kerasformer.pipelines.embedding_index import EmbeddingIndex
from kerasformer.pipelines.likelihood import next_token_distribution, sequence_logprob
from kerasformer.tokenization import Tokenizer
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
    "sequence_logprob",
    "sweep",
    "training",
    "zoo",
]
