"""A training stage whose sampler has a prior and a drift detector: interrupted or not it ends in the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra `difficulty`)")

import pyarrow.parquet as pq
from grpo_cases import chain_prompts, write_training_job

from pipeline_lib.config import DriftDetector, PosteriorSampler, PredictorPrior, Refill, Train
from pipeline_lib.grpo.job import read_result
from pipeline_lib.grpo.stage import run_job
from pipeline_lib.sampling import Observation
from pipeline_lib.sampling.priors.window_file import load_rows

TRAIN = Train(
    steps=4,
    prompts_per_step=4,
    group_size=4,
    learning_rate=1e-3,
    checkpoint_every=3,
    refill=Refill(max_rounds=2),
    sampler=PosteriorSampler(prior=PredictorPrior(refit_every=2), drift=DriftDetector()),
)


class Stopped(Exception):
    pass


def test_a_stage_with_priors_resumes_and_leaves_its_outcomes(tmp_path: Path) -> None:
    prompts = chain_prompts(32)
    history = [Observation(p.prompt_id, 4, i % 5, 0 < i % 5 < 4) for i, p in enumerate(prompts[:24])]
    straight, stopped = (write_training_job(tmp_path / name / "stage", TRAIN, prompts, history) for name in ("a", "b"))
    run_job(straight, lambda: None)
    steps = iter([None, None, None])

    def until_the_fourth() -> None:
        if next(steps, Stopped) is Stopped:
            raise Stopped

    with pytest.raises(Stopped):
        run_job(stopped, until_the_fourth)
    run_job(stopped, lambda: None)
    first, second = read_result(straight), read_result(stopped)
    assert first is not None and second is not None
    assert first.policy_id == second.policy_id
    assert (straight / "prior.jsonl").read_bytes() == (stopped / "prior.jsonl").read_bytes()
    rows = load_rows(straight / "prior.jsonl")
    assert len(rows) > len(history)
    assert [row.n_correct for row in rows[:24]] == [o.n_correct for o in history]
    table = pq.read_table(sorted((straight / "records").rglob("*train_steps*.parquet"))[-1])
    metrics = json.loads(table["sampler_metrics"][-1].as_py())
    assert {"prior_concentration", "drift_alarms", "discount"} <= metrics.keys()
