"""How the model of a run was trained and calibrated, and the one list of training curves, for tables and charts."""

from vtkit.report.blocks import Block, Paragraph, Section, Table
from vtkit.report.data import ReportData
from vtkit.report.plots import Line, line_chart
from vtkit.report.wording import amount, is_number, score, share
from vtkit.search.measures.masked_predictions import HeldOutPredictions
from vtkit.settings.finetune import LOSSES, PENALTIES

TRAININGS = {"adapt": "adaptation", "expand": "document expansion", "finetune": "fine-tuning"}


LABELS = {"loss": "loss"} | {name: loss.what.partition(",")[0] for name, loss in LOSSES.items()}
for _side, _texts in (("document", "documents"), ("query", "queries")):
    LABELS[f"{_side}_dimensions"] = f"active dimensions a {_side}"
    for _name, _penalty in PENALTIES.items():
        LABELS[f"{_side}_{_name}"] = f"{_penalty.what.partition(',')[0]} penalty of {_texts}"
    LABELS[f"{_side}_lambda"] = f"λ of {_texts}"
"""Curve that a training stage logs -> its words, if they are others than its name, in the order of the table."""

CHARTS = {
    "Loss": ("loss", "infonce"),
    "Active dimensions": ("document_dimensions", "query_dimensions"),
    "FLOPS penalty": ("document_flops", "query_flops"),
}
"""Chart -> the curves in it, the last of which is drawn last."""

UNICOIL = "The encoder is uniCOIL's: each token of a text has one weight, in its own dimension, and no other has any."


def points(report: ReportData, stage: str, name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one training curve, without points that are missing or not finite."""
    recorded = report.curves.get(stage, {})
    steps, values = recorded.get("steps", ()), recorded.get(name, ())
    found = [(s, v) for s, v in zip(steps, values, strict=False) if is_number(s) and is_number(v)]
    return [float(s) for s, _ in found], [float(v) for _, v in found]


def expanded(words: float) -> str:
    """The texts that the encoder reads, if they are not the documents as they are."""
    return (
        f"It was trained on documents that a model had expanded (TILDE), by {words:.1f} words on average, and those "
        "of the index are expanded too."
    )


def training_section(report: ReportData) -> Section | None:
    """First and last values of every curve, validations, and facts on the model."""
    rows, charts = [], []
    for stage, logged in report.curves.items():
        name = TRAININGS.get(stage, stage)
        for curve in dict.fromkeys((*(known for known in LABELS if known in logged), *logged)):
            steps, values = points(report, stage, curve)
            form = amount if curve.startswith(("document_", "query_")) else score
            if values and curve != "steps":
                label = LABELS.get(curve, curve.replace("_", " "))
                rows.append((name, label, amount(steps[-1]), form(values[0]), form(values[-1])))
        for chart, curves in CHARTS.items():
            drawn = [(LABELS[curve], *points(report, stage, curve), ()) for curve in curves]
            lines: list[Line] = [line for line in drawn if len(line[1]) > 1]
            if lines:
                charts.append(line_chart(f"{chart}, {name}", lines, "step", falls="dimensions" in chart))
    blocks: list[Block] = []
    if rows:
        columns = ("stage", "quantity", "steps", "first", "last")
        blocks.append(Table("First and last values logged", columns, rows, frozenset({1})))
    seeds = "" if report.seed is None else f", with the seeds {report.seed} to {report.seed + report.trainings - 1}"
    facts = {
        UNICOIL: report.kind == "unicoil",
        expanded(report.words_added or 0): report.words_added is not None,
        f"{report.units}.": report.units is not None,
        f"Queries are encoded by {report.query_encoder}.": report.query_encoder is not None,
        f"Fine-tuning turned logits x into weights by {report.activation}.": report.activation is not None,
        f"Margins removed {report.removed} mined documents, which may be relevant.": report.removed > 0,
        f"The weights are the mean of {report.trainings} fine-tunings{seeds}.": report.trainings > 1,
    }
    blocks += [Paragraph(fact) for fact, holds in facts.items() if holds]
    for stage, trainings in report.validated.items():
        for number, validated in enumerate(trainings, 1):
            name = TRAININGS.get(stage, stage) + (f", training {number}" if len(trainings) > 1 else "")
            cells = list(zip(map(amount, validated.steps), map(score, validated.values), strict=True))
            blocks.append(Paragraph(f"Validation of {name}: {validated.words()}"))
            blocks.append(Table(f"Validations of {name}", ("step", validated.metric), cells))
    if is_number(report.mean_value):
        metric = report.validated["finetune"][0].metric
        blocks.append(Paragraph(f"The averaged weights reach {metric} {score(report.mean_value)} in validation."))
    if report.held_out is not None:
        blocks.append(_held_out(report.held_out))
    return Section("training", "Training", [*blocks, *charts], folded=True) if blocks else None


def _held_out(held_out: HeldOutPredictions) -> Table:
    """Accuracy of predicting masked tokens: all, those shared with the source, and new ones."""
    rows = []
    for group, before in held_out.before.items():
        label, after = "shared with the source" if group == "overlapping" else group, held_out.after[group]
        if before is not None and after is not None:
            bits = [f"{predictions.bits_per_byte:.2f}" for predictions in (before, after)]
            rows.append((label, amount(before.tokens), share(before.accuracy), share(after.accuracy), *bits))
    columns = ("tokens", "masked", "accuracy before", "after", "bits per byte before", "after")
    return Table(f"Masked tokens of {amount(held_out.texts)} texts held out of adaptation", columns, rows)


def calibration_section(report: ReportData) -> Section | None:
    """Changes by calibration, and the shares above zero before and after."""
    calibration = report.calibration
    if calibration is None:
        return None
    before, after, held_out = calibration.before, calibration.after, calibration.held_out
    moments = {"before": before, "after": after, "after, on texts held out": held_out}
    rows = [(label, share(shares["token"]), share(shares["pooled"])) for label, shares in moments.items()]
    columns = ("", "of (position, token) logits", "of dimensions after max-pooling")
    steps = calibration.done()
    blocks: list[Block] = [Paragraph(f"{steps[:1].upper()}{steps[1:]}."), Table("Share above zero", columns, rows)]
    if calibration.probe:
        blocks.append(Table("Probe texts held out", ("", "before", "after"), calibration.table()))
    return Section("calibration", "Calibration", blocks, folded=True)
