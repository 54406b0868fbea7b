"""New tokens as sparse mixtures of the shared tokens nearest to them in static vectors of the target language (FOCUS),
by default trained on text as the target tokenizer cuts it."""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from vtkit.data.text import batches
from vtkit.data.vectors import vectors_of
from vtkit.settings.transfer import FocusTransfer
from vtkit.system import console
from vtkit.system.errors import DataError, MissingExtra
from vtkit.transfer.mixture import Mixture, Texts, mixture_of_parts
from vtkit.transfer.similarity import similarity_part
from vtkit.transfer.word_space import unit
from vtkit.vocabulary.forms import Vocabulary, whole_encodings
from vtkit.vocabulary.overlap import SPECIAL
from vtkit.vocabulary.pair import VocabularyPair

SPARSEMAX = 2.0  # α of the entmax
WIDTH = 100  # of trained vectors, as in the authors' code; the paper has 300
EPOCHS = 3
SMALLEST_COUNT = 10  # occurrences that a token needs for a vector

NEGATIVES = 10
NGRAM_ROWS = 1 << 18
"""Rows of the table of character n-grams; fastText has two million, for vocabularies of words, not of tokens."""

LONGEST_LINE = 1024  # tokens of a line; longer texts are cut into several


def mixture(pair: VocabularyPair, settings: FocusTransfer, texts: Texts, seed: int) -> Mixture:
    """FOCUS (Dobler and de Melo 2023, arXiv:2305.14481): ``E'_t = Σ_u sparsemax(cos(f_t, f_u)) E_u`` over the shared
    tokens ``u``, special ones aside; tokens without a vector get normal noise with the moments of each dimension of E.

    ``f`` are vectors of tokens (a file that has ``##s`` or ``▁the`` as the family writes them), or of the texts that
    they stand for, or are trained on ``texts`` (:func:`train_vectors`).
    """
    if settings.vectors is not None:
        token_vectors, where = _given(pair.target, Path(settings.vectors)), settings.vectors
    else:
        token_vectors, where = train_vectors(pair.target, texts(), seed), "the text that vectors were trained on"
    overlap = pair.overlap
    usable = (
        token_vectors.any(axis=1) & np.array([bool(text) for text in pair.target.texts]) & (overlap.kinds != SPECIAL)
    )
    anchors, ids = overlap.overlap_ids, overlap.new_ids
    if not len(ids):
        return mixture_of_parts(pair)
    anchors, ids = anchors[usable[anchors]], ids[usable[ids]]
    if not len(anchors) or not len(ids):
        whose = "tokens that both vocabularies share" if not len(anchors) else "new tokens"
        raise DataError(f"{where}: none of the {whose} has a vector, so FOCUS has nothing to compare.")
    new, known = unit(token_vectors[ids]), unit(token_vectors[anchors])
    source_ids = overlap.target_to_source[anchors].astype(np.int64)
    part = similarity_part("focus", pair, ids, new, known, source_ids, SPARSEMAX)
    return mixture_of_parts(pair, [part], fallback="multivariate")


def train_vectors(target: Vocabulary, texts: Iterable[str], seed: int = 0) -> NDArray[np.float32]:
    """Vectors of fastText (Bojanowski et al. 2017, continuous bag of words) for the tokens of ``texts``, with the
    settings of FOCUS' authors but a smaller table of n-grams; on one thread, so that text and seed decide.

    Args:
        texts: read once, tokenized into a temporary file; special tokens aside.

    Returns:
        (target vocabulary, :data:`WIDTH`), zero for tokens that are too rare.

    Raises:
        DataError: no token is frequent enough.
        MissingExtra: gensim is not installed.
    """
    try:
        from gensim.models import FastText
    except ModuleNotFoundError as error:
        raise MissingExtra("Training word vectors (focus without vectors)", "gensim", "focus") from error

    spelled = target.tokens
    with tempfile.TemporaryFile("w+", encoding="ascii") as file:
        written = tokens = 0
        for batch in batches(texts):
            for encoding in whole_encodings(target.tokenizer, batch):
                tokens += len(encoding.ids)
                for begin in range(0, len(encoding.ids), LONGEST_LINE):
                    file.write(" ".join(map(str, encoding.ids[begin : begin + LONGEST_LINE])) + "\n")
                    written += 1
        lines = _TokenLines(file, spelled, written)
        model = FastText(
            vector_size=WIDTH,
            sg=0,
            window=5,
            negative=NEGATIVES,
            min_count=SMALLEST_COUNT,
            min_n=3,
            max_n=6,
            bucket=NGRAM_ROWS,
            alpha=0.05,
            sample=1e-4,
            workers=1,
            seed=seed,
        )
        model.build_vocab(lines)
        if len(model.wv) < 2:
            raise DataError(
                f"The text to train FOCUS's vectors on is too short: of its {tokens:,} tokens too few occur "
                f"{SMALLEST_COUNT} times. Name more text in bias.corpus, or give focus.vectors."
            )
        model.train(lines, total_examples=model.corpus_count, epochs=EPOCHS)
    places = {token: number for number, token in enumerate(spelled)}
    vectors = np.zeros((len(spelled), WIDTH), dtype=np.float32)
    vectors[[places[token] for token in model.wv.index_to_key]] = model.wv.vectors
    return vectors


@dataclass(frozen=True)
class _TokenLines:
    """Lines of token ids in a file, as the training reads them: again for each epoch, and never all at once."""

    file: IO[str]
    spelled: list[str]  # the token of each id
    lines: int

    def __iter__(self) -> Iterator[list[str]]:
        self.file.seek(0)
        for line in console.tracked(self.file, "texts read for FOCUS's vectors", self.lines):
            yield [self.spelled[int(number)] for number in line.split()]


def _given(target: Vocabulary, path: Path) -> NDArray[np.float32]:
    """The file's vector of each token, zero where it has none; (target vocabulary, width)."""
    spelled, texts = target.tokens, target.texts
    words = vectors_of(path, {*spelled, *texts})
    of_tokens = any(token != text and token in words for token, text in zip(spelled, texts, strict=True) if text)
    names = spelled if of_tokens else texts
    if not any(name in words for name in names if name):
        raise DataError(f"{path}: none of its words is a token of the target vocabulary. Is it this language?")
    nothing = np.zeros(len(next(iter(words.values()))), dtype=np.float32)
    return np.stack([words.get(name, nothing) for name in names])
