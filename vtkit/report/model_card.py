"""The README.md of a saved model: a header the hub understands, how to use the model, and what it reached. Recipe and
examples are left out, because they hold paths and texts of its maker."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vtkit.report.blocks import Block, Command, Folded, Paragraph, Section, Table
from vtkit.report.content import sections
from vtkit.report.data import ReportData
from vtkit.report.pages import from_template
from vtkit.report.training import UNICOIL, expanded
from vtkit.report.verdict import DEMONSTRATION, verdict
from vtkit.report.wording import is_number, visible

CARD_SECTIONS = {  # sections of the report that a model card repeats, under the names they have there
    "results": "Results",
    "vocabulary": "Vocabulary",
    "fragmentation": "Fragmentation",
    "sparsity": "Sparsity",
    "reproduction": "Made with",
}

TAGS = ("sentence-transformers", "sparse-encoder", "sparse", "feature-extraction", "vtkit")  # and the encoder's kind


@dataclass(frozen=True)
class Published:
    """Facts on the card of a repository that the card of a folder lacks."""

    repository: str
    license: str | None
    data: tuple[str, ...]  # names of models, collections and files in the recipe, without the folders of local ones
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]  # set -> measure -> 95 % interval of its mean


def model_card(report: ReportData, published: Published | None = None) -> str:
    """Markdown for the model folder, with the YAML header of a sentence-transformers sparse encoder. Results enter the
    header only where the run is no demonstration, since the hub shows what stands there without the words around it."""
    name = visible(report.name) or "model"
    repeated = (Section(each.key, CARD_SECTIONS.get(each.key, ""), _travelling(each)) for each in sections(report))
    return from_template(
        "model_card.md",
        header=_header(report, name, published),
        published=published,
        limits=_limits(report),
        title=name,
        notice=f"Demonstration. {DEMONSTRATION}" if report.demonstration else "",
        report=report,
        verdict=verdict(report),
        unicoil=UNICOIL,
        expanded="" if report.words_added is None else expanded(report.words_added),
        sections=[section for section in repeated if section.title and section.blocks],
    )


def _travelling(section: Section) -> tuple[Block, ...]:
    """The blocks that hold nothing of the maker's: no paths, no words of the texts."""
    return tuple(
        block
        for block in section.blocks
        if not (isinstance(block, Command | Folded) or (isinstance(block, Paragraph | Table) and block.own_texts))
    )


def _limits(report: ReportData) -> list[str]:
    """Limits of the figures, for readers who find the model on the hub."""
    language = report.language or "one language"
    said = [f"Made for and judged on texts in {language}; in other languages and domains it was not judged."]
    for results in report.results:
        said += [
            f"The figures on {results.set} are not comparable with others: {why}." for why in results.not_comparable
        ]
        if results.document_length is not None:
            said.append(f"Documents of {results.set} were cut at {results.document_length} tokens.")
    said.append("Scores are sums of products of token weights: compare them within one query only.")
    return list(dict.fromkeys(said))


def _header(report: ReportData, name: str, published: Published | None) -> str:
    """YAML between two lines of hyphens. Strings are written as JSON, which is YAML that no content can break."""
    lines = ["---"]
    if report.language:
        # Quoted: Norwegian, written bare, is the truth value "no".
        lines += ["language:", f"- {_quoted(report.language)}"]
    lines += ["library_name: sentence-transformers", "pipeline_tag: feature-extraction"]
    if published is not None and published.license is not None:
        lines.append(f"license: {_quoted(published.license)}")
    source = _source_on_the_hub(report)
    if source is not None:
        lines.append(f"base_model: {_quoted(source)}")
    lines += ["tags:", *(f"- {tag}" for tag in (*TAGS, report.kind))]
    if not report.demonstration:
        lines += _model_index(report, name, {} if published is None else published.intervals)
    return "\n".join([*lines, "---", ""])


def _model_index(
    report: ReportData, name: str, intervals: Mapping[str, Mapping[str, tuple[float, float]]]
) -> list[str]:
    lines: list[str] = []
    for results in report.results:
        encoders = [row for row in results.rows if row.role == "encoder"]
        measures = encoders[-1].measures if encoders else {}
        metrics = [(measure, value) for measure, value in measures.items() if is_number(value)]
        if not metrics:
            continue
        lines += ["  - task:", "      type: sparse-information-retrieval", "      name: Sparse Information Retrieval"]
        lines += ["    dataset:", f"      name: {_quoted(results.label)}", "      type: unknown", "    metrics:"]
        for measure, value in metrics:
            lines += [f"    - type: {_quoted(measure.lower())}", f"      value: {float(value):.6f}"]
            lines += [f"      name: {_quoted(measure)}"]
            interval = intervals.get(results.set, {}).get(measure)
            if interval is not None:
                low, high = interval
                lines += ["      args:", f"        interval_95: [{low:.6f}, {high:.6f}]"]
    return ["model-index:", f"- name: {_quoted(name)}", "  results:", *lines] if lines else []


def _source_on_the_hub(report: ReportData) -> str | None:
    """The source model's hub id; None where the recipe names a folder, another recipe, or nothing."""
    try:
        source: Any = tomllib.loads(report.recipe_toml).get("source")
    except tomllib.TOMLDecodeError:
        return None
    model = source.get("model") if isinstance(source, dict) else None
    return model if isinstance(model, str) and re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", model, re.A) else None


def _quoted(text: str) -> str:
    return json.dumps(visible(text), ensure_ascii=False)
