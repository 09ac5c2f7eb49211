"""The initial policy: converted if need be, known by the hash of its bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from safetensors import safe_open

from pipeline_lib.config import BuiltinPolicy, GgufPolicy, PolicySource, PretrainedPolicy
from tasks.step import Step, Work, Workshop


@dataclass(frozen=True)
class ImportPolicy(Step):
    name: ClassVar[str] = "policy"

    def settings(self) -> dict[str, Any]:
        # Weights overwritten in place are another policy; their bytes are hashed only once they changed.
        files = [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in _weight_files(self.run.policy)]
        return {"policy": self.run.policy.model_dump(mode="json"), "files": files}

    def inputs(self) -> dict[str, str]:
        return {}

    def work(self, at: Workshop) -> Work:
        from pipeline_lib.policy import policy_id_of
        from pipeline_lib.policy.materialise import materialise_policy

        at.reporter.start(self.label, None, "")
        path = materialise_policy(self.run.policy, self.root)
        policy_id = policy_id_of(path)
        n_parameters = count_parameters(path)
        outputs: dict[str, Any] = {
            "policy_id": policy_id,
            "path": path_in_root(self.root, path),
            "n_parameters": n_parameters,
        }
        return Work(outputs, {"policies": policy_row(policy_id, outputs["path"], None, n_parameters)})

    def lost_outputs(self, outputs: Mapping[str, Any]) -> list[str]:
        return [] if policy_directory(self.root, outputs).exists() else [outputs["path"]]


def _weight_files(source: PolicySource) -> list[Path]:
    """The files that the policy is read from, where they are known without looking it up."""
    match source:
        case BuiltinPolicy(directory=directory):
            return sorted(directory.glob("*.safetensors"))
        case PretrainedPolicy(path=path):
            return sorted(Path(path).glob("*.safetensors"))
        case GgufPolicy(path=path):
            return [Path(path)] if path is not None and Path(path).is_file() else []


def path_in_root(root: Path, path: Path) -> str:
    """As it is recorded: relative to the root, which may be moved or copied, where it is below it."""
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def policy_directory(root: Path, outputs: Mapping[str, Any]) -> Path:
    """Where the weights are that the step with these `outputs` has as its result, or should be."""
    recorded = Path(outputs["path"])
    # Older runs recorded whole paths, which are those of another root once theirs is moved or copied.
    own = root / "policies" / recorded.name
    return own if recorded.parent.name == "policies" and own.is_dir() else root / recorded


def policy_row(policy_id: str, path: str, parent_policy_id: str | None, n_parameters: int) -> pa.Table:
    row = {
        "policy_id": policy_id,
        "path": path,
        "parent_policy_id": parent_policy_id,
        "n_parameters": n_parameters,
    }
    return pa.Table.from_pylist([row])


def count_parameters(path: Path) -> int:
    """Stored parameters of a safetensors directory, read from the headers alone."""
    total = 0
    for file in path.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (safe_open is not iterable)
                shape = tensors.get_slice(name).get_shape()
                total += math.prod(shape)
    return total
