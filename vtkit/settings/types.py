"""The types of settings: the base of every table, the mark on settings that name something outside the recipe, and
numbers with their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator


@dataclass(frozen=True)
class Names:
    """Marks a setting that names something outside the recipe.

    ``model`` and ``tokenizer`` are a hub id or a folder (for a tokenizer also a file), ``retrieval`` a
    BEIR or MIRACL folder or the name of a public collection, ``corpus`` a text file, a jsonl file, a
    BEIR folder or ``datasets:`` and a folder or hub id, ``pairs`` a file of two tab-separated columns,
    ``vectors`` a file of static word vectors, ``rankings`` one of documents found for queries, ``recipe`` another
    recipe.
    """

    what: Literal["model", "tokenizer", "retrieval", "corpus", "pairs", "vectors", "rankings", "recipe"]
    words: tuple[str, ...] = ()  # values that name nothing outside


ModelName = Annotated[str, Field(min_length=1), Names("model")]
TokenizerName = Annotated[str, Field(min_length=1), Names("tokenizer")]
RetrievalName = Annotated[str, Field(min_length=1), Names("retrieval")]
CorpusName = Annotated[str, Field(min_length=1), Names("corpus")]
PairsName = Annotated[str, Field(min_length=1), Names("pairs")]
VectorsName = Annotated[str, Field(min_length=1), Names("vectors")]
RankingsName = Annotated[str, Field(min_length=1), Names("rankings")]
RecipeName = Annotated[str, Field(min_length=1), Names("recipe")]

Share = Annotated[float, Field(gt=0, lt=1)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e6)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=1e6)]
Ramp = Annotated[float, Field(gt=0, le=1)]
LearningRate = Annotated[float, Field(gt=0, le=1)]
PositiveInt = Annotated[int, Field(ge=1, le=1_000_000)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Steps = Annotated[int, Field(ge=1, le=100_000_000)]
Occurrences = Annotated[int, Field(ge=1, le=10**12)]

SEED = 42  # of recipes that name none, and of every sample of queries and texts for checks and evaluation

COUNTRIES = {"cn": "zh", "cz": "cs", "dk": "da", "gr": "el", "il": "he", "jp": "ja", "ua": "uk", "vn": "vi"}
"""Codes of countries that are no language's -> the language that is meant."""


def _known_languages(codes: str) -> str:
    for code in COUNTRIES.keys() & codes.split(","):
        raise ValueError(f"{code} is a country: its language is {COUNTRIES[code]}")
    if "," in codes:  # documents are told apart by lingua
        from lingua import Language

        known = {each.iso_code_639_1.name.lower() for each in Language.all()}
        if unknown := [code for code in codes.split(",") if code not in known]:
            raise ValueError(f"{', '.join(unknown)}: not known. Several need codes from {', '.join(sorted(known))}")
    return codes


LanguageCodes = Annotated[str, Field(pattern=r"^[a-z]{2,3}(,[a-z]{2,3})*$"), AfterValidator(_known_languages)]
"""An ISO 639 code, or several separated by commas: ``"en,hi,ko"``."""


def OneOrMore(kind: Any) -> BeforeValidator:
    """On a list of ``kind``: one of them alone is a list too."""
    return BeforeValidator(
        lambda given: given if isinstance(given, list | tuple) else (given,),
        json_schema_input_type=kind | tuple[kind, ...],
    )


class Section(BaseModel):
    """A recipe table: unknown keys are errors, values never change once loaded."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="after")
    def _refuse_faults(self) -> Self:
        if faults := list(self._faults()):
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        """Faults of settings that are each valid alone."""
        return iter(())
