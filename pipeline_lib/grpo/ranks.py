"""The processes that train together, and what they tell each other."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Process `rank` of `size`. Every method but the properties is called by all of them."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Everyone's value, by rank, to everyone."""
        if self.size == 1:
            return [value]
        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_first(self, value: T) -> T:
        """Rank 0's value, to everyone."""
        return self.gather(value)[0]


def join_ranks(device: torch.device) -> Ranks:
    """Meet the other processes that torch.distributed.run has started beside this one."""
    if os.environ["WORLD_SIZE"] == "1":
        return Ranks()
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return Ranks(dist.get_rank(), dist.get_world_size())


def end_together() -> NoReturn:
    """Wait for the others, then end this process at once, with its work done and what it printed written out.

    Threads of gloo outlive even destroy_process_group in rank 0, and one that is there while Python takes itself down
    aborts the process, which fails what it has finished.
    """
    if dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
