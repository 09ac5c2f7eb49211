"""Scoring a pool shard by shard; a finished shard is there whole and is never redone.

A shard's products file is written last. Whichever process writes it, its content is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline_lib.atomic import write_text
from pipeline_lib.influence.drift import Drift, DriftMeter
from pipeline_lib.influence.job import ScoreJob
from pipeline_lib.influence.scorer import Progress, Scorer
from pipeline_lib.influence.scores import Products, check_finite
from pipeline_lib.influence.validation import ValidationGroups
from pipeline_lib.parquet import is_whole, write_parquet
from pipeline_lib.records import RolloutGroup
from pipeline_lib.rollout import read_groups, read_prompt_ids

PRODUCTS_SCHEMA = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("norm", pa.float64()),
        ("dots", pa.list_(pa.float64())),  # in the order of job.validation
        # Null where the group has no signal and was never run.
        ("n_tokens", pa.int64()),
        ("kl", pa.float64()),
        ("ess", pa.float64()),
        ("sequence_ess", pa.float64()),
    ]
)
HALVES = "halves"


def units(job: ScoreJob) -> list[str]:
    """The independent parts of a job: its shards, and the prompts that are scored by halves."""
    return [*_files(job), HALVES] if job.split_half else list(_files(job))


def unfinished(job: ScoreJob) -> list[str]:
    return [unit for unit in units(job) if not all(is_whole(path) for path in _files_of_unit(job, unit))]


def complete(job: ScoreJob) -> bool:
    """Whether every file is there that the job leaves behind."""
    return not unfinished(job) and (job.validation_file is None or job.validation_file.exists())


def products_path(job: ScoreJob, unit: str) -> Path:
    return job.path(f"{unit}.parquet")


def prepare(job: ScoreJob, scorer: Scorer, progress: Progress) -> None:
    """The validation gradients; nothing is done where they are there already."""
    path = job.path("direction_norms.json")
    if path.exists() and all(file.exists() for file in scorer.prepared):
        scorer.load()
        return
    meter = DriftMeter()
    norms = scorer.prepare(_validation_groups(job), meter, progress)
    drifts = {prompt_id: vars(drift) for prompt_id, drift in meter.drifts().items()}
    if drifts:  # none where the other pass of a cascade has been here
        write_text(_validation_drift(job), json.dumps(drifts))
    write_text(path, json.dumps(norms))


def score_units(job: ScoreJob, scorer: Scorer, wanted: Sequence[str], progress: Progress) -> None:
    for unit in wanted:
        groups = list(_halves(job) if unit == HALVES else _groups_of_shard(job, unit))
        meter = DriftMeter()
        progress(0)
        products, keep = scorer.score(groups, meter, progress)
        check_finite(products)
        if unit != HALVES:
            for kind, table in keep.items():
                write_parquet(job.lake_path(kind, f"{unit}.parquet"), table())
        else:
            progress(sum(not group.has_signal for group in groups))
        write_parquet(products_path(job, unit), _products_table(products, meter.drifts()))


def direction_norms(job: ScoreJob) -> list[float]:
    """In the order of job.validation, as the dots."""
    norms: Mapping[str, float] = json.loads(job.path("direction_norms.json").read_text())
    return [norms[name] for name in job.validation]


def pool_products(job: ScoreJob) -> tuple[Products, dict[str, Drift]]:
    """Of the whole pool, from its finished shards."""
    table = pa.concat_tables([_read(products_path(job, unit)) for unit in _files(job)])
    columns = ("prompt_id", "n_tokens", "kl", "ess", "sequence_ess")
    rows = table.filter(pc.is_valid(table["n_tokens"])).select(columns).to_pylist()
    return _products(table), {row.pop("prompt_id"): Drift(**row) for row in rows}


def validation_drifts(job: ScoreJob) -> dict[str, Drift]:
    """Of the validation prompts with signal."""
    return {prompt_id: Drift(**drift) for prompt_id, drift in json.loads(_validation_drift(job).read_text()).items()}


def halves_products(job: ScoreJob) -> tuple[Products, Products]:
    """Of the even and of the odd trajectories of the prompts in job.split_half."""
    table = _read(products_path(job, HALVES))
    even = pa.array([i % 2 == 0 for i in range(len(table))])
    return _products(table.filter(even)), _products(table.filter(pc.invert(even)))


def cheap_pass(job: ScoreJob) -> ScoreJob:
    """The first pass of the job's cascade."""
    return job.model_copy(update={"cheap": True, "split_half": [], "only": None})


def n_done(job: ScoreJob) -> int:
    """Prompts that the finished units have run."""
    return sum(n_scored(job, unit) for unit in set(units(job)) - set(unfinished(job)))


def n_scored(job: ScoreJob, unit: str) -> int:
    """Prompts of a finished unit that were run; of the halves all, since nobody knows before which have signal."""
    table = _read(products_path(job, unit))
    return len(table) if unit == HALVES else len(table) - table["n_tokens"].null_count


def _validation_drift(job: ScoreJob) -> Path:
    return Path(job.directory) / "validation_drift.json"


def _validation_groups(job: ScoreJob) -> ValidationGroups:
    """By the newest rollouts of each prompt. A set that the policy has come to solve throughout, so that they give it
    no direction, keeps the older ones that did."""
    collections: list[dict[str, RolloutGroup]] = [{}]
    for shards in job.validation_rollouts:
        collections.append(collections[-1] | {g.prompt_id: g for file in shards for g in read_groups(file)})
    chosen = {}
    for name, ids in job.validation.items():
        newest_first = [[groups[i] for i in ids] for groups in reversed(collections[1:])]
        with_direction = (groups for groups in newest_first if any(group.has_signal for group in groups))
        chosen[name] = next(with_direction, newest_first[0])
    return chosen


def _files_of_unit(job: ScoreJob, unit: str) -> list[Path]:
    kinds = [] if unit == HALVES else job.kinds_of_shard
    return [products_path(job, unit), *(job.lake_path(kind, f"{unit}.parquet") for kind in kinds)]


def _files(job: ScoreJob) -> dict[str, str]:
    """The rollouts of each shard."""
    files = [file for shards in job.rollouts for file in shards]
    return {f"shard-{index:05d}": file for index, file in enumerate(files)}


def _groups_of_shard(job: ScoreJob, unit: str) -> Iterator[RolloutGroup]:
    only = None if job.only is None else set(job.only)
    for group in read_groups(_files(job)[unit], without=_newer_ids(job, unit)):
        # Without signal nothing is run: such a group has its place in the exact pass of a cascade as well.
        if only is None or group.prompt_id in only or not group.has_signal:
            yield group


def _halves(job: ScoreJob) -> Iterator[RolloutGroup]:
    """Each wanted prompt as two groups, of its even and of its odd trajectories, in this order."""
    for unit, file in _files(job).items():
        for group in read_groups(file, only=set(job.split_half), without=_newer_ids(job, unit)):
            for half in (0, 1):
                half_id = f"{group.prompt_id}/{half}"
                trajectories = (replace(t, prompt_id=half_id) for t in group.trajectories[half::2])
                yield RolloutGroup(half_id, tuple(trajectories))


def _newer_ids(job: ScoreJob, unit: str) -> set[str]:
    """Prompts that were collected again after this shard."""
    [collection] = [shards for shards in job.rollouts if _files(job)[unit] in shards]
    later = job.rollouts[job.rollouts.index(collection) + 1 :]
    return {prompt_id for shards in later for file in shards for prompt_id in read_prompt_ids(file)}


def _products_table(products: Products, drifts: Mapping[str, Drift]) -> pa.Table:
    rows = []
    for prompt_id, norm, dots in zip(
        products.prompt_ids, products.norm_N.tolist(), products.dot_NV.tolist(), strict=True
    ):
        drift = vars(drifts[prompt_id]) if prompt_id in drifts else {}
        rows.append({"prompt_id": prompt_id, "norm": norm, "dots": dots, **drift})
    return pa.Table.from_pylist(rows, schema=PRODUCTS_SCHEMA)


def _products(table: pa.Table) -> Products:
    dots = np.array(table["dots"].to_pylist(), dtype=np.float64)
    return Products(table["prompt_id"].to_pylist(), dots, table["norm"].to_numpy())


def _read(file: Path | str) -> pa.Table:
    return pq.ParquetFile(file).read()
