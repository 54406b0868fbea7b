"""A run's model as a repository of the Hugging Face hub: its files, and a card."""

import tomllib
from pathlib import Path
from typing import Any

from vtkit.data import hub
from vtkit.evaluation.results import PER_QUERY, read_per_query
from vtkit.pipeline.folder import RunFolder, open_run, report_of
from vtkit.report.model_card import Publication
from vtkit.settings.named import is_local
from vtkit.system import console
from vtkit.system.errors import DataError, RecipeError, VtkitError

CARD = "README.md"

BINDING = ("nc", "sa", "gpl", "llama", "gemma", "rail", "other")  # parts of licences that derived models keep

NO_DERIVATIVES = "nd"


def prepare(folder: Path, repository: str, *, license: str | None = None, private: bool = False) -> Publication:
    """The upload that ``vtkit publish`` would make of the run in ``folder``. ``license`` is an identifier of the hub;
    None takes that of the source.

    Raises:
        RecipeError: the name is none of a repository, or the licence is not the one that the source asks for.
        VtkitError: the run has no model or no report.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise RecipeError(f"{repository!r} is not a repository name: {error}") from error
    if repository.count("/") != 1:
        raise RecipeError(f"{repository!r}: name the repository as OWNER/NAME.")
    run, report = open_run(folder), report_of(folder)
    if report is None:
        raise VtkitError(f"{folder} has no report yet. Run its recipe to the end: vtkit run RECIPE.")
    model = Path(run.model(run.final_model))
    of_source = source_license(run, report.recipe_toml)
    parts = set((of_source or "").lower().replace("_", "-").split("-"))
    if NO_DERIVATIVES in parts:
        raise RecipeError(f"the source's licence, {of_source}, does not allow derived models to be published.")
    if license not in (None, of_source) and any(part in word for part in BINDING for word in parts):
        raise RecipeError(
            f"--license {license}: the model must keep the source's licence, {of_source}. Leave --license out."
        )
    chosen = license or of_source
    data = tuple(dict.fromkeys(need.name if not need.local else Path(need.name).name for need in report.needs))
    files = [path for path in sorted(model.rglob("*")) if path.is_file() and path.name != CARD]
    return Publication(
        report=report,
        repository=repository,
        private=private,
        files={path.relative_to(model).as_posix(): path for path in files},
        license=chosen,
        source_license=of_source,
        data=data,
        intervals=intervals(run),
    )


def upload(publication: Publication) -> str:
    """Upload it in one commit, with the token that `hf auth login` or HF_TOKEN gave the hub's client; returns the
    address."""
    from httpx import HTTPError
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    added = [CommitOperationAdd(name, str(file)) for name, file in publication.files.items()]
    added.append(CommitOperationAdd(CARD, publication.card.encode()))
    try:
        api.create_repo(publication.repository, private=publication.private, exist_ok=True)
        api.create_commit(publication.repository, added, commit_message="Upload of vtkit publish")
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in (401, 403):
            raise DataError(
                f"the hub does not let you write to {publication.repository}. Log in with `hf auth login`, or set "
                "HF_TOKEN to a token that may write there."
            ) from error
        raise DataError(f"the hub refused {publication.repository}: {console.one_line(str(error), 300)}") from error
    except (OSError, HTTPError) as error:
        raise DataError(f"{api.endpoint} does not answer ({console.one_line(str(error), 200)}). Try again.") from error
    return f"{api.endpoint}/{publication.repository}"


def source_license(run: RunFolder, recipe_toml: str) -> str | None:
    """The licence that the card of the source model names; None where there is none."""
    from huggingface_hub import ModelCard

    source = run.models.get("source")
    if source is None or "source" not in tomllib.loads(recipe_toml):
        return None
    try:
        folder = Path(source) if is_local(source) else hub.fetch(source, [CARD], "model")
    except DataError:
        return None
    if not (card := folder / CARD).is_file():
        return None
    try:
        named: Any = ModelCard(card.read_text("utf-8"), ignore_metadata_errors=True).data.license
    except Exception:  # a header that is no YAML, of whichever library that reads it
        return None
    return str(named) if named else None


def intervals(run: RunFolder) -> dict[str, dict[str, tuple[float, float]]]:
    """Evaluation set -> measure -> 95 % interval of the final model's mean, as far as the run has the values."""
    from vtkit.search.measures.significance import mean_interval

    evaluated = run.steps.get(f"evaluate:{run.final_model}")
    by_set: dict[str, dict[str, tuple[float, float]]] = {}
    for file in sorted(evaluated.glob(f"*/{PER_QUERY}")) if evaluated is not None else ():
        values = read_per_query(file.parent)
        by_set[file.parent.name] = {name: mean_interval(list(of.values())) for name, of in values.items()}
    return by_set
