"""Arguments and options that several commands take, and options made of the settings of a section."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from vtkit.data.rows import Columns
from vtkit.system import console

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from vtkit.settings.types import Section


STYLE: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # in rich's markup [transfer] would be a style, and vanish from the help
}

_NAMED = {"model": "MODEL", "tokenizer": "TOKENIZER", "retrieval": "COLLECTION", "corpus": "PATH"}
"""Placeholders of options whose settings name something; of others FILE."""

_KINDS = {"int": "N", "float": "X", "str": "TEXT", "list[str]": "TEXT", "path": "PATH"}


class PlainCommand(typer.core.TyperCommand):
    """A command whose help shows ``MODEL`` for Typer's ``{MODEL} <str>``, and ``--top N`` for ``--top <int range>``."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                name, _, kind = record[0].rstrip(">").partition(" <")
                if parameter.param_type_name == "argument":
                    rows["Arguments"].append((name, record[1]))
                else:
                    kind = kind.removesuffix(" range")
                    rows["Options"].append((f"{name} {_KINDS.get(kind, kind)}".rstrip(), record[1]))
        for title in filter(rows.get, rows):
            with formatter.section(title):
                formatter.write_dl(rows[title])


# The sections are many classes: a command that has no options of theirs, such as a search, does not wait for them.


def option(help: str, metavar: str | None = None, *names: str, **bounds: Any) -> Any:
    """An option without a default, or with one that its help states. Its name is that of its parameter by default."""
    return typer.Option(*names, help=help, metavar=metavar, **bounds)


def set_option(what: str, example: str, metavar: str = "KEY=VALUE") -> Any:
    """``--set``: a setting of ``what``, such as ``[index]``."""
    return option(f"A setting of {what}, e.g. {example}. May be repeated.", metavar, "--set")


def argument(help: str, metavar: str) -> Any:
    """An argument without a default, or with one that its help states."""
    return typer.Argument(help=help, metavar=metavar)


SHARED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "as_json": (typer.Option("--json", help="Print JSON."), ("run", "sweep", "serve", "publish", "recipe check")),
    "download": (
        typer.Option("--download", help="Allow models and collections to be fetched from the Hugging Face hub."),
        (
            *("search", "explain", "index", "delete", "merge"),
            *("compare", "provenance", "runs", "check", "clean", "doctor"),
        ),
    ),
}
"""Options that take effect before a command starts, and the commands that lack them (:func:`shared`)."""

RunArgument = Annotated[Path, argument("Folder of a run, as `vtkit run` printed it.", "RUN")]
OutOption = Annotated[Path | None, option("Folder to write. Default: nothing is written.", "FOLDER", "--out", "-o")]
NewFolderOption = Annotated[Path, option("Folder to write; it must not exist.", "FOLDER", "--out", "-o")]

CollectionOption = Annotated[str | None, option("Evaluation set of a run. Default: the first.", "NAME", "--collection")]
SearchedArgument = Annotated[Path, argument("Folder of a run or an index (`vtkit build`, `vtkit index`).", "FOLDER")]
WhereOption = Annotated[
    str | None,
    option(
        "Only documents whose fields meet this condition: \"year >= 2020 and source in ('a', 'b')\".",
        "CONDITION",
        "--where",
    ),
]

RunsOption = Annotated[
    Path, typer.Option("--runs", metavar="FOLDER", help="Where runs and their shared stage outputs are kept.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would run and what it takes, then stop.")]
ThreadsOption = Annotated[
    int | None, option("Processor threads of all jobs together. Default: OMP_NUM_THREADS, or all cores.", min=1)
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show every step of the plan, the figures of every gate, and times.")
]
RecipeArgument = Annotated[Path, argument("The recipe, a TOML file.", "RECIPE")]
SetOption = Annotated[
    list[str] | None,
    option(
        "Give a setting another value, e.g. adapt.steps=4000 or 'transfer.parallel.files=[\"a.tsv\"]'; "
        "none removes a setting or a whole section. May be repeated.",
        "SECTION.KEY=VALUE",
        "--set",
    ),
]

Command = Callable[..., None]
Decorator = Callable[[Command], Command]


def shared(name: str) -> Decorator:
    """The options of :data:`SHARED` that the command called ``name`` has, behind its own."""
    annotations = {option: Annotated[bool, of] for option, (of, lacking) in SHARED.items() if name not in lacking}

    def take_effect(download: bool = False, as_json: bool = False) -> None:
        from vtkit.data.hub import DOWNLOAD_VARIABLE

        if download:
            os.environ[DOWNLOAD_VARIABLE] = "1"
        console.in_json = as_json

    parameters = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for option, annotation in annotations.items()
    ]
    return lambda command: _with_parameters(command, parameters, take_effect)


def _with_parameters(
    command: Command, parameters: Sequence[inspect.Parameter], make: Callable[..., Any], argument: str = ""
) -> Command:
    """``command`` with further ``parameters``, in place of its ``argument``, if that is named: what ``make`` returns
    for their values."""
    own = [each for each in inspect.signature(command, eval_str=True).parameters.values() if each.name != argument]

    @functools.wraps(command)
    def run(*given: Any, **arguments: Any) -> None:
        made = make(**{each.name: arguments.pop(each.name, each.default) for each in parameters})
        command(*given, **arguments, **({argument: made} if argument else {}))

    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    run.__signature__ = inspect.Signature([*own, *parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {}  # typer resolves these, which are strings, beside the signature
    return run


def options_of(
    section: type[Section],
    *names: str,
    fixed: Mapping[str, Any] | None = None,
    called: Mapping[str, str] | None = None,
    argument: str = "settings",
) -> Decorator:
    """Options for the settings of ``section`` that are named; by default for all but tables and settings ``fixed`` by
    the command. The command gets them as the section, in its ``argument``. ``called`` has other names of
    options, by setting: ``{"target_activation": "--target"}``.

    Names, types, defaults and help are those of the section, and invalid values are refused before the command starts.
    """
    from vtkit.recipe.problems import section_of
    from vtkit.recipe.tables import tables_in

    given, other = fixed or {}, called or {}
    fields = {
        name: field
        for name, field in section.model_fields.items()
        if (name in names if names else name not in given and not tables_in(field.annotation))
    }
    options = {name: other.get(name, option_name(name)) for name in fields}

    return with_options(
        {name: (options[name], field) for name, field in fields.items()},
        lambda settings: section_of(section, {**given, **settings}, lambda name: options.get(name, name)),
        argument,
    )


def grouped(argument: str, make: Callable[..., Any]) -> Decorator:
    """Options that a command gets together: the parameters of ``make``, and in the command's ``argument`` what it
    returns for their values."""
    parameters = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(make, eval_str=True).parameters.values()
    ]
    return lambda command: _with_parameters(command, parameters, make, argument)


def columns_of(
    identity: Annotated[
        str | None,
        option(
            "Column of a table with the documents' ids; # numbers the rows. Default: by its name.", "COLUMN", "--id"
        ),
    ] = None,
    title: Annotated[str | None, option("Column with the titles. Default: by its name.", "COLUMN")] = None,
    text: Annotated[str | None, option("Column with the texts. Default: by its name.", "COLUMN")] = None,
) -> Columns:
    """The columns of a table of documents."""
    return Columns(identity, title, text)


def executed(command: Command) -> Command:
    """Options of [run]: the command computes the parts of collections as they say."""
    from vtkit.data.executors import executed_by
    from vtkit.settings.run import RunSection

    @functools.wraps(command)
    def by_executor(*, run: RunSection, **arguments: Any) -> None:
        with executed_by(run):
            command(**arguments)

    return options_of(RunSection, argument="run")(by_executor)


def with_options(
    options: Mapping[str, tuple[str, FieldInfo]],
    make: Callable[[Mapping[str, Any]], Any] = dict,
    argument: str = "settings",
) -> Decorator:
    """Options like settings: parameter -> the name of its option and the setting that gives its type and help. The
    command's ``argument`` is what ``make`` returns for the values that were given."""
    from vtkit.recipe.tables import choices

    values = {value for _, field in options.values() for value in choices(field.annotation)}
    shown = {f"`{name}`": option for name, (option, _) in options.items() if name not in values}
    parameters = [_parameter(name, option, field, shown) for name, (option, field) in options.items()]
    return lambda command: _with_parameters(
        command,
        parameters,
        lambda **given: make({name: value for name, value in given.items() if value is not None}),
        argument,
    )


def option_name(setting: str) -> str:
    """The option of a setting: ``--max-length`` for ``max_length``."""
    return f"--{setting.replace('_', '-')}"


def _parameter(name: str, option: str, field: FieldInfo, options: Mapping[str, str]) -> inspect.Parameter:
    """The parameter of an option. ``options`` are the options of settings that its help names."""
    from vtkit.recipe.tables import meaning
    from vtkit.settings.named import find_mark

    text = re.sub("`[^`]*`", lambda quoted: options.get(quoted[0], quoted[0]), " ".join(meaning(field).split()))
    default = field.get_default()
    if isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
        text += f" Default: {default}."
    mark = find_mark(field.metadata, field.annotation)
    named = "CODE" if name.endswith("language") else None if mark is None else _NAMED.get(mark.what, "FILE")
    typed: Any = _typed(field.annotation) | None
    annotation = Annotated[typed, typer.Option(option, help=text, metavar=named, show_default=False)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _typed(annotation: Any) -> Any:
    """The type that Typer knows for the type of a setting: without bounds, None and marks."""
    if annotation in (bool, int, float, str) or get_origin(annotation) is Literal:
        return annotation
    if get_origin(annotation) is tuple:
        return list[str]
    return next(_typed(inner) for inner in get_args(annotation) if inner is not NoneType)
