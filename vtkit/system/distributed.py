"""Training by several processes, on several GPUs or machines, which ``torchrun`` or ``accelerate launch`` start.

Each process encodes its share of a batch. Losses and penalties see the whole batch (:func:`gathered`), and gradients
are summed (:func:`sum_gradients`), so a step is the one that a single process makes of the same batch; only dropout is
another. What a run needs once is made by the main process (:func:`by_main`), and it alone writes files. Without a
launcher all of this does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from vtkit.system.errors import DataError, VtkitError
from vtkit.system.variables import changed

if TYPE_CHECKING:
    from torch import Tensor, nn

T = TypeVar("T")

LONGEST_WAIT = timedelta(days=30)
"""For the main process, which mines, asks teachers and makes whole stages while the others wait."""

_alone = False


def count() -> int:
    """Processes that train together."""
    return 1 if _alone else int(os.environ.get("WORLD_SIZE") or 1)


def is_main() -> bool:
    """Report whether this process writes files and messages."""
    return int(os.environ.get("RANK") or 0) == 0


def alone() -> AbstractContextManager[None]:
    """Run the block in this process only, without synchronising."""
    return changed(globals(), _alone=True)


def own_share(batch_size: int) -> int:
    """Texts of a batch that each process encodes."""
    if batch_size % count():
        raise DataError(
            f"a batch of {batch_size} cannot be divided equally among {count()} processes. Set batch_size to a "
            f"multiple of {count()}, or start another number of processes."
        )
    return batch_size // count()


def from_main(value: Any = None) -> Any:
    """``value`` of the main process, in all of them."""
    if count() == 1:
        return value
    import torch

    values = [value]
    _join()
    torch.distributed.broadcast_object_list(values, src=0, device=torch.device("cpu"))
    return values[0]


def by_main(work: Callable[[], T]) -> T:
    """Run ``work`` in the main process and return its value in all processes."""
    if count() == 1:
        return work()
    answer: tuple[bool, Any] = (False, None)
    if is_main():
        try:
            with alone():
                answer = (True, work())
        finally:
            from_main(answer)
    else:
        answer = from_main()
    done, value = answer
    if not done:
        raise VtkitError("the main process has failed, and says why")
    return value


def wait() -> None:
    """Go on when all processes have come here."""
    if count() > 1:
        import torch

        _join()
        torch.distributed.barrier()


def gathered(own: Tensor) -> Tensor:
    """The rows of all processes, in their order; each process gets the gradient by its own rows.

    Args:
        own: equally many in each process, (rows, …).
    """
    if count() == 1:
        return own
    from sentence_transformers.util.distributed import all_gather

    _join()
    return all_gather(own.contiguous())  # type: ignore[no-any-return]


def summed(own: Tensor) -> Tensor:
    """The sum over the processes, without a gradient."""
    if count() == 1:
        return own
    import torch

    _join()
    total = own.detach().clone()
    torch.distributed.all_reduce(total)
    return total


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients of all processes; parameters without one in any of them keep none."""
    if count() == 1:
        return
    import torch

    _join()
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    used = torch.tensor([parameter.grad is not None for parameter in learning], dtype=torch.int32)
    used = used.to(learning[0].device)
    torch.distributed.all_reduce(used, torch.distributed.ReduceOp.MAX)
    under_way = []
    for parameter in (parameter for parameter, anywhere in zip(learning, used.tolist(), strict=True) if anywhere):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        under_way.append(torch.distributed.all_reduce(parameter.grad, async_op=True))
    for sum_ in under_way:
        sum_.wait()


def leave() -> None:
    """End what connects the processes, at the end of a program that trained.

    While the interpreter shuts down, a thread of gloo that lets go of a tensor would abort the process. After a failure
    this is not called: the other processes may still wait for this one, and the launcher ends them.
    """
    if count() == 1:
        return
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _join() -> None:
    """Connect the processes: tensors of a GPU go through NCCL, all else through gloo."""
    import torch

    if torch.distributed.is_initialized():
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK") or 0))
        backend = "cpu:gloo,cuda:nccl"
    torch.distributed.init_process_group(backend, timeout=LONGEST_WAIT)
