"""The gates of the rows that a transfer made: shared tokens have the source's, and new ones can be told apart."""

from dataclasses import dataclass

import numpy as np
from sentence_transformers import SparseEncoder

from vtkit.encoder.asymmetric import output_tokenizer, own_output
from vtkit.encoder.families import as_array, mlm_head
from vtkit.encoder.masked import is_masked, masked_dimensions
from vtkit.evaluation.gates.result import Seen
from vtkit.transfer.mixture import Mixture
from vtkit.transfer.surgery.bias import has_text
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.overlap import Overlap

ROWS = 512  # rows sampled where all would take long

WITHOUT_EVIDENCE = 0.5
"""Share of the new tokens of text without evidence (a reassigned row, the mean, noise) above which a transfer is worth
a warning. In docs/log.md 30 % of them had none in Japanese, 40 % in Korean and 70 % in Arabic; after calibration these
had 0.60, 0.77 and 0.37 nDCG@10."""

COLLAPSED_COSINE = 0.999

NORMS = (1 / 3, 3.0)  # median length of made rows, in median lengths of source rows, between which it passes


@dataclass(frozen=True)
class Moved:
    """The vocabularies and rows of a transfer."""

    source: SparseEncoder
    alignment: Overlap
    mixture: Mixture
    bias: str  # `transfer.bias.method`: with `mixture` and `copy-overlap` shared tokens keep their bias


def identity_gate(moved: Moved, encoder: SparseEncoder) -> Seen:
    """Whether shared tokens have their source rows bit for bit, and their bias where the method keeps it.

    Mean and deviation of the biases are shown beside the source's, masked dimensions left out: ``zscore`` keeps both.
    """
    old, new = (mlm_head(model[0].auto_model) for model in (moved.source, encoder))
    mixture = moved.mixture
    kept = np.flatnonzero(mixture.methods == "overlap")
    origins = moved.alignment.target_to_source[kept]
    active = ~masked_dimensions(encoder[0].auto_model).cpu().numpy()[: moved.alignment.target_size]
    biases, old_biases = (as_array(head.decoder.bias) for head in (new, old))
    differing: dict[str, int] = {}
    if own_output(encoder) is None:
        rows, old_rows = (as_array(head.embeddings.weight) for head in (new, old))
        differing["embedding rows"] = (rows[kept] != old_rows[origins]).any(axis=1).sum()
    if not new.tied:
        rows, old_rows = (as_array(head.decoder.weight) for head in (new, old))
        differing["decoder rows"] = (rows[kept] != old_rows[origins]).any(axis=1).sum()
    if moved.bias in ("mixture", "copy-overlap"):
        differing["bias"] = (active[kept] & (biases[kept] != old_biases[origins])).sum()
    problems = [
        f"{count} of {len(kept)} shared tokens differ from the source in their {what}"
        for what, count in differing.items()
        if count
    ]
    own, of_source = biases[: len(active)][active], old_biases[~is_masked(old_biases)]
    bias_words = f"bias {own.mean():.2f} ± {own.std():.2f} (source {of_source.mean():.2f} ± {of_source.std():.2f})"
    if problems:
        advice = "The saved model differs from what the transfer made: the source has changed, or this is a defect."
        return "fail", f"{', '.join(problems)}; {bias_words}", advice
    if not len(kept):
        return "pass", f"no token keeps its row, because the method makes all rows; {bias_words}", ""
    return "pass", f"{len(kept)} shared tokens: rows equal bit for bit; {bias_words}", ""


def neighbours_gate(moved: Moved, encoder: SparseEncoder) -> Seen:
    """Compare made rows with source rows: their cosine to the nearest one and to their own mean, and their lengths.

    Rows without a source token behind them (the mean, masked, noise) are counted and left out. The others fail
    where nearly all of them point one way: the method told no token from another. New tokens that no method had
    evidence for are counted too, whether or not they were given the row of an unused source word: where they are most
    of the new tokens that stand for text, that is worth a warning.
    """
    mixture = moved.mixture
    old, new = (mlm_head(model[0].auto_model).decoder.weight for model in (moved.source, encoder))
    made = np.flatnonzero(mixture.methods != "overlap")
    own = made[np.diff(mixture.weights.indptr)[made] > 0]
    text = has_text(Vocabulary(output_tokenizer(encoder)), len(mixture.methods))[made]
    reassigned = mixture.methods[made] == "reassigned"
    evident = (np.diff(mixture.weights.indptr)[made] > 0) & ~reassigned
    without, wanting = int((text & ~evident).sum()), int(text.sum())
    share = without / max(wanting, 1)
    if not len(made):
        return "pass", "no new tokens", ""
    if not len(own):
        seen = f"none of {len(made)} new tokens was made from source tokens (all are the mean row, or noise)"
        return "warn", seen, "This is a baseline: new tokens have no meaning before adaptation."
    sampled = np.sort(np.random.default_rng(0).choice(own, min(ROWS, len(own)), replace=False))
    source_rows, rows = as_array(old), as_array(new)[sampled]
    source_lengths, lengths = np.linalg.norm(source_rows, axis=1), np.linalg.norm(rows, axis=1)
    directions = rows / np.maximum(lengths, 1e-12)[:, None]
    nearest = (directions @ (source_rows / np.maximum(source_lengths, 1e-12)[:, None]).T).max(axis=1)
    middle = directions.mean(axis=0)
    to_middle = directions @ (middle / max(float(np.linalg.norm(middle)), 1e-12))
    ratio = float(np.median(lengths) / max(float(np.median(source_lengths)), 1e-12))
    collapsed = float((to_middle > COLLAPSED_COSINE).mean())
    low, median, high = (float(value) for value in np.quantile(nearest, [0.05, 0.5, 0.95]))
    seen = (
        f"{len(made)} made rows: cosine to the nearest source row {median:.2f} "
        f"(5 % below {low:.2f}, 5 % above {high:.2f}), length {ratio:.2f} of the source's; {without} of {wanting} new "
        f"tokens of text ({share:.0%}) without evidence, {int((text & reassigned).sum())} of them with a reassigned row"
    )
    if len(sampled) > 1 and collapsed > 0.9:
        advice = (
            "All new tokens point the same way. Check the texts or vectors that transfer.method uses (vtkit provenance "
            "shows what each token was made of), or choose another method."
        )
        return "fail", f"{seen}; {collapsed:.0%} of them point the same way", advice
    remedies = []
    if share > WITHOUT_EVIDENCE:
        remedies.append(
            "Most new tokens have no evidence of their meaning: add a dictionary or more sentence pairs "
            "(transfer.parallel.files), or an embedder that knows both languages (transfer.sembridge.embedder)."
        )
    if not NORMS[0] <= ratio <= NORMS[1]:
        remedies.append("Short rows are rarely active, long rows nearly always: add [adapt], or choose another method.")
    return "warn" if remedies else "pass", seen, " ".join(remedies)
