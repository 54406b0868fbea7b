"""Tokenizers as their repositories hold them: real vocabularies of VTKIT_DATA, else small ones of the same kind,
learned from the quickstart's texts by vtkit, whose vocabularies are the same from run to run (the trainers of
``tokenizers`` give others each time, and with them another chance to fail a gate)."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from tokenizers import (
    BertWordPieceTokenizer,
    SentencePieceUnigramTokenizer,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

from vtkit.settings.casing import CasingSection
from vtkit.settings.vocabulary import TrainedVocabulary
from vtkit.vocabulary.trained import train

from .texts import from_shared, sample

Files = dict[str, bytes]

BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
LEARNED = 2000
"""Tokens of a vocabulary that is learned."""


def to_json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=2).encode()


@cache
def bert(name: str, language: str = "en", *, lowercase: bool, length: int = 512) -> Files:
    """A WordPiece tokenizer in the form of google-bert's repositories: ``vocab.txt``, ``tokenizer.json``, and a
    configuration of a few lines.

    Args:
        name: folder below ``vocab`` of VTKIT_DATA.
        language: of the quickstart's texts that a vocabulary is learned from where that is not there.
        lowercase: whether input is lowercased (and, as always in BERT then, stripped of accents).
        length: longest input, in tokens.
    """
    settings: dict[str, Any] = {"lowercase": lowercase, "strip_accents": lowercase}
    path = from_shared(f"vocab/{name}/vocab.txt")
    if path is not None:
        tokens = path.read_text(encoding="utf-8").splitlines()
        vocabulary = {token: number for number, token in enumerate(tokens)}
    else:
        section = TrainedVocabulary(
            kind="trained", corpus=("quickstart",), size=LEARNED, split="bert", clean="bert", strip_accents=lowercase
        )
        casing = CasingSection(input="lowercase" if lowercase else "keep")
        vocabulary = train(_quickstart(language), section, casing)[0].get_vocab()
        tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    made = BertWordPieceTokenizer(vocabulary, **settings)
    made.add_special_tokens(list(BERT_SPECIAL))
    configuration = {
        "do_lower_case": lowercase,
        **dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), BERT_SPECIAL, strict=True)),
        "tokenize_chinese_chars": True,
        "strip_accents": None,
        "model_max_length": length,
        "tokenizer_class": "BertTokenizer",
    }
    return {
        "vocab.txt": ("\n".join(tokens) + "\n").encode(),
        "tokenizer.json": made.to_str().encode(),
        "tokenizer_config.json": to_json(configuration),
    }


@cache
def roberta() -> Files:
    """RoBERTa's: byte-level BPE with GPT-2's merges, ``<mask>`` last, in the form of FacebookAI/roberta-base."""
    vocabulary, merges = _byte_level("gpt2")
    ordered = [*ROBERTA_SPECIAL, *(token for token in vocabulary if token not in ROBERTA_SPECIAL), "<mask>"]
    numbers = {token: number for number, token in enumerate(ordered)}
    made = Tokenizer(models.BPE(numbers, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    made.add_special_tokens([*ROBERTA_SPECIAL, "<mask>"])
    return {
        "vocab.json": json.dumps(numbers, ensure_ascii=False).encode(),
        "merges.txt": ("#version: 0.2\n" + "".join(f"{first} {second}\n" for first, second in merges)).encode(),
        "tokenizer.json": made.to_str().encode(),
        "tokenizer_config.json": to_json({"model_max_length": 512}),
    }


@cache
def modernbert() -> Files:
    """ModernBERT's: byte-level BPE with BERT's special tokens behind the others."""
    folder = from_shared("vocab/ModernBERT-base")
    if folder is not None:
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*.json"))}
    vocabulary, merges = _byte_level("")
    ordered = [*vocabulary, "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    made = Tokenizer(models.BPE({token: number for number, token in enumerate(ordered)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    start, end = ordered.index("[CLS]"), ordered.index("[SEP]")
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", start), ("[SEP]", end)]
    )
    made.add_special_tokens(list(BERT_SPECIAL))
    special = {f"{token[1:-1].lower()}_token": token for token in BERT_SPECIAL}
    return {
        "tokenizer.json": made.to_str().encode(),
        "tokenizer_config.json": to_json(
            {
                **special,
                "clean_up_tokenization_spaces": True,
                "model_input_names": ["input_ids", "attention_mask"],
                "model_max_length": 8192,
                "tokenizer_class": "PreTrainedTokenizerFast",
            }
        ),
        "special_tokens_map.json": to_json(special),
    }


@cache
def xlm_roberta() -> Files:
    """XLM-R's: SentencePiece Unigram with RoBERTa's special tokens, learned from English and Korean; the repositories
    of BAAI and intfloat hold a ``tokenizer.json`` and its configuration."""
    section = TrainedVocabulary(kind="trained", corpus=("quickstart",), size=2 * LEARNED, algorithm="unigram")
    learned, _ = train([*_quickstart("en"), *_quickstart("ko")], section)
    pieces = json.loads(learned.backend_tokenizer.to_str())["model"]["vocab"][len(learned.all_special_tokens) :]
    own = [(token, 0.0) for token in ROBERTA_SPECIAL]
    made = SentencePieceUnigramTokenizer()._tokenizer
    made.model = models.Unigram([*own, *map(tuple, pieces)], unk_id=ROBERTA_SPECIAL.index("<unk>"))
    made.add_special_tokens([*ROBERTA_SPECIAL, "<mask>"])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return {
        "tokenizer.json": made.to_str().encode(),
        "tokenizer_config.json": to_json(
            {
                **dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), ROBERTA_SPECIAL, strict=True)),
                "cls_token": "<s>",
                "sep_token": "</s>",
                "mask_token": "<mask>",
                "model_max_length": 512,
                "tokenizer_class": "XLMRobertaTokenizer",
            }
        ),
        "special_tokens_map.json": to_json(
            {
                "bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>",
                "mask_token": {"content": "<mask>", "lstrip": True, "normalized": False}, "pad_token": "<pad>",
                "sep_token": "</s>", "unk_token": "<unk>",
            }
        ),
    }  # fmt: skip


def tokens_of(files: Files) -> int:
    """Size of the vocabulary."""
    return Tokenizer.from_str(files["tokenizer.json"].decode()).get_vocab_size()


def _byte_level(name: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens in their order, and merges, of a byte-level BPE."""
    folder = from_shared(f"vocab/{name}") if name else None
    if folder is not None:
        vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    else:
        learner = Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=LEARNED, initial_alphabet=alphabet, show_progress=False)
        learner.train_from_iterator(_quickstart("en"), trainer)
        content = json.loads(learner.to_str())["model"]
        vocabulary, merges = content["vocab"], [tuple(merge) for merge in content["merges"]]
    return sorted(vocabulary, key=lambda token: vocabulary[token]), merges  # type: ignore[return-value]


def _quickstart(language: str) -> Iterable[str]:
    return sample(None, f"elements-{language}").texts
