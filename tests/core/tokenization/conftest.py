"""Fixtures: tiny tokenizers of every kind, in folders that look like downloaded checkpoints."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from kerasformer.tokenization import spiece
from tests import tiny_text
from tests.core.tokenization.samples import CORPUS

Checkpoint = Callable[..., Path]


def _wordpiece(
    lowercase: bool, special: tuple[str, ...] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
) -> dict[str, str]:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=list(special), show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    vocab = backend.get_vocab()
    return {"vocab.txt": "\n".join(sorted(vocab, key=vocab.__getitem__)) + "\n"}


def _bpe(special: list[str], names: tuple[str, str] = ("vocab.json", "merges.txt")) -> dict[str, str]:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    model = json.loads(backend.to_str())["model"]
    rules = [rule if isinstance(rule, str) else " ".join(rule) for rule in model["merges"]]
    return {names[0]: json.dumps(model["vocab"]), names[1]: "\n".join(["#version: 0.2", *rules]) + "\n"}


def _modernbert() -> dict[str, Any]:
    """Files with tokens that precede, follow and are part of the vocabulary, as those of ModernBERT."""
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    first = ["|||IP_ADDRESS|||", "<|padding|>"]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=first, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens([AddedToken(" " * count) for count in (4, 3, 2)])
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad", "mask")}
    flags = {"special": True, "normalized": False}
    tokens = [AddedToken(token, lstrip=name == "mask_token", **flags) for name, token in special.items()]
    backend.add_special_tokens(tokens)
    around = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=around
    )
    added = {
        index: {
            name: getattr(token, name)
            for name in ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
        }
        for index, token in backend.get_added_tokens_decoder().items()
    }
    options = {
        **special, "added_tokens_decoder": added, "clean_up_tokenization_spaces": True, "model_max_length": 8192,
        "model_input_names": ["input_ids", "attention_mask"], "tokenizer_class": "PreTrainedTokenizerFast",
    }  # fmt: skip
    return {"tokenizer.json": backend.to_str(), "tokenizer_config.json": options}


def _with_spaces(spaces: Sequence[int], special: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """Settings that add tokens for several spaces, as those of GPT-NeoX and Phi, or special tokens, as GPT-J."""
    flags = {"lstrip": False, "rstrip": False, "single_word": False}
    tokens = [{"content": " " * count, "normalized": True, "special": False, **flags} for count in spaces]
    tokens += [{"content": token, "normalized": False, "special": True, **flags} for token in special]
    return {"added_tokens_decoder": {str(400 + index): token for index, token in enumerate(tokens)}, **options}


def _neox() -> dict[str, str]:
    """A `tokenizer.json` like that of Pythia, with tokens for several spaces."""
    files = _bpe(["<|endoftext|>", "<|padding|>"])
    rules = [tuple(rule.split(" ")) for rule in files["merges.txt"].splitlines()[1:]]
    backend = Tokenizer(models.BPE(json.loads(files["vocab.json"]), rules))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in ("<|endoftext|>", "<|padding|>")])
    backend.add_tokens([AddedToken(" " * count) for count in (4, 3, 2)])
    return {"tokenizer.json": backend.to_str()}


def _spiece(name: str = "spiece.model", **options: Any) -> dict[str, bytes]:
    trainer = sentencepiece.SentencePieceTrainer
    model = io.BytesIO()
    trainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=250,
        hard_vocab_limit=False,
        minloglevel=2,
        **{"bos_id": -1, **options},
    )
    return {name: model.getvalue()}


def _t5() -> dict[str, bytes]:
    return _spiece(pad_id=0, eos_id=1, unk_id=2)


def _albert() -> dict[str, bytes]:
    symbols = {"control_symbols": "[CLS],[SEP]", "user_defined_symbols": "[MASK],(,),.,£"}
    return _spiece(pad_id=0, unk_id=1, eos_id=-1, normalization_rule_name="nfkc", **symbols)


def _big_bird() -> dict[str, bytes]:
    symbols = {"user_defined_symbols": "<s>,<sep_0>,[CLS],[SEP],[MASK],<unused_67>"}
    return _spiece(pad_id=0, eos_id=1, unk_id=2, normalization_rule_name="nfkc", **symbols)


def _deberta() -> dict[str, bytes]:
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    pieces = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
    return _spiece("spm.model", **ids, **pieces)


def _fairseq(algorithm: str = "unigram") -> dict[str, bytes]:
    options = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "normalization_rule_name": "nmt_nfkc", "model_type": algorithm}
    return _spiece("sentencepiece.bpe.model", **options)


def dictionary() -> dict[str, Any]:
    """Files as those of M2M-100: its dictionary lacks some pieces, here every ninth one."""
    files = _fairseq("bpe")
    kept = [piece.text for index, piece in enumerate(spiece.parse(*files.values()).pieces[3:]) if index % 9]
    return {"vocab.json": {token: index for index, token in enumerate([*_ROBERTA[:4], *kept])}, **files}


_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_MASK = {"__type": "AddedToken", "content": "<mask>", "lstrip": True}
_MPNET = ("<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>")


def _moses() -> dict[str, str]:
    """Pieces of lowercase words without accents, the last of which ends in `</w>`."""
    backend = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
    steps = [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{index}>" for index in range(10))]
    options: dict[str, Any] = {"special_tokens": special, "end_of_word_suffix": "</w>", "show_progress": False}
    backend.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, **options))
    model = json.loads(backend.to_str())["model"]
    rules = [rule if isinstance(rule, str) else " ".join(rule) for rule in model["merges"]]
    # Published files have the number of occurrences after each pair.
    merges = "".join(f"{rule} {1000 - index}\n" for index, rule in enumerate(rules))
    return {"vocab.json": json.dumps(model["vocab"]), "merges.txt": merges}


def _word_bpe() -> dict[str, str]:
    """Pieces of lowercase words, the last of which ends in `</w>`."""
    backend = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    model = json.loads(backend.to_str())["model"]
    rules = [rule if isinstance(rule, str) else " ".join(rule) for rule in model["merges"]]
    return {"vocab.json": json.dumps(model["vocab"]), "merges.txt": "\n".join(["#version: 0.2", *rules]) + "\n"}


def _gemma() -> dict[str, Any]:
    """Files with byte-pair merges of whole texts, as those of Gemma 3."""
    tokenizer = tiny_text.byte_fallback()
    options = {
        **tokenizer.special_tokens, "add_bos_token": True, "add_eos_token": False, "model_max_length": 10**30,
        "clean_up_tokenization_spaces": False, "spaces_between_special_tokens": False, "sp_model_kwargs": None,
        "tokenizer_class": "GemmaTokenizer", "use_default_system_prompt": False,
    }  # fmt: skip
    return {"tokenizer.json": tokenizer.backend.to_str(), "tokenizer_config.json": options}


_DEBERTA_BPE = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
_END = "<|endoftext|>"

# name: (vocabulary files, config.json, tokenizer_config.json or None)
CASES: dict[str, tuple[Callable[[], dict[str, Any]], dict[str, Any], dict[str, Any] | None]] = {
    "bert-uncased": (lambda: _wordpiece(True), {"model_type": "bert"}, None),
    "bert-cased": (
        lambda: _wordpiece(False),
        {"model_type": "bert"},
        {"do_lower_case": False, "model_max_length": 64, "tokenizer_class": "BertTokenizerFast"},
    ),
    "bert-accents": (
        lambda: _wordpiece(True),
        {"model_type": "bert"},
        {"strip_accents": False, "tokenize_chinese_chars": False},
    ),
    "distilbert": (
        lambda: _wordpiece(True),
        {"model_type": "distilbert"},
        {"tokenizer_class": "DistilBertTokenizer"},
    ),
    "electra": (lambda: _wordpiece(True), {"model_type": "electra"}, {"tokenizer_class": "ElectraTokenizer"}),
    "mobilebert": (lambda: _wordpiece(True), {"model_type": "mobilebert"}, {"tokenizer_class": "MobileBertTokenizer"}),
    "gpt2": (lambda: _bpe([_END]), {"model_type": "gpt2"}, None),
    "gpt2-bos": (
        lambda: _bpe([_END]),
        {"model_type": "gpt2"},
        {"add_prefix_space": True, "add_bos_token": True, "pad_token": "[PAD]"},
    ),
    "gpt_neo": (lambda: _bpe([_END]), {"model_type": "gpt_neo"}, {"tokenizer_class": "GPT2Tokenizer"}),
    "gptj": (
        lambda: _bpe([_END]),
        {"model_type": "gptj"},
        _with_spaces((), ("<|extratoken_1|>", "<|extratoken_2|>"), tokenizer_class="GPT2Tokenizer"),
    ),
    "gpt_neox": (lambda: _bpe([_END, "<|padding|>"]), {"model_type": "gpt_neox"}, None),
    "pythia": (
        _neox,
        {"model_type": "gpt_neox"},
        {
            **dict.fromkeys(("bos_token", "eos_token", "unk_token"), _END),
            "add_prefix_space": False,
            "tokenizer_class": "GPTNeoXTokenizer",
        },
    ),
    "phi": (
        lambda: _bpe([_END]),
        {"model_type": "phi"},
        _with_spaces((4, 3, 2), tokenizer_class="CodeGenTokenizer", model_max_length=2048),
    ),
    "roberta": (lambda: _bpe(_ROBERTA), {"model_type": "roberta"}, None),
    "roberta-prefix": (
        lambda: _bpe(_ROBERTA),
        {"model_type": "roberta"},
        {"add_prefix_space": True, "trim_offsets": False, "mask_token": _MASK, "tokenizer_class": "RobertaTokenizer"},
    ),
    "camembert": (_fairseq, {"model_type": "camembert"}, None),
    "camembert-no-prefix": (
        _fairseq,
        {"model_type": "camembert"},
        {"add_prefix_space": False, "tokenizer_class": "CamembertTokenizer", "mask_token": {**_MASK, "lstrip": False}},
    ),
    "xlm-roberta": (_fairseq, {"model_type": "xlm-roberta"}, None),
    "multilingual-e5": (
        _fairseq,
        {"model_type": "bert", "tokenizer_class": "XLMRobertaTokenizer"},
        {"mask_token": _MASK, "tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 64},
    ),
    "mbart": (_fairseq, {"model_type": "mbart"}, None),
    "mbart-50": (
        _fairseq,
        {"model_type": "mbart", "tokenizer_class": "MBart50Tokenizer"},
        {"src_lang": "sl_SI", "tgt_lang": None, "tokenizer_class": "MBart50Tokenizer", "model_max_length": 50},
    ),
    "nllb": (lambda: _fairseq("bpe"), {"model_type": "m2m_100"}, {"tokenizer_class": "NllbTokenizer"}),
    "nllb-legacy": (
        lambda: _fairseq("bpe"),
        {"model_type": "m2m_100"},
        {"legacy_behaviour": True, "src_lang": "deu_Latn", "tokenizer_class": "NllbTokenizerFast"},
    ),
    "mpnet": (lambda: _wordpiece(True, _MPNET), {"model_type": "mpnet"}, None),
    "modernbert": (_modernbert, {"model_type": "modernbert"}, None),
    "gemma": (_gemma, {"model_type": "gemma3_text"}, None),
    "t5": (_t5, {"model_type": "t5"}, None),
    "t5-ten": (_t5, {"model_type": "t5"}, {"extra_ids": 10, "model_max_length": 40}),
    "mt5": (
        _t5,
        {"model_type": "mt5"},
        {"extra_ids": 0, "tokenizer_class": "T5Tokenizer", "additional_special_tokens": []},
    ),
    "pegasus": (_t5, {"model_type": "pegasus"}, None),
    "pegasus-published": (
        _t5,
        {"model_type": "pegasus"},
        {
            "model_max_length": 50,
            "offset": 103,
            "mask_token": "<mask_2>",
            "mask_token_sent": "<mask_1>",
            "additional_special_tokens": ["<mask_1>", *(f"<unk_{index}>" for index in range(2, 103))],
            "tokenizer_class": "PegasusTokenizer",
        },
    ),
    "pegasus-lines": (
        lambda: _spiece(pad_id=0, eos_id=1, unk_id=2, user_defined_symbols="<n>"),
        {"model_type": "pegasus"},
        {"tokenizer_class": "PegasusTokenizer"},
    ),
    "bigbird_pegasus": (
        _big_bird,
        {"model_type": "bigbird_pegasus"},
        {
            **{"bos_token": "<s>", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"},
            "mask_token_sent": None,
            "offset": 0,
            "additional_special_tokens": [],
            "tokenizer_class": "PegasusTokenizer",
        },
    ),
    "albert": (_albert, {"model_type": "albert"}, None),
    "big_bird": (_big_bird, {"model_type": "big_bird"}, None),
    "big_bird-no-prefix": (
        _big_bird,
        {"model_type": "big_bird"},
        {"add_prefix_space": False, "model_max_length": 50, "tokenizer_class": "BigBirdTokenizer"},
    ),
    "openai-gpt": (_word_bpe, {"model_type": "openai-gpt"}, {"pad_token": "<unk>"}),
    "openai-gpt-padded": (
        _word_bpe,
        {"model_type": "openai-gpt"},
        {"pad_token": "[PAD]", "tokenizer_class": "OpenAIGPTTokenizerFast", "model_max_length": 50},
    ),
    "opt": (
        lambda: _bpe(["<s>", "<pad>", "</s>", "<unk>"]),
        {"model_type": "opt"},
        {
            **dict.fromkeys(("unk_token", "bos_token", "eos_token"), {"__type": "AddedToken", "content": "</s>"}),
            "pad_token": "<pad>",
            "add_bos_token": True,
            "tokenizer_class": "GPT2Tokenizer",
            "errors": "replace",
        },
    ),
    "xglm": (_fairseq, {"model_type": "xglm"}, None),
    "xglm-no-prefix": (
        _fairseq,
        {"model_type": "xglm"},
        {"add_prefix_space": False, "tokenizer_class": "XGLMTokenizer", "model_max_length": 50},
    ),
    "deberta-bpe": (lambda: _bpe(_DEBERTA_BPE), {"model_type": "deberta"}, {"vocab_type": "gpt2"}),
    "deberta-bpe-prefix": (
        lambda: _bpe(_DEBERTA_BPE),
        {"model_type": "deberta"},
        {"add_prefix_space": True, "tokenizer_class": "DebertaTokenizerFast", "model_max_length": 50},
    ),
    "deberta": (_deberta, {"model_type": "deberta-v2"}, {"do_lower_case": False, "vocab_type": "spm"}),
    "deberta-punctuation": (
        _deberta,
        {"model_type": "deberta-v2"},
        {"do_lower_case": True, "split_by_punct": True, "tokenizer_class": "DebertaV2Tokenizer"},
    ),
    "albert-cased": (_albert, {"model_type": "albert"}, {"do_lower_case": False, "keep_accents": True}),
}

EACH_KIND = tuple(
    "bert-cased gpt2-bos pythia roberta-prefix camembert mbart-50 nllb-legacy mpnet modernbert gemma t5-ten "
    "pegasus-published bigbird_pegasus albert openai-gpt xglm deberta-punctuation".split()
)
"""Cases of each kind of files and rules; those of the others are in the full grid."""

# Tokenizers of XLM, for which transformers gives no offsets.
MOSES: dict[str, tuple[Callable[[], dict[str, Any]], dict[str, Any], dict[str, Any] | None]] = {
    "xlm": (_moses, {"model_type": "xlm", "n_langs": 2, "lang2id": {"en": 0, "fr": 1}}, None),
    "xlm-cased": (
        _moses,
        {"model_type": "xlm"},
        {"do_lowercase_and_remove_accent": False, "tokenizer_class": "XLMTokenizer", "model_max_length": 40},
    ),
}


def write(folder: Path, files: dict[str, Any]) -> Path:
    """Writes the files of a checkpoint: text, bytes, or values that are converted to JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, (str, bytes)) else json.dumps(content)
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Function that returns the folder of a case, which tests must not change."""
    folders: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in folders:
            vocabulary, config, options = {**CASES, **MOSES}[name]
            files = {**vocabulary(), "config.json": config}
            if options is not None:
                files["tokenizer_config.json"] = options
            folders[name] = write(tmp_path_factory.mktemp(name), files)
        return folders[name]

    return make


@pytest.fixture
def copied(checkpoint: Checkpoint, tmp_path: Path) -> Checkpoint:
    """Function that returns a copy of the folder of a case, with files added, replaced or (`None`) removed."""

    def copy(name: str, **changes: Any) -> Path:
        files: dict[str, Any] = {path.name: path.read_bytes() for path in checkpoint(name).iterdir()}
        files |= {key.replace("__", "."): value for key, value in changes.items()}
        return write(tmp_path / name, {key: value for key, value in files.items() if value is not None})

    return copy
