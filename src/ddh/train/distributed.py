"""Processes that train together: who they are, what they tell each other, how their job ends.

`torchrun --nproc-per-node 2 -m ddh fit ...` starts them; `job` joins them. Steps meet in
collectives, which give up after PATIENCE. Long stages, in which one process works and the others
wait, meet in torch's key-value store instead and may take as long as they like.
"""

import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import click
import numpy as np
from numpy.typing import NDArray

from ddh._core.errors import DDHError, DDHWarning, InputError
from ddh._core.progress import set_quiet

if TYPE_CHECKING:  # torch is imported when there are several processes
    import torch
    from torch import Tensor, nn

#: How long a process waits for the others within a step. A process that dies closes its
#: connections, which the others see at once; this is for machines that vanish.
PATIENCE = timedelta(minutes=3)
POLL_SECONDS = 0.05
#: Words by which torch says that it has lost another process.
CONNECTION = ("gloo", "connection", "nccl", "socket", "timed out", "broken pipe")
GONE = (
    "another process of this job has ended (killed, out of memory, or its machine is gone); "
    "run the same command with --resume to go on from the last checkpoint"
)


class Processes:
    """This process (`rank`) among `size`; alone, every method is the identity."""

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None) -> None:
        self.rank, self.size, self.store = rank, size, store
        self._calls = 0

    @property
    def is_single(self) -> bool:
        return self.size == 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes, prints and shows progress."""
        return self.rank == 0

    def shard(self, total: int, rank: int | None = None) -> slice:
        """The rows that a process (by default this one) holds: contiguous, equal up to one."""
        rank = self.rank if rank is None else rank
        return slice(total * rank // self.size, total * (rank + 1) // self.size)

    # -- within a step: everyone calls these in the same order --------------------------------

    def all_reduce_(self, *tensors: "Tensor") -> None:
        """Replace each tensor by its sum over the processes."""
        if self.is_single:
            return
        import torch
        import torch.distributed as dist

        joined = torch.cat([tensor.double().flatten() for tensor in tensors])
        dist.all_reduce(joined)
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, total in zip(tensors, joined.split(sizes), strict=True):
            tensor.copy_(total.view_as(tensor))

    def gather(self, rows: "Tensor") -> "tuple[Tensor, slice]":
        """The rows of all processes, one after another, and where those of this one are."""
        if self.is_single:
            return rows, slice(0, len(rows))
        import torch
        import torch.distributed as dist

        counts = torch.zeros(self.size, dtype=torch.int64, device=rows.device)
        counts[self.rank] = len(rows)
        dist.all_reduce(counts)
        mine = slice(int(counts[: self.rank].sum()), int(counts[: self.rank + 1].sum()))
        whole = rows.new_zeros(int(counts.sum()), *rows.shape[1:])
        whole[mine] = rows
        dist.all_reduce(whole)
        return whole, mine

    def sums(self, values: Sequence[float], device: "torch.device") -> Sequence[float]:
        """The sums of everyone's values."""
        if self.is_single:
            return values
        import torch
        import torch.distributed as dist

        totals = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(totals)
        return totals.tolist()

    def gather_with_grad(self, rows: "Tensor") -> "Tensor":
        """As `gather`, with a gradient for the rows of this process."""
        if self.is_single:
            return rows
        import torch

        whole, mine = self.gather(rows.detach())
        return torch.cat([whole[: mine.start], rows, whole[mine.stop :]])

    def sum_with_grad(self, values: "Tensor") -> "Tensor":
        """The sum over all processes, with a gradient for the values of each."""
        if self.is_single:
            return values
        from torch.distributed.nn.functional import all_reduce

        return all_reduce(values)  # type: ignore[no-any-return]

    def share_value(self, term: "Tensor") -> "Tensor":
        """A term that all have whole, each with its part of the gradient: as a value it counts
        once."""
        return term - term.detach() * (1 - 1 / self.size) if self.size > 1 else term

    def agree(self, value: bool, device: "torch.device") -> bool:
        """What the main process says."""
        return bool(self.sums([value if self.is_main else 0], device)[0])

    def parallel(self, module: "nn.Module") -> "nn.Module":
        """The module with its gradients averaged over the processes (torch's DDP)."""
        if self.is_single or not any(p.requires_grad for p in module.parameters()):
            return module
        from torch import nn

        return nn.parallel.DistributedDataParallel(module)

    # -- between stages -----------------------------------------------------------------------

    def run_on_main(self, work: Callable[[], Any]) -> Any:
        """Done by the main process while the others wait; all get the result (plain values)."""
        if self.is_single:
            return work()
        self._calls += 1
        key = f"main/{self._calls}"
        if self.is_main:
            try:
                value = work()
            except BaseException as error:
                self.store.set(key, json.dumps({"error": str(error)}))
                raise
            self.store.set(key, json.dumps({"value": value}))
            return value
        while not self.store.check([key]):
            time.sleep(POLL_SECONDS)
        answer = json.loads(self.store.get(key))
        if "error" in answer:
            raise DDHError(answer["error"])
        return answer["value"]

    def barrier(self) -> None:
        """Continue when all processes have come here, however long that takes."""
        if self.is_single:
            return
        self._calls += 1
        key = f"barrier/{self._calls}"
        self.store.add(key, 1)
        while self.store.add(key, 0) < self.size:
            time.sleep(POLL_SECONDS)


class Shard:
    """The rows of `total` that this process holds."""

    def __init__(self, processes: Processes, total: int) -> None:
        self.processes, self.total = processes, total
        self._asked: Tensor | None = None
        self._batch: tuple[Tensor, slice] | None = None

    @property
    def rows(self) -> slice:
        return self.processes.shard(self.total)

    def own(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in a batch of images those of this shard are."""
        return np.flatnonzero((batch >= self.rows.start) & (batch < self.rows.stop))

    def images(self, rows: "Tensor") -> "tuple[Tensor, slice]":
        """The images of the whole batch, and where those of this process (its `rows`) are."""
        if (
            self._batch is None or rows is not self._asked
        ):  # several parts of the objective ask for the same batch
            self._asked, self._batch = rows, self.processes.gather(rows + self.rows.start)
        return self._batch


SINGLE = Processes()
_current = SINGLE


def current() -> Processes:
    """The processes that this one trains with: those of the `job`, else it is alone."""
    return _current


@contextmanager
def job(device: str = "auto") -> Iterator[Processes]:
    """Join the processes that torchrun started, for `DDH.fit` to train on all of them; without
    torchrun, this one stays alone. The first error ends the job, with one message."""
    global _current
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield SINGLE
        return
    import torch.distributed as dist

    _current = processes = _join(device)
    if not processes.is_main:
        set_quiet(True)
        warnings.simplefilter("ignore", DDHWarning)
    before = signal.signal(signal.SIGTERM, lambda *_: _end(processes, GONE))
    try:
        yield processes
        processes.barrier()
    except DDHError as error:
        _end(processes, str(error))
    except RuntimeError as error:
        lost = any(word in str(error).lower() for word in CONNECTION)
        if not (lost or isinstance(error, dist.DistError)):
            raise
        _end(processes, GONE)
    finally:
        signal.signal(signal.SIGTERM, before)
        _current = SINGLE
        set_quiet(False)
    dist.destroy_process_group()


def _join(device: str) -> Processes:
    import torch
    import torch.distributed as dist

    local = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if on_gpu:
        if local >= torch.cuda.device_count():
            raise InputError(
                f"there are {torch.cuda.device_count()} GPUs here and more processes than that: "
                "lower --nproc-per-node, or use --device cpu"
            )
        torch.cuda.set_device(local)
    store, rank, size = next(dist.rendezvous("env://", timeout=PATIENCE))  # type: ignore[attr-defined]
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=dist.PrefixStore("torch", store),  # type: ignore[attr-defined]
        rank=rank,
        world_size=size,
        timeout=PATIENCE,
        device_id=torch.device("cuda", local) if on_gpu else None,
    )
    return Processes(rank, size, dist.PrefixStore("ddh", store))  # type: ignore[attr-defined]


def _end(processes: Processes, message: str) -> NoReturn:
    """Leave at once, the message told by one process; torch's threads may hang in a dead peer."""
    try:
        first = processes.store.add("ended", 1) == 1
    except RuntimeError:  # the store is gone with the machine that held it
        first = True
    if first:
        click.echo(f"ddh: {message}", err=True)
    os._exit(2)
