"""Executors: the processes in which parts of a collection are computed, this one, others of this machine, or those of a
Ray cluster.

A job is a picklable function of a task. Each process gets the job once, with whatever it holds (an encoder), then one
task after the other. A process that dies costs its task only, which is started again. Results come in the order of the
tasks, so a sum over them does not depend on the executor.

Pools of other libraries end all of their processes once one is killed: with concurrent.futures.ProcessPoolExecutor and
with loky (joblib 1.6), a death among four processes at work lost the tasks of the other three too, and four new ones
had to import the libraries and get the job again, where here one does. Neither gives each process GPUs of its own.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import chain, count, islice
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from vtkit.settings.run import RunSection
from vtkit.system import console
from vtkit.system.errors import MachineError, MissingExtra, VtkitError, machine_failure
from vtkit.system.interrupt import end_with_starter
from vtkit.system.runtime import threads
from vtkit.system.variables import changed
from vtkit.system.version import __version__

MOST_PROCESSES = 4  # each holds the libraries (600 MB) and a model; more cores become threads of theirs
RETRIES = 3  # of a task whose process died
LAUNCHED = ("WORLD_SIZE", "RANK", "LOCAL_RANK")  # variables of torchrun, which other processes must not inherit

Job = Callable[[Any, console.Bar | None], Any]
"""Takes a task and, in this process, the bar that it may advance."""

_Answer = tuple[type[Exception] | None, Any]  # the result, or the class and the message of an error


_chosen = RunSection()


def executed_by(run: RunSection) -> AbstractContextManager[None]:
    """Compute the parts of jobs in the block as ``run`` says."""
    return changed(globals(), _chosen=run)


def elsewhere() -> bool:
    """Report whether ``[run]`` names an executor that computes in other processes."""
    return _chosen.executor in ("processes", "ray")


def in_order(job: Job, tasks: Iterable[Any], bar: console.Bar, few: int) -> Iterator[Any]:
    """The results of ``job`` for ``tasks``, in their order; see :func:`as_finished`. Where the next result is long in
    coming, only so many others are computed and held."""
    due, results = 0, dict[int, Any]()
    for number, result in as_finished(job, tasks, bar, few, lambda workers: min(workers, 4 * workers - len(results))):
        results[number] = result
        while due in results:
            yield results.pop(due)
            due += 1


def as_finished(
    job: Job, tasks: Iterable[Any], bar: console.Bar, few: int, most: Callable[[int], int] = lambda workers: workers
) -> Iterator[tuple[int, Any]]:
    """The number of each of ``tasks`` with the result of ``job``, as they are finished; tasks are taken as processes
    become free.

    Args:
        few: number of tasks below which no other processes are started, unless ``[run]`` names an executor.
        most: tasks that may be under way with so many workers.

    Raises:
        MachineError: a process died again and again at one task, or the Ray cluster is lost.
        MissingExtra: Ray is not installed.
    """
    chosen, left = _chosen, iter(tasks)
    if chosen.executor is None:
        first = list(islice(left, few))
        left = chain(first, left)
        here = len(first) < few or _processes(chosen) == 1
        chosen = chosen.model_copy(update={"executor": "here" if here else "processes"})
    if chosen.executor == "here":
        for number, task in enumerate(left):
            yield number, job(task, bar)
        return
    team = _Processes(job, chosen) if chosen.executor == "processes" else _Ray(job, chosen)
    numbered, under_way = enumerate(left), 0
    try:
        while True:
            while under_way < most(team.workers) and (next_ := next(numbered, None)):
                team.start(*next_)
                under_way += 1
            if not under_way:
                return
            for number, (error, value) in team.finished():
                under_way -= 1
                if error is not None:
                    raise error.__new__(error, value)  # MissingExtra makes its message itself
                yield number, value
    finally:
        team.leave()


def _answer(compute: Callable[[], Any]) -> _Answer:
    try:
        return None, compute()
    except VtkitError as error:
        return type(error), str(error)
    except Exception as error:
        failure = machine_failure(error)
        return (MachineError, str(failure)) if failure else (RuntimeError, traceback.format_exc())


def _processes(chosen: RunSection) -> int:
    """The number of processes on this machine."""
    if chosen.workers is not None:
        return chosen.workers
    if graphics := _graphics_cards():
        return max(1, int(len(graphics) / (chosen.gpus or 1)))
    return max(1, threads() // chosen.cpus) if chosen.cpus else min(threads(), MOST_PROCESSES)


def _graphics_cards() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    stated = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return stated.split(",")[:count] if stated and count else [str(number) for number in range(count)]


def serve(descriptor: int) -> None:
    """Answer the tasks that come over the connection ``descriptor`` of the process that started this one."""
    global _chosen
    _chosen = RunSection(executor="here")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its starter
    threading.Thread(target=end_with_starter, daemon=True).start()
    console.be_silent()
    connection = Connection(descriptor)
    packed, jobs = [connection.recv_bytes()], list[Job]()

    def compute() -> Any:
        if packed:
            jobs.append(pickle.loads(packed.pop()))
        return jobs[0](pickle.loads(task), None)

    while True:
        task = connection.recv_bytes()
        connection.send_bytes(pickle.dumps(_answer(compute)))


class _Processes:
    """Python processes of this machine that answer tasks, started as there are tasks for them; they end with this
    one."""

    def __init__(self, job: Job, chosen: RunSection) -> None:
        self.workers = _processes(chosen)
        self._job, self._cards, self._gpus = job, _graphics_cards(), chosen.gpus
        self._threads = str(chosen.cpus or max(1, threads() // self.workers))
        self._team: dict[int, tuple[subprocess.Popen[bytes], Connection]] = {}  # by place
        self._tasks: dict[int, tuple[int, Any]] = {}  # of the places that are at work
        self._deaths: Counter[int] = Counter()

    def start(self, number: int, task: Any) -> None:
        place = next(place for place in count() if place not in self._tasks)
        if place not in self._team:
            self._team[place] = self._new(place)
        self._tasks[place] = number, task
        with suppress(OSError):  # a process that has died is noticed when its answer is awaited
            self._team[place][1].send_bytes(pickle.dumps(task))

    def _new(self, place: int) -> tuple[subprocess.Popen[bytes], Connection]:
        environment = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS"), self._threads)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        if self._cards:
            own = max(1, int(self._gpus or 1))
            cards = [self._cards[(place * own + each) % len(self._cards)] for each in range(own)]
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(cards if self._gpus != 0 else [])
        connection, theirs = Pipe()
        process = subprocess.Popen(
            [sys.executable, "-c", f"from vtkit.data.executors import serve; serve({theirs.fileno()})"],
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.PIPE,  # closes with this process, however it ends
        )
        theirs.close()
        with suppress(OSError):
            connection.send_bytes(pickle.dumps(self._job))
        return process, connection

    def finished(self) -> Iterator[tuple[int, _Answer]]:
        """Wait for tasks to be finished; their numbers and answers."""
        busy = {self._team[place][1]: place for place in self._tasks}
        for connection in wait(list(busy)):
            place = busy[connection]  # type: ignore[index]
            number, task = self._tasks.pop(place)
            try:
                answer = pickle.loads(self._team[place][1].recv_bytes())
            except (EOFError, OSError):
                self._bury(place, number)
                self.start(number, task)
            else:
                yield number, answer

    def _bury(self, place: int, number: int) -> None:
        """Remove a process that died at the task ``number``."""
        code = self._end(place)
        self._deaths[number] += 1
        how = f"was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with code {code}"
        if self._deaths[number] > RETRIES:
            raise MachineError(
                f"A process {how} at the same part {RETRIES + 1} times. If memory is short, lower run.workers. The "
                "parts that are finished are kept."
            )
        console.warn(f"a process {how}: another one takes its part")

    def _end(self, place: int) -> int:
        """End a process; its exit code."""
        process, connection = self._team.pop(place)
        process.kill()
        connection.close()
        return process.wait()

    def leave(self) -> None:
        for place in list(self._team):
            self._end(place)


class _Ray:
    """Tasks of a Ray cluster (Ray core, https://docs.ray.io/en/latest/ray-core/walkthrough.html). Its processes keep
    the last job that they got."""

    def __init__(self, job: Job, chosen: RunSection) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray = import_module("ray")
        except ImportError as error:
            raise MissingExtra('executor = "ray"', "ray", "ray") from error
        self._ray, address = ray, chosen.address or os.environ.get("RAY_ADDRESS")
        if not ray.is_initialized():
            own = {} if address else {"num_cpus": threads(), "include_dashboard": False}
            try:
                ray.init(address=address, logging_level=logging.ERROR, **own)
            except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
                raise MachineError(
                    f"Ray at {address or 'this machine'} does not answer: {str(error).splitlines()[0]}. Start it (ray "
                    "start --head), or correct run.address."
                ) from error
        cpus = chosen.cpus or 1
        with self._errors():
            self.workers = chosen.workers or max(2, int(2 * ray.cluster_resources().get("CPU", 1) / cpus))
            if "torch" in sys.modules:
                import torch

                ray.util.register_serializer(torch.nn.Parameter, serializer=_as_array, deserializer=_as_weights)
            self._job = ray.put(job)
        remote = ray.remote(_on_cluster).options(
            num_cpus=cpus, num_gpus=chosen.gpus or 0, max_retries=RETRIES, name="vtkit part"
        )
        self._remote = partial(remote.remote, [self._job], cpus, __version__)
        self._numbers: dict[Any, int] = {}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()
            raise MachineError(
                f"the Ray cluster gave up ({type(error).__name__}: {reason[0] if reason else ''}). The parts that are "
                "finished are kept; the same command continues."
            ) from error

    def start(self, number: int, task: Any) -> None:
        with self._errors():
            self._numbers[self._remote(task)] = number

    def finished(self) -> Iterator[tuple[int, _Answer]]:
        """Wait for tasks to be finished; their numbers and answers."""
        with self._errors():
            ready, _ = self._ray.wait(list(self._numbers))
            answers = self._ray.get(ready)
        for reference, answer in zip(ready, answers, strict=True):
            yield self._numbers.pop(reference), answer

    def leave(self) -> None:
        for reference in self._numbers:
            with suppress(Exception):
                self._ray.cancel(reference, force=True)


def start_early(module: str) -> None:
    """Start Ray, if ``[run]`` names it on this machine, and let its processes import ``module``, which takes seconds,
    while this one reads a model."""
    if _chosen.executor == "ray" and not (_chosen.address or os.environ.get("RAY_ADDRESS")):
        team = _Ray(import_module, _chosen)  # type: ignore[arg-type]  # the bar is None, its default
        for number in range(team.workers):
            team.start(number, module)


def _as_array(weights: Any) -> tuple[Any, ...]:
    """The weights as a process takes them out of Ray's store without copying them."""
    import torch

    flat = weights.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy(), weights.dtype, weights.shape


def _as_weights(parts: tuple[Any, ...]) -> Any:
    """Weights that are read only: jobs do not train."""
    import torch

    array, kind, shape = parts
    with warnings.catch_warnings(action="ignore"):  # torch's, of what cannot be written
        return torch.nn.Parameter(torch.from_numpy(array).view(kind).reshape(shape), requires_grad=False)


_received: deque[tuple[str, Job]] = deque(maxlen=1)


def _on_cluster(shared: list[Any], cpus: int, version: str, task: Any) -> _Answer:
    """Answer a task in a process of a cluster; ``shared`` holds the reference of the job."""
    import ray

    global _chosen
    _chosen = RunSection(executor="here")
    console.be_silent()
    if version != __version__:
        return MachineError, f"{os.uname().nodename} has vtkit {__version__}, not {version}: install the same version."
    os.environ["OMP_NUM_THREADS"] = str(cpus)
    name = shared[0].hex()

    def compute() -> Any:
        if not _received or _received[0][0] != name:
            _received.clear()  # before the next one is there
            _received.append((name, ray.get(shared[0])))
            if "torch" in sys.modules:
                import torch

                torch.set_num_threads(threads())
        return _received[0][1](task, None)

    return _answer(compute)
