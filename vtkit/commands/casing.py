"""``vtkit casing``: cased tokens and case variants of a vocabulary; a casing policy put into a model or tokenizer."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from vtkit.commands.options import OutOption, argument, option, options_of
from vtkit.data.hub import located
from vtkit.settings.casing import CasingSection
from vtkit.system import console
from vtkit.system.errors import RecipeError
from vtkit.system.outputs import new_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EXAMPLES = 6  # tokens shown behind each count
TOKEN_WIDTH = 60

List = Literal["cased", "variants", "cased-only"]


@options_of(CasingSection, called={"output": "--apply"})
def casing(
    name: Annotated[str, argument("Folder, tokenizer file or hub id.", "TOKENIZER_OR_MODEL")],
    settings: CasingSection,
    listed: Annotated[
        List | None, option("List these tokens, tab-separated, instead of the counts.", None, "--list")
    ] = None,
    out: OutOption = None,
) -> None:
    """Count cased tokens, or give a model a casing policy.

    Lists cased tokens and the variants that differ in case or in starting a word. Nothing is retrained. --out writes
    the model (or tokenizer), with the chosen input casing (--input) and output casing (--apply), as a folder that loads
    without vtkit. map needs --input lowercase; mask and fold need a model.
    """
    changes = settings.output != "all" or settings.input != "keep"
    if out is None and changes:
        raise RecipeError("--apply and --input change a model: name the folder for the changed model with --out.")
    if out is not None:
        if not changes:
            raise RecipeError("--out writes a changed model: choose the change with --apply or --input.")
        if listed is not None:
            raise RecipeError("--list shows a vocabulary and --out writes a changed model: give one of them.")
        _write_changed(located(name), settings, out)
        return

    from vtkit.vocabulary.existing import load_tokenizer

    _show(name, load_tokenizer(located(name)), listed)


def _show(name: str, tokenizer: PreTrainedTokenizerFast, listed: List | None) -> None:
    from vtkit.vocabulary.casing import canonical_classes, cased_ids, cased_only, count_casing, lower_case_names
    from vtkit.vocabulary.forms import Vocabulary

    vocabulary = Vocabulary(tokenizer)
    spelled = vocabulary.tokens
    if listed is None:
        counts = count_casing(vocabulary)
        only, classes = cased_only(vocabulary), canonical_classes(vocabulary)
        both = [spelled[number] for number in cased_ids(vocabulary).tolist() if number not in only]
        renamed = [f"{before} → {now}" for before, now in lower_case_names(vocabulary).values()]
        variants = [" = ".join(spelled[number] for number in ids) for ids in sorted(classes, key=len, reverse=True)]
        examples = {"with_lower_case": both, "cased_only": renamed, "variants": variants}
        found = {"tokenizer": name, "family": vocabulary.notation.family, **asdict(counts)}
        if console.answered(found | {"examples": {kind: entries[:EXAMPLES] for kind, entries in examples.items()}}):
            return
        console.write(f"{name}: {counts.tokens:,} tokens ({vocabulary.notation.family})")
        for label, count, examples_of in (
            ("special tokens and fillers", counts.special, []),
            ("cased", counts.cased, []),
            ("  with a lower-case token beside them", counts.with_lower_case, both),
            ("  cased only", counts.cased_only, []),
            ("    that can take their lower-case name", counts.free_names, renamed),
            ("variants, equal up to case and word-start mark", counts.variants, variants),
            ("  classes they form", counts.classes, []),
            ("dimensions left after folding", counts.folded, []),
        ):
            shown = ", ".join(console.one_line(entry, TOKEN_WIDTH) for entry in examples_of[:EXAMPLES])
            line = f"  {label:<44}{count:>8,}{count / max(counts.tokens, 1):>8.1%}"
            console.write(f"{line}   {shown}" if shown else line)
        return
    entries: list[dict[str, Any]]
    if listed == "cased":
        entries = [{"id": number, "token": spelled[number]} for number in cased_ids(vocabulary).tolist()]
    elif listed == "cased-only":
        names = lower_case_names(vocabulary)
        entries = [
            {"id": number, "token": spelled[number], "name": names[number][1] if number in names else None}
            for number in cased_only(vocabulary)
        ]
    else:
        entries = [
            {"id": ids[0], "token": spelled[ids[0]], "variants": [{"id": n, "token": spelled[n]} for n in ids[1:]]}
            for ids in canonical_classes(vocabulary)
        ]
    if console.answered(entries, indent=1):
        return
    for entry in entries:
        cells = [str(entry["id"]), entry["token"]]
        if "name" in entry:
            cells.append(entry["name"] or "")
        cells += [cell for variant in entry.get("variants", ()) for cell in (str(variant["id"]), variant["token"])]
        console.write("\t".join(console.one_line(cell, TOKEN_WIDTH) for cell in cells))


def _write_changed(name: str, settings: CasingSection, out: Path) -> None:
    """Write the changed model, or the changed tokenizer if ``name`` is no model."""
    path = Path(name)
    is_model = not path.exists() or any((path / file).is_file() for file in ("modules.json", "config.json"))
    if not is_model and settings.output not in ("all", "map"):
        raise RecipeError(
            f"{name} is a tokenizer, and --apply {settings.output} changes a model's vectors: name a model."
        )
    from vtkit import api

    with new_folder(out) as work:
        if is_model:
            encoder = api.load_encoder(name)
            change = api.change_casing(encoder, **settings.model_dump())
            api.save_encoder(encoder, work)
        else:
            tokenizer, change = api.change_tokenizer_casing(name, **settings.model_dump())
            api.save_tokenizer(tokenizer, work)
    done = {label: value for label, value in asdict(change).items() if value is not None}
    if console.answered({"out": str(out), **done}):
        return
    for label, value in done.items():
        console.write(f"{label.replace('_', ' ')}: {value}")
    console.say(f"wrote {out}")
