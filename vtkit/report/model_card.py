"""The README.md of a saved model: a header for the hub, usage, and results. Recipe and examples are left out,
because they contain its maker's paths and texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vtkit.report.blocks import Paragraph, Section, Table
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
class Publication:
    """The files and the repository of an upload, with the facts that its card has beside those of a folder's."""

    report: ReportData
    repository: str
    private: bool
    files: Mapping[str, Path]  # path in the repository -> file, without the card
    license: str | None
    source_license: str | None
    data: tuple[str, ...]  # names of models, collections and files in the recipe, without the folders of local ones
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]  # set -> measure -> 95 % interval of its mean

    @cached_property
    def card(self) -> str:
        """The card of the repository."""
        return model_card(self.report, self)

    @property
    def bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.stat().st_size for file in self.files.values()) + len(self.card.encode())


def model_card(report: ReportData, published: Publication | None = None) -> str:
    """Markdown for the model folder, with the YAML header of a sentence-transformers sparse encoder. Results enter the
    header unless the run is a demonstration, since the hub shows the header's results without the text of the card."""
    name = visible(report.name) or "model"
    repeated = []
    for section in sections(report):
        # Blocks of the maker's own paths and texts stay behind.
        blocks = [each for each in section.blocks if isinstance(each, Paragraph | Table) and not each.own_texts]
        if section.key in CARD_SECTIONS and blocks:
            repeated.append(Section(section.key, CARD_SECTIONS[section.key], blocks))
    return from_template(
        "model_card.md",
        header=_header(report, name, published),
        published=published,
        title=name,
        notice=f"Demonstration. {DEMONSTRATION}" if report.demonstration else "",
        report=report,
        verdict=verdict(report),
        unicoil=UNICOIL,
        expanded="" if report.words_added is None else expanded(report.words_added),
        sections=repeated,
    )


def _header(report: ReportData, name: str, published: Publication | None) -> str:
    """YAML between two lines of hyphens."""
    from huggingface_hub import EvalResult, ModelCardData

    intervals = {} if published is None else published.intervals
    sources = [each.name for each in report.needs if each.setting == "source.model" and not each.local]
    figures = []
    for results in report.results if not report.demonstration else ():
        for measure, value in (results.final.measures if results.final is not None else {}).items():
            interval = intervals.get(results.set, {}).get(measure)
            if is_number(value):
                figures.append(
                    EvalResult(
                        task_type="sparse-information-retrieval",
                        task_name="Sparse Information Retrieval",
                        dataset_type="unknown",
                        dataset_name=visible(results.label),
                        dataset_config=visible(results.set),  # the library joins results of one type and configuration
                        metric_type=visible(measure.lower()),
                        metric_name=visible(measure),
                        metric_value=round(float(value), 6),
                        metric_args=interval and {"interval_95": [round(float(end), 6) for end in interval]},
                    )
                )
    header = ModelCardData(
        language=visible(report.language).split(",") if report.language else None,
        license=None if published is None or published.license is None else visible(published.license),
        library_name="sentence-transformers",
        pipeline_tag="feature-extraction",
        base_model=sources[0] if sources else None,
        tags=[*TAGS, report.kind],
        model_name=name if figures else None,
        eval_results=figures or None,
    )
    return f"---\n{header.to_yaml()}\n---\n"
