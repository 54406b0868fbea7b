"""All stages in the order they run. Plan, command line and report take names and order from here."""

from typing import Any

from vtkit.pipeline.stage import Stage
from vtkit.pipeline.steps.analyse_vocabularies import ANALYSE
from vtkit.pipeline.steps.deploy_index import DEPLOY
from vtkit.pipeline.steps.encode_corpus import ENCODE
from vtkit.pipeline.steps.encode_queries import ENCODE_QUERIES
from vtkit.pipeline.steps.index_corpus import INDEX
from vtkit.pipeline.steps.models import EVALUATING, MAKING
from vtkit.pipeline.steps.write_report import REPORT
from vtkit.system.errors import RecipeError

STAGES: tuple[Stage[Any], ...] = (*MAKING, ENCODE, ENCODE_QUERIES, INDEX, DEPLOY, *EVALUATING, ANALYSE, REPORT)

NAMES = tuple(dict.fromkeys(name for stage in STAGES for name in (stage.name.split(":")[0], stage.name)))
"""What --until, --from and --force take: a stage, or all whose names begin alike (``check``, ``evaluate``)."""


def called(name: str) -> list[int]:
    """Places, in :data:`STAGES`, of the stages that a user calls ``name``."""
    return [number for number, stage in enumerate(STAGES) if name in (stage.name, stage.name.split(":")[0])]


def last_until(name: str) -> int:
    """Place of the last stage that ``--until name`` runs; a check of the stage belongs to it."""
    return max([*called(name), *called(f"check:{name}")])


def refuse_unknown(until: str | None, start: str | None, force: tuple[str, ...]) -> None:
    """Refuse (RecipeError) names that are no stages."""
    named = [("--until", until), ("--from", start), *(("--force", stage) for stage in force)]
    wrong = [f"{flag} {stage}" for flag, stage in named if stage is not None and stage not in NAMES]
    if wrong:
        raise RecipeError(f"{', '.join(wrong)}: there is no such stage. The stages are {', '.join(NAMES)}.")
