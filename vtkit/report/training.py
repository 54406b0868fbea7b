"""How the model of a run was trained and calibrated, and the one list of training curves, for tables and charts."""

from collections.abc import Callable
from dataclasses import dataclass

from vtkit.report.blocks import Block, Paragraph, Section, Table
from vtkit.report.data import Number, ReportData
from vtkit.report.plots import Line, line_chart
from vtkit.report.wording import amount, is_number, score, share
from vtkit.search.measures.masked_predictions import HeldOutPredictions

TRAININGS = {"adapt": "adaptation", "expand": "document expansion", "finetune": "fine-tuning"}


@dataclass(frozen=True)
class Curve:
    """A quantity that a training stage logs."""

    name: str
    label: str
    form: Callable[[Number], str] = score
    chart: str = ""  # the chart that shows it (empty: none), and its name there
    line: str = ""


CURVES = (
    Curve("loss", "loss", chart="Loss", line="loss"),
    Curve("contrastive", "contrastive part of the loss", chart="Loss", line="its contrastive part"),
    Curve("document_dimensions", "active dimensions a document", amount, "Active dimensions", "a document"),
    Curve("query_dimensions", "active dimensions a query", amount, "Active dimensions", "a query"),
    Curve("document_flops", "FLOPS penalty of documents", amount, "FLOPS penalty", "of documents"),
    Curve("query_flops", "FLOPS penalty of queries", amount, "FLOPS penalty", "of queries"),
    Curve("query_lambda", "λ of queries", amount),
    Curve("document_lambda", "λ of documents", amount),
    Curve("margin_mse", "MarginMSE"),
    Curve("kl", "divergence from the teacher, own documents"),
    Curve("listwise", "divergence from the teacher, all documents"),
)
"""The curves that have other words than their names, in the order of the table; the last of a chart is drawn last."""

UNICOIL = "The encoder is uniCOIL's: each token of a text has one weight, in its own dimension, and no other has any."


def curves_of(report: ReportData, stage: str) -> list[Curve]:
    """The curves that a stage logged, those of :data:`CURVES` first."""
    logged = report.curves.get(stage, {})
    known = [curve for curve in CURVES if curve.name in logged]
    names = {curve.name for curve in CURVES} | {"steps"}
    return known + [Curve(name, name.replace("_", " ")) for name in logged if name not in names]


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
    for stage in report.curves:
        lines: dict[str, list[Line]] = {}
        name = TRAININGS.get(stage, stage)
        for curve in curves_of(report, stage):
            steps, values = points(report, stage, curve.name)
            if values:
                rows.append((name, curve.label, amount(steps[-1]), curve.form(values[0]), curve.form(values[-1])))
            if curve.chart and len(steps) > 1:
                lines.setdefault(curve.chart, []).append((curve.line, steps, values, ()))
        charts += [
            line_chart(f"{chart}, {name}", drawn, "step", falls="dimensions" in chart) for chart, drawn in lines.items()
        ]
    blocks: list[Block] = []
    if rows:
        columns = ("stage", "quantity", "steps", "first", "last")
        blocks.append(Table("First and last values logged", columns, rows, frozenset({1})))
    seeds = "" if report.seed is None else f", with the seeds {report.seed} to {report.seed + report.trainings - 1}"
    facts = {
        UNICOIL: report.kind == "unicoil",
        expanded(report.words_added or 0): report.words_added is not None,
        f"Queries are encoded by {report.query_encoder}.": report.query_encoder is not None,
        f"Fine-tuning turned logits x into weights by {report.activation}.": report.activation is not None,
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
    groups = (
        ("all", held_out.before.all, held_out.after.all),
        ("shared with the source", held_out.before.overlapping, held_out.after.overlapping),
        ("new", held_out.before.new, held_out.after.new),
    )
    rows = []
    for label, before, after in groups:
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
    rows = [(label, share(shares.token), share(shares.pooled)) for label, shares in moments.items()]
    columns = ("", "of (position, token) logits", "of dimensions after max-pooling")
    steps = calibration.done()
    blocks: list[Block] = [Paragraph(f"{steps[:1].upper()}{steps[1:]}."), Table("Share above zero", columns, rows)]
    if calibration.probe:
        blocks.append(Table("Probe texts held out", ("", "before", "after"), calibration.table()))
    return Section("calibration", "Calibration", blocks, folded=True)
