"""How near each prompt of the pool is to each validation set in text. Once a run: no training changes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tasks.prompt_rows import load_prompts, load_sets
from tasks.step import Done, Step, Work, Workshop


@dataclass(frozen=True)
class Similarity(Step):
    name: ClassVar[str] = "similarity"

    ingest: Done
    model: str
    """A sentence-transformers model: a directory or a hub id."""

    def settings(self) -> dict[str, Any]:
        # Weights overwritten in place are another model.
        files = [f.stat() for f in sorted(Path(self.model).rglob("*.safetensors"))]
        return {"model": self.model, "files": [[f.st_size, f.st_mtime_ns] for f in files]}

    def inputs(self) -> dict[str, str]:
        return {"ingest": self.ingest.fingerprint}

    def work(self, at: Workshop) -> Work:
        from pipeline_lib.policy import resolve_device
        from pipeline_lib.similarity import similarities

        at.reporter.start(self.label, None, "")
        pool = load_prompts(at.warehouse, self.ingest, "train")
        validation = load_sets(at.warehouse, self.ingest, "validation")
        table = similarities(pool, validation, self.model, device=resolve_device(self.run.device))
        return Work({"n_prompts": len(pool)}, {"similarities": table})
