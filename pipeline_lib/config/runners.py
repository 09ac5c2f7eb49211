"""Where the shards of a step are worked on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.config.section import Section


class LocalRunner(Section):
    """The process that the step runs in, one shard after another."""

    type: Literal["local"] = "local"


class DaskRunner(Section):
    """Workers of Dask. Needs the extra `dask`; give `address` or `workers`."""

    type: Literal["dask"] = "dask"
    address: str | None = Field(default=None, min_length=1)
    """Of a scheduler that is there already, e.g. tcp://10.0.0.5:8786. Its workers must see `root` at the same path, and
    be started with DASK_DISTRIBUTED__WORKER__DAEMON=false where a verifier has processes of its own."""
    workers: int | None = Field(default=None, ge=1)
    """Processes on this machine, started for each step; each holds the policy. They share out the cores, not GPUs."""

    @model_validator(mode="after")
    def one_place(self) -> DaskRunner:
        if (self.address is None) == (self.workers is None):
            raise ValueError(
                f"address={self.address!r} and workers={self.workers}: give the address of a scheduler, or how many "
                "workers to start on this machine, and not both"
            )
        return self


class RayRunner(Section):
    """Workers of Ray. Needs the extra `ray`."""

    type: Literal["ray"] = "ray"
    address: str | None = Field(default=None, min_length=1)
    """Of a cluster that is there already, e.g. 10.0.0.5:6379. Its workers must see `root` at the same path. None starts
    Ray on this machine for each step."""
    num_cpus: float = Field(default=1, gt=0)
    """Cores that a shard takes; as many shards are worked on at once as there is room for."""
    num_gpus: float = Field(default=0, ge=0)
    """GPUs that a shard takes. Above 0 Ray gives each shard a process of its own, which loads the policy again."""


TaskRunner = Annotated[LocalRunner | DaskRunner | RayRunner, Field(discriminator="type")]
