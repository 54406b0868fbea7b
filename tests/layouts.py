"""Small tokenizers of every known layout, and texts in which they differ."""

from functools import cache

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from vtkit.settings.vocabulary import TrainedVocabulary
from vtkit.vocabulary.existing import wrap
from vtkit.vocabulary.trained import train

TEXTS = [
    "The wild-type IL-2 receptor (CD25) wasn't expressed; 3.14 % of  cells.",
    "Café naïve ÉTÉ — fi ligature ﬁ, full-width ＡＢＣ, mark ´ alone.",
    "서울은 대한민국의 수도이다. 서울(Seoul)은 크다.",
    "東京は2024年に、New Yorkでコンピューターを使った。　全角の空白",
    "हिन्दी में लिखा हुआ वाक्य है। क़लम",
    "ภาษาไทยไม่มีช่องว่าง แต่ มี บ้าง",
    "می‌خواهم به کتابخانه بروم، دوست من!",
    "Тест кириллицы: ёлка и йод.",
    "tab\there\nand a line,  two  spaces   three",
    "\u200bhidden \u200b marks\u200b, [MASK] and [mask] with <s> inside",
    "control\x0bcharacters\x1cjoin\x85words",
    "https://example.org/a_very/long?path=1&b=2 x" + "y" * 120,
]
"""Words of many scripts, and what tokenizers have ways of their own with."""


def pieces(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


@cache
def tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A small tokenizer of one of the known layouts, or (``no-cut``) of one that looks across white space."""
    others = {
        character for text in TEXTS for character in text.lower() if not (character.isspace() or character.isascii())
    }
    letters = [*map(chr, range(33, 65)), *map(chr, range(91, 127)), *sorted(others - {"漢"})[::2]]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    roles = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    if kind.startswith("trained-"):
        _, algorithm, split = kind.split("-")
        size = 205 if algorithm == "unigram" else 400
        settings = {"algorithm": algorithm, "size": size, "split": split}
        section = TrainedVocabulary.model_validate({"kind": "trained", "corpus": ("x",), **settings})
        return train(TEXTS * 2, section)[0]
    if kind == "wordpiece":
        tokens = [*specials, *letters, *(f"##{letter}" for letter in letters), "the", "wild", "##ing", "서울"]
        backend = Tokenizer(models.WordPiece(pieces(list(dict.fromkeys(tokens))), unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer()
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    elif kind.startswith("byte-level"):
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        merges = [("t", "h"), ("th", "e"), ("Ġ", "t"), ("Ġ", "w"), ("a", "n"), ("ì", "Ħ"), ("ìĦ", "ľ"), ("Ġ", "Ġ")]
        backend = Tokenizer(models.BPE(pieces([*specials, *alphabet, *("".join(pair) for pair in merges)]), merges))
        backend.normalizer = normalizers.NFC()
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=kind.endswith("prefix"))
        backend.decoder = decoders.ByteLevel()
        if kind.endswith("trim"):
            backend.post_processor = processors.ByteLevel(trim_offsets=True)
    else:
        tokens = [("[UNK]", 0.0), ("▁", -2.0), *((letter, -5.0) for letter in letters), ("▁the", -1.0), ("ab", -1.5)]
        backend = Tokenizer(models.Unigram([*dict(tokens).items()], unk_id=0))
        backend.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
        )
        backend.pre_tokenizer = pre_tokenizers.Metaspace(split=kind != "no-cut")
        backend.decoder = decoders.Metaspace()
    backend.add_special_tokens(specials)
    return wrap(backend, roles, kind)


KINDS = [
    *("wordpiece", "byte-level", "byte-level-trim", "byte-level-prefix", "metaspace", "no-cut"),
    *("trained-wordpiece-bert", "trained-bpe-words", "trained-unigram-scripts"),
]
