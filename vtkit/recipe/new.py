"""A first recipe from a few answers, with comments that say what to change next."""

import os
from collections.abc import Sequence
from pathlib import Path

from vtkit.data.collections import default_split
from vtkit.recipe.load import resolve_name
from vtkit.recipe.problems import plain
from vtkit.recipe.write import toml_value
from vtkit.settings.named import is_local
from vtkit.system.errors import RecipeError


def new_recipe(
    *,
    name: str,
    language: str,
    source: str | None = None,
    source_language: str = "en",
    lowercase: bool = True,
    tokenizer: str | None = None,
    corpus: Sequence[str] = (),
    parallel: Sequence[str] = (),
    embedder: str | None = None,
    train: str | None = None,
    evaluate: Sequence[str] = (),
) -> str:
    """The text of a recipe; names stand in it as they are given, so paths are relative to where it is saved.

    Within one language the encoder keeps its own vocabulary, which training serves better than new tokens do
    (docs/recipes.md); else it moves onto the tokenizer's, or onto one trained on the corpus. Without a source it starts
    from ``embedder``, to which a head is fitted; beside a source, an embedder is another bridge, and a teacher. Without
    a corpus the encoder is adapted to the documents of ``train`` or ``evaluate``, if at all.
    """
    if source is None:
        return _from_embedder(name, language, embedder, corpus, train, evaluate)
    own = tokenizer is None and language == source_language
    if not own and tokenizer is None and not corpus:
        raise RecipeError(
            f"To leave the source's language ({source_language}), a new recipe needs a tokenizer, or a corpus to "
            "train one on."
        )
    has_text = bool(corpus or train or evaluate)
    parts = [_head(name, [source, tokenizer, embedder, train, *corpus, *parallel, *evaluate])]
    parts.append(f"""\
[recipe]
name = {toml_value(name)}
language = {toml_value(language)}
# seed = 42""")
    parts.append(f"""\
[source]
# The encoder to start from: hub id or folder of a SparseEncoder or of any masked-language model.
model = {toml_value(source)}""")
    parts.append(_vocabulary(own, tokenizer, corpus))
    if not own:
        parts.append(
            """\
[casing]
input = "lowercase"  # as the source reads text; "keep" leaves upper case as it is"""
            if lowercase
            else """\
[casing]
input = "keep"  # or "lowercase\""""
        )
        parts.append(_transfer(parallel, embedder, has_text))
    parts.append(_adapt(corpus, has_text))
    parts.append(
        """\
[calibrate]
# Each token is active about as often as documents contain it, and queries take their weights from a table of inverse
# document frequencies. In a new language this works better than queries expanded by the encoder.
tokens = "document-frequency"
query_encoder = "idf\""""
        if has_text and not own
        else _commented("""\
[calibrate]
# If vectors are too dense or too sparse: shifts the decoder bias until this share of a text's dimensions is
# positive.
target_activation = 0.01
definition = "pooled\"""")
    )
    parts.append(_finetune(own, train, embedder))
    return "\n\n".join([*parts, _INDEX, _evaluate(evaluate)]) + "\n"


_UNITS = """precision = "bf16"  # several times faster on GPUs and processors that support it; else "float32"
top_dimensions = 250  # keep a document's largest weights; the others are many and small
# document_weighting = "geng"  # for paragraphs: units that fire in many documents count less"""
_INDEX = """\
[index]
# One index that ranks by the encoder and BM25 together.
lexical = "bm25"
document_length = 384"""


def _evaluate(evaluate: Sequence[str]) -> str:
    if evaluate:
        splits = {default_split(name) for name in evaluate}
        return f"""\
[evaluate]
sets = {_list(evaluate)}
split = {toml_value(splits.pop() if len(splits) == 1 else "test")}
measures = ["nDCG@10", "R@100", "RR@10"]"""
    return _commented("""\
[evaluate]
# Without it there is no index and no figures in the report. Name a BEIR folder or a public collection such as
# "miracl:ko".
sets = ["collection"]
split = "test\"""")


def _from_embedder(
    name: str, language: str, embedder: str | None, corpus: Sequence[str], train: str | None, evaluate: Sequence[str]
) -> str:
    """A recipe that starts from a dense embedder."""
    if embedder is None:
        raise RecipeError("A new recipe needs a sparse encoder (source) or a dense embedder to start from.")
    texts = [*corpus, *([] if corpus else dict.fromkeys(each for each in (train, *evaluate) if each))]
    if not texts:
        raise RecipeError("A new recipe that starts from an embedder needs text of the language (corpus, evaluate).")
    parts = [_head(name, [embedder, train, *corpus, *evaluate], "source.units.texts=20000")]
    parts.append(f"""\
[recipe]
name = {toml_value(name)}
language = {toml_value(language)}
# seed = 42""")
    parts.append(f"""\
[source]
# A dense embedder that knows this language. Its transformer stays unchanged; sparse dimensions are learned from it.
model = {toml_value(embedder)}
[source.units]
# Latent units learned from the texts. [source.head] instead fits a head whose dimensions are tokens, for queries that
# need no model (docs/language.md#from-a-dense-embedder).
# size = 4096
# texts = 6000  # use more if you have more text
# pooling = "sum"  # better in one index for abstracts and paragraphs, worse for sentences; compare both""")
    parts.append(f"""\
[vocabulary]
# The embedder's vocabulary, reduced to the tokens in these texts. Any further text of the language helps.
kind = "trimmed"
corpus = {_list(texts)}""")
    shared = '\nquery_encoder = "shared"  # units are not tokens: a table could not be looked up by them'
    parts.append(_finetune(True, train, embedder) + (shared if train else ""))
    index = f"{_INDEX}\n{_UNITS}"
    return "\n\n".join([*parts, index, _evaluate(evaluate)]) + "\n"


def as_written_in(folder: Path, name: str, what: str) -> str:
    """``name``, given relative to the current folder, as a recipe in ``folder`` has to write it; ``what`` as in
    :class:`~vtkit.settings.types.Names`."""
    resolved = resolve_name(name, what, Path.cwd())
    if not is_local(resolved) or name.startswith(("/", "~")):
        return name
    relative = os.path.relpath(resolved, folder)
    return relative if relative == ".." or relative.startswith("../") else f"./{relative}"


def _head(name: str, needs: Sequence[str | None], change: str = "adapt.steps=4000") -> str:
    lines = [f"# {plain(name)}", "#", "# Needs:"]
    lines += [f"#   {plain(need)}" for need in dict.fromkeys(need for need in needs if need)]
    lines += [
        "# Check it:            vtkit recipe check THIS_FILE",
        "# Run it:              vtkit run THIS_FILE",
        f"# Change a setting:    vtkit run THIS_FILE --set {change}",
        "# See every setting:   vtkit recipe show THIS_FILE",
    ]
    return "\n".join(lines)


def _vocabulary(own: bool, tokenizer: str | None, corpus: Sequence[str]) -> str:
    if own:
        return """\
[vocabulary]
# The source's own. Within its language, training on the texts helps more than new tokens do. With long training,
# kind = "expanded" adds the words of a corpus.
kind = "source\""""
    if tokenizer is not None:
        return f"""\
[vocabulary]
# The vocabulary of an existing tokenizer: hub id, folder, tokenizer.json, vocab.txt or SentencePiece .model.
kind = "existing"
tokenizer = {toml_value(tokenizer)}"""
    return f"""\
[vocabulary]
# A vocabulary trained on text; kind = "existing" uses that of another tokenizer instead.
kind = "trained"
corpus = {_list(corpus)}
size = 24000  # at most: a small corpus gives fewer tokens
algorithm = "wordpiece"  # or "bpe", "unigram"
split = "scripts"
fold_spelling = true  # one spelling of each word in Arabic, Hebrew and Devanagari; no effect on other scripts"""


def _adapt(corpus: Sequence[str], has_text: bool) -> str:
    if not has_text:
        return _commented("""\
[adapt]
# Training without judgements: needs text of the language or domain.
corpus = ["corpus.txt"]
steps = 200""")
    texts = f"corpus = {_list(corpus)}\n" if corpus else ""
    return f"""\
[adapt]
# Training without judgements: on spans of the documents and, if given, on the source's scores of parallel text.
{texts}steps = 200
max_length = 96"""


def _finetune(own: bool, train: str | None, embedder: str | None) -> str:
    if train is None:
        return _commented("""\
[finetune]
# Contrastive training on queries with relevant documents (BEIR folder; qrels/train.tsv).
data = "collection"
split = "train\"""")
    lines = f"""\
[finetune]
# Contrastive training on queries with relevant documents (BEIR folder; qrels/train.tsv).
data = {toml_value(train)}
split = "train"
epochs = 1.0  # enough for a few thousand queries; raise it with fewer
hard_negatives = 1
document_length = 96
learning_rate = 1e-4
flops.document = 5e-5
# trainings = 3  # averages three trainings: better, and three times as long"""
    if not own:
        lines += '\nquery_encoder = "learned"  # a table, so that queries need no model\ninfonce.scale = 0.5'
    if embedder is not None:
        lines += f'\nloss = ["infonce", "listwise"]\nteachers = [{toml_value(embedder)}]\nbm25 = true'
    return lines


def _transfer(parallel: Sequence[str], embedder: str | None, has_text: bool) -> str:
    lines = ["[transfer]", "# Where the embeddings of new tokens come from."]
    lines.append('# "auto" uses, for each token, the method with the best evidence.')
    lines.append('method = "auto"')
    if parallel:
        lines.append(f"parallel.files = {_list(parallel)}  # two tab-separated columns, source language first")
    else:
        lines.append(
            '# parallel.files = ["pairs.tsv"]  # for another language: two tab-separated columns, source first'
        )
    if embedder:
        lines.append(f"sembridge.embedder = {toml_value(embedder)}  # for tokens that the source cannot read")
    else:
        lines.append('# sembridge.embedder = "BAAI/bge-m3"  # for another language: an embedder that knows both')
    if not has_text:
        lines.append('bias.method = "mixture"  # "zscore", the default, needs text to count tokens in')
    return "\n".join(lines)


def _list(names: Sequence[str]) -> str:
    line = toml_value(tuple(names))
    return line if len(line) <= 100 else "[\n" + "".join(f"    {toml_value(name)},\n" for name in names) + "]"


def _commented(text: str) -> str:
    return "\n".join(line if line.startswith("# ") else f"# {line}" for line in text.splitlines())
