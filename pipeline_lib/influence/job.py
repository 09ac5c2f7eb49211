"""What the processes that score a pool are given, as one JSON file; paths are absolute."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from pipeline_lib.atomic import write_text
from pipeline_lib.config import Influence

LakeKind = Literal["features", "validation_features", "per_token"]
"""What a job leaves in the lake for good, a directory each."""


class ScoreJob(BaseModel):
    """Shards of a pool to be scored against validation sets.

    `directory` takes the validation gradients, and of each shard the inner products; what lasts beyond the
    step (features, derivatives of tokens) goes to `lake`/<kind>/<fingerprint>.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    fingerprint: str
    directory: str
    lake: str
    policy_path: str
    device: str
    dtype: str
    temperature: float
    tokens_per_micro_batch: int
    influence: Influence
    rollouts: list[list[str]]
    """Parquet files of rollout groups, each a shard, by collection. Of a prompt that is in several collections
    the last one counts."""
    validation_rollouts: list[list[str]]
    validation: dict[str, list[str]]
    """Prompt ids of each validation set."""
    split_half: list[str]
    """Prompt ids that are scored by halves as well."""
    cheap: bool = False
    """Whether this is the first pass of a cascade."""
    only: list[str] | None = None
    """Prompt ids that the first pass of a cascade has left over."""

    def path(self, name: str) -> Path:
        """Of a file of this job's own."""
        return Path(self.directory) / (f"cheap-{name}" if self.cheap else name)

    def lake_path(self, kind: LakeKind, name: str) -> Path:
        return Path(self.lake) / kind / self.fingerprint / name

    @property
    def kinds_of_shard(self) -> list[LakeKind]:
        """What each shard leaves in the lake beside its products."""
        if self.influence.type == "projected":
            return ["features"]
        return ["per_token"] if self.influence.per_token and not self.cheap else []

    @property
    def validation_file(self) -> Path | None:
        """What the validation sets leave in the lake."""
        projected = self.influence.type == "projected"
        return self.lake_path("validation_features", "validation.parquet") if projected else None

    @property
    def directions_file(self) -> Path:
        """The validation gradients of both passes of a cascade: as large as the policy for each set."""
        return Path(self.directory) / "directions.safetensors"

    def write(self) -> Path:
        path = self.path("job.json")
        write_text(path, self.model_dump_json(indent=2))
        return path

    @classmethod
    def read(cls, path: Path) -> ScoreJob:
        return cls.model_validate_json(path.read_text())
