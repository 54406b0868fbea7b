"""[report] of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vtkit.settings.types import Section


class ReportSection(Section):
    """[report]: the pages written at the end."""

    formats: Annotated[tuple[Literal["md", "json", "html"], ...], Field(min_length=1)] = ("md", "json", "html")
    """``report.md``, ``report.json``, and a self-contained ``report.html``."""

    example_query: str | None = None
    """Query whose results are shown at the end of the run and in the report. Default: the first evaluated one."""
