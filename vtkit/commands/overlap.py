"""``vtkit overlap``: the tokens that two vocabularies share, by class, with examples."""

from pathlib import Path
from typing import Annotated, Any

from vtkit.commands.candidates import short_names
from vtkit.commands.options import argument, option
from vtkit.settings.transfer import OverlapMode
from vtkit.system import console
from vtkit.system.outputs import refuse_folder, write_file


def overlap(
    source: Annotated[str, argument("Model or tokenizer to move from: folder, file or hub id.", "SOURCE")],
    target: Annotated[str, argument("Model or tokenizer whose vocabulary to move to.", "TARGET")],
    mode: Annotated[OverlapMode, option("Which tokens count as known (docs/vocabulary.md).")] = "exact+symbols",
    examples: Annotated[int, option("Number of tokens to show for each class.", min=0)] = 8,
    list_file: Annotated[
        Path | None, option("Write all pairs, tab-separated, with their ids.", "FILE", "--list")
    ] = None,
) -> None:
    """Show the tokens that two vocabularies share.

    The first is SOURCE, the second TARGET. Shows the tokens by class, with examples, and the counts of the other modes.
    """
    from vtkit.report.vocabulary_page import token_shown
    from vtkit.vocabulary.existing import load_tokenizer
    from vtkit.vocabulary.overlap_report import HEADER, overlap_report, pair_rows

    refuse_folder(list_file)
    known, wanted = load_tokenizer(source), load_tokenizer(target)
    report = {"source": source, "target": target, **overlap_report(known, wanted, mode, examples)}
    if list_file is not None:
        rows = ["\t".join(row) for row in (HEADER, *pair_rows(known, wanted, mode))]
        write_file(list_file, "\n".join(rows) + "\n")
    if console.answered(report):
        return
    shown = [console.one_line(name, 60) for name in short_names([source, target])]
    console.write(
        f"{shown[0]} ({report['source_size']:,} tokens) knows {report['overlap']:,} of the {report['target_size']:,} "
        f"tokens of {shown[1]}: {100 * report['share']:.2f} %, by the rule “{report['mode']}”.\n"
    )

    def row(name: str, stats: dict[str, Any]) -> list[str]:
        return [name, f"{stats['count']:,}", f"{100 * stats['share']:.2f} %"]

    kinds = [(kind, stats) for kind, stats in report["classes"].items() if stats["count"]]
    kinds.sort(key=lambda entry: entry[0] == "new")
    console.write_table(["class", "tokens", "share"], [row(*kind) for kind in kinds])
    console.write("")
    for kind, stats in kinds:
        if stats["examples"]:
            pairs = (
                " ← ".join(token_shown(token) for token in pair if token is not None) for pair in stats["examples"]
            )
            console.write(f"{kind}: {', '.join(pairs)}")
    console.write("")
    console.write_table(["mode", "tokens", "share"], [row(*mode) for mode in report["modes"].items()])
