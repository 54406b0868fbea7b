"""Encoders whose queries take a way of their own, or whose output vocabulary is not the input's."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding, SpladePooling
from sentence_transformers.sparse_encoder.modules.mlm_transformer import MLMTransformer
from tokenizers import Tokenizer, models
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vtkit.encoder.model_folder import OUTPUT_TOKENIZER, SAFELY, library_errors
from vtkit.encoder.token_units import ENCODER, POOLING, has_token_units, refuse_token_units
from vtkit.encoder.unicoil import TokenTransformer, UnicoilPooling
from vtkit.system.errors import DataError


class WholeEncoder(SparseEncoder):  # type: ignore[misc]
    """An encoder with a query side or an output vocabulary of its own (:func:`with_sides`); as a sequence it is its
    document side, which is what vtkit trains, calibrates and indexes. :func:`vtkit.encoder.checkpoint.save_encoder`
    writes both as the library's router."""

    output_tokenizer: PreTrainedTokenizerBase | None = None
    """Names of the output dimensions, where they are not those of the input tokens (head-only transfer)."""

    query_side: SparseEncoder | None = None
    """The query encoder: a Transformer and a pooling, or a static table; None if the document encoder serves both."""

    query_route_by_default: bool = False  # whether texts of neither side are taken for queries

    def decode(self, embeddings: Tensor, top_k: int | None = None) -> Any:
        """As the library's, with the names of the output dimensions instead of those of the input tokens."""
        named: Any = SimpleNamespace(tokenizer=self.output_tokenizer or self.tokenizer)
        return SparseEncoder.decode(named, embeddings, top_k)


def with_sides(
    documents: Iterable[nn.Module],
    like: SparseEncoder,
    queries: SparseEncoder | None = None,
    output: PreTrainedTokenizerBase | None = None,
    *,
    by_default: bool = False,
    **settings: Any,
) -> WholeEncoder:
    """An encoder of the modules ``documents``, which are shared, with the settings and on the device of ``like``.

    Args:
        queries: encodes queries and, ``by_default``, texts of neither side.
        output: names the output dimensions, where they are not those of the input tokens.
        settings: in place of those of ``like``.
    """
    whole = WholeEncoder(modules=list(documents), device=like.device, **(settings_of(like) | settings))
    # a module that is set becomes part of the sequence, so it is put past the setter
    object.__setattr__(whole, "query_side", None if queries is None else queries.eval())
    whole.output_tokenizer, whole.query_route_by_default = output, by_default
    whole.eval()
    return whole


def query_side(encoder: SparseEncoder) -> SparseEncoder | None:
    """The query encoder of ``encoder``; None if the document encoder serves both."""
    return encoder.query_side if isinstance(encoder, WholeEncoder) else None


def own_output(encoder: SparseEncoder) -> PreTrainedTokenizerFast | None:
    """The tokenizer that names the output dimensions of ``encoder``; None where the input tokens do."""
    return encoder.output_tokenizer if isinstance(encoder, WholeEncoder) else None


def query_table(encoder: SparseEncoder) -> SparseStaticEmbedding | None:
    """The static table that encodes the queries of ``encoder``; None where a transformer does."""
    side = query_side(encoder)
    return side[0] if side is not None and isinstance(side[0], SparseStaticEmbedding) else None


def settings_of(encoder: SparseEncoder) -> dict[str, Any]:
    """Settings of an encoder besides its modules, as arguments of a new one."""
    return {
        "prompts": dict(encoder.prompts),
        "default_prompt_name": encoder.default_prompt_name,
        "similarity_fn_name": encoder.similarity_fn_name,
        "max_active_dims": encoder.max_active_dims,
    }


def output_tokenizer(encoder: SparseEncoder) -> PreTrainedTokenizerFast:
    """The tokenizer that names the output dimensions of ``encoder``."""
    return own_output(encoder) or encoder.tokenizer


def writes_units(encoder: SparseEncoder) -> bool:
    """Report whether the dimensions of ``encoder`` are latent units, which no text can be tokenized into."""
    tokenizer = output_tokenizer(encoder)
    return tokenizer is not encoder.tokenizer and isinstance(tokenizer.backend_tokenizer.model, models.WordLevel)


def sums_units(encoder: SparseEncoder) -> bool:
    """Report whether ``encoder`` sums latent units over tokens. The weights of a text are then the square roots of
    these sums, which no module of sentence-transformers takes: its weights are their squares."""
    return writes_units(encoder) and encoder[-1].pooling_strategy == "sum"


def width_of(encoder: SparseEncoder) -> int:
    """The number of output dimensions."""
    units = has_token_units(encoder)
    return int(encoder[-1].embedding_dimension if units else encoder[0].auto_model.config.vocab_size)


def dimension_names(encoder: SparseEncoder) -> list[str]:
    """The token that each output dimension stands for; empty for rows that are never active, (vocabulary,)."""
    names = [""] * width_of(encoder)
    for token, number in output_tokenizer(encoder).get_vocab().items():
        names[number] = token
    return names


def named(names: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are the dimensions; it cuts no text."""
    numbers: dict[str, int] = {}
    for number, name in enumerate(names):
        while name in numbers:  # a unit that nothing fires has a number for a name, and there are tokens like that
            name += "'"
        numbers[name] = number
    backend = Tokenizer(models.WordLevel(numbers, unk_token=next(iter(numbers))))
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def refuse_query_side(encoder: SparseEncoder, stage: str, *, static_too: bool = True) -> None:
    """Stages that change both sides by changing one cannot take an asymmetric encoder; ``static_too``: nor a static
    table; nor units without a head."""
    refuse_token_units(encoder, stage)
    side = query_side(encoder)
    if side is not None and (static_too or isinstance(side[0], Transformer)):
        raise DataError(
            f"[{stage}] changes one encoder, and this model encodes queries with a separate one, which would not "
            f"change. Remove [{stage}], or start from a model that encodes queries and documents alike."
        )


def refuse_output_vocabulary(encoder: SparseEncoder) -> None:
    """A transfer mixes a source's decoder rows by the tokens that it reads, so it must write the same."""
    if own_output(encoder) is not None:
        raise DataError(
            "The source was made by a head-only transfer: its input and output vocabularies differ, and a transfer "
            "needs a source with one vocabulary. Name the encoder that it was made from."
        )


def both_sides(name: str, folder: Path, encoder: SparseEncoder) -> SparseEncoder:
    """``encoder`` as a Transformer and a SpladePooling, with its query side and output vocabulary beside them."""
    for module in encoder.modules():
        if type(module) is MLMTransformer:  # the name of a Transformer in folders of sentence-transformers before 5.4
            module.__class__ = Transformer
    modules = list(encoder)
    router = modules[0] if isinstance(modules[0], Router) else None
    query = document = modules
    if router is not None:
        query, document = ([*_route(router, side), *modules[1:]] for side in ("query", "document"))
    encoders = [Transformer, SpladePooling], [TokenTransformer, UnicoilPooling]
    kinds = [type(module) for module in query]
    made = [", ".join(type(module).__name__ for module in side) or "nothing" for side in (document, query)]
    autoencoder = (
        kinds[0] is Transformer
        and kinds[-1] in (POOLING, SpladePooling)
        and not {ENCODER, Dense}.isdisjoint(kinds)
        and set(kinds[1:-1]) <= {ENCODER, Dense, Normalize}
    )
    of_documents = [type(module) for module in document]
    plain = of_documents in encoders and kinds in (*encoders, [SparseStaticEmbedding])
    if not plain and not (autoencoder and kinds == of_documents):
        parts = made[0] if query == document else f"{made[0]} for documents and {made[1]} for queries"
        raise DataError(
            f"{name} is made of {parts}; vtkit supports encoders made of a "
            "Transformer with a masked-language-model head and a SpladePooling, vtkit's uniCOIL encoders, and routers "
            "that encode queries with another such encoder or a static table."
        )
    names, queries, output, by_default = folder / OUTPUT_TOKENIZER, None, None, False
    if autoencoder:
        output = named(map(str, range(width_of(encoder))))
        if not getattr(encoder[-1], "include_prompt", True) and any(encoder.prompts.values()):
            raise DataError(f"{name} leaves its prompts out of its vectors, and vtkit cannot. Remove the prompts.")
    elif router is None and not names.is_dir():
        return encoder
    if router is not None and any(module is not other for module, other in zip(query, document, strict=False)):
        queries = SparseEncoder(modules=query, device=encoder.device, **settings_of(encoder))
        by_default = router.default_route is not None and router.sub_modules[router.default_route][0] is query[0]
    if names.is_dir():
        with library_errors(f"the tokenizer {names} cannot be loaded"):
            output = PreTrainedTokenizerFast.from_pretrained(str(names), **SAFELY)
    return with_sides(document, encoder, queries, output, by_default=by_default)


def _route(router: Router, side: str) -> list[Any]:
    """The modules that ``side``'s texts go through."""
    ways = ((side, "text"), (side, None), (None, "text"), (None, None))
    name = next((router.route_mappings[way] for way in ways if way in router.route_mappings), side)
    return list(router.sub_modules[name]) if name in router.sub_modules else []
