"""The mean of several trainings from the same weights, θ̄ = (θ₁ + … + θₙ) / n: the uniform soup of Wortsman et al.
(arXiv:2203.05482), which generalises as an ensemble does at the price of one model in search."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from sentence_transformers import SparseEncoder
from torch import Tensor

from vtkit.encoder.asymmetric import query_table
from vtkit.system import console, distributed
from vtkit.training.validated import Validated
from vtkit.training.validation import BEST, Validation
from vtkit.training.weights import keep_weights, set_weights

Curves = dict[str, list[float]]


def averaged(
    encoder: SparseEncoder,
    seeds: Sequence[int],
    train: Callable[[int, Path], Curves],
    folder: Path,
    validation: Validation | None = None,
) -> Curves:
    """Train once with each of ``seeds`` from the weights as they are now, and give ``encoder`` the mean of what comes
    of them. A training that has ended is kept in ``folder``: a killed run does not train it again.

    Args:
        train: trains ``encoder`` in place with a seed, and checkpoints in a folder; gives the curves.
        validation: that ``train`` uses.

    Returns:
        The curves of all trainings, one behind the other: ``steps`` counts on.
    """
    parameters = parameters_of(encoder)
    start = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    files, joined = [], Curves()
    for number, seed in enumerate(seeds, 1):
        place = folder / f"training-{number}"
        file = place / "end.safetensors"
        if distributed.by_main(file.is_file):
            console.say(f"  training {number} of {len(seeds)} is done")
            with safe_open(file, framework="pt") as end:
                results = end.metadata()
            curves = json.loads(results["curves"])
            if validation is not None:
                validation.validated.append(Validated.from_json(json.loads(results["validated"])))
        else:
            console.say(f"  training {number} of {len(seeds)}, seed {seed}")
            set_weights(parameters, start)
            curves = train(seed, place)
            if distributed.is_main():
                validated = {} if validation is None else {"validated": json.dumps(validation.validated[-1].to_json())}
                keep_weights(parameters, file, {"curves": json.dumps(curves), **validated})
        distributed.wait()
        for left in (*place.glob("checkpoint-*"), place / BEST) if distributed.is_main() else ():
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        files.append(file)
        last = joined["steps"][-1] if joined else 0
        for name, values in curves.items():
            joined[name] = joined.get(name, []) + [last * (name == "steps") + value for value in values]
    ends = [safe_open(file, framework="pt") for file in files]
    # one parameter at a time and in double precision, so that the weights of one training are held
    with torch.no_grad():
        for name, parameter in parameters.items():
            total = torch.zeros_like(parameter, dtype=torch.float64, device="cpu")
            for end in ends:
                total += end.get_tensor(name)  # type: ignore[no-untyped-call]
            parameter.copy_(total / len(ends))
    return joined


def parameters_of(encoder: SparseEncoder) -> dict[str, Tensor]:
    """The encoder's parameters, and the weights of its query table, by their names."""
    table = query_table(encoder)
    return dict(encoder.named_parameters()) | ({} if table is None else {"query_table": table.weight})
