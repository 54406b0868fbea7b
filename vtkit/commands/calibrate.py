"""``vtkit calibrate``: shift the logits of a model, with a table of the effect."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from vtkit.commands.options import OutOption, argument, option, options_of
from vtkit.data.hub import located
from vtkit.settings.calibrate import CalibrateSection
from vtkit.system import console
from vtkit.system.outputs import new_folder


@options_of(CalibrateSection, fixed={"corpus": ()}, called={"target_activation": "--target"})
def calibrate(
    model: Annotated[str, argument("Folder or hub id of a sparse encoder.", "MODEL")],
    corpus: Annotated[
        list[Path], option("Probe texts: .txt, .jsonl, BEIR folder. Repeatable.", "FILE", "--corpus", "-c")
    ],
    settings: CalibrateSection,
    seed: Annotated[int, option("Seed of the sampling.", min=0)] = 42,
    out: OutOption = None,
) -> None:
    """Set the share of an encoder's positive activations.

    The options are applied in this order: --shift, --tokens, --target, --query-encoder. The shifts are
    found on one half of the probe texts; the table shows the other half.
    """

    from vtkit.api import load_encoder, save_encoder, with_static_queries
    from vtkit.data.document_files import read_corpora
    from vtkit.pipeline.steps.calibrate_head import calibrate_encoder

    with new_folder(out) if out is not None else nullcontext() as work:
        encoder = load_encoder(located(model))
        calibrated = calibrate_encoder(encoder, read_corpora(corpus), settings, seed)
        if settings.query_encoder is not None:
            encoder = with_static_queries(encoder, settings.query_encoder, read_corpora(corpus))
        if work is not None:
            save_encoder(encoder, work)
    if not console.answered(replace(calibrated, query_encoder=settings.query_encoder).to_json()):
        queries = f", queries by a static table ({settings.query_encoder})" if settings.query_encoder else ""
        console.write(f"{calibrated.done()}{queries}\n")
        console.write_table(["", "before", "after"], calibrated.table())
    if out is not None:
        console.say(f"wrote {out}")
