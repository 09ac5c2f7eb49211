"""What a sampler decides depends on seed and history alone: the warehouse's rows are enough to decide it again."""

from __future__ import annotations

import random
from functools import partial
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from grpo_cases import group, scripted

from pipeline_lib.config import (
    DynamicSampler,
    GresoSampler,
    Pid,
    PosteriorSampler,
    Refill,
    Sampler,
    Train,
    UniformSampler,
    VarianceSigmoidSampler,
)
from pipeline_lib.grpo.fill import fill_batch
from pipeline_lib.grpo.record_files import finished_steps
from pipeline_lib.grpo.records import write_step_records
from pipeline_lib.rollout import rollout_stats
from pipeline_lib.sampling import Decision, Observation, RoundSizer, make_sampler
from pipeline_lib.tracking.trackers import Trackers
from tasks.training import HISTORY, TrainStage
from warehouse import Warehouse

STEPS = 200
POOL = [f"p{i:02d}" for i in range(30)]
SEED = 5
SAMPLERS = {
    "uniform": UniformSampler(),
    "dynamic": DynamicSampler(),
    "greso": GresoSampler(),
    "posterior": PosteriorSampler(half_life=20, controller=Pid(kd=0.1)),
    "variance_sigmoid": VarianceSigmoidSampler(),
}
ZEROS = (
    "loss solved_all solved_some solved_none n_ungraded grad_norm learning_rate num_tokens generated_tokens "
    "prompts_skipped prompts_rolled_out rollouts step_time rollout_time verify_time update_time"
)


def rewards(rng: random.Random, prompt_id: str, progress: float) -> list[float | None]:
    """Four answers to a prompt: the higher its number the harder it is, and all get easier with time."""
    if rng.random() < 0.02:
        return [None] * 4
    chance = min(1.0, max(0.0, 1.2 - 0.07 * int(prompt_id[1:]) + 0.8 * progress))
    return [float(rng.random() < chance) for _ in range(4)]


def run_stage(directory: Path, sampler: Sampler, history: list[Observation]) -> None:
    """200 steps as the trainer takes them, the policy left out."""
    config = Train(sampler=sampler, prompts_per_step=5, group_size=4, refill=Refill(min_prompts=1, max_rounds=3))
    rng = random.Random(17)
    chooser = make_sampler(config.sampler, POOL, history, SEED, group_size=config.group_size)
    sizer = RoundSizer(config.refill, config.prompts_per_step)
    batch = None
    for step in range(1, STEPS + 1):
        roll_out = scripted(lambda p, call, at=step / STEPS: rewards(rng, p, at))
        batch = fill_batch(chooser, sizer, roll_out, batch.carried if batch else [], config)
        row = dict.fromkeys(ZEROS.split(), 0) | {
            "generation_rounds": batch.rounds,
            "prompts_proposed": len(batch.decisions),
            "groups_trained": len(batch.groups),
            "groups_carried": len(batch.carried),
            "sampler_metrics": "{}",
        }
        write_step_records(directory, step, row, batch, "policy")


def record_offline_rollouts(warehouse: Warehouse) -> None:
    rng = random.Random(3)
    offline = rollout_stats(
        [group(p, rewards(rng, p, 0.0)) for p in POOL[:-5]], step=0, phase="offline", policy_id="policy"
    )
    chosen = [
        {"prompt_id": p, "strategy": "all", "score": 0.0, "rank": 1, "selected": True, "reason": "all"} for p in POOL
    ]
    warehouse.write({"rollout_stats": offline}, fingerprint="offline")
    warehouse.write({"selections": pa.Table.from_pylist(chosen)}, fingerprint="selection")


def read_history(warehouse: Warehouse) -> list[Observation]:
    rows = warehouse.query(HISTORY, {"fingerprints": ["offline"], "selection": "selection"})
    return [Observation(**row) for row in rows.to_pylist()]


DECISIONS = """
    SELECT step, decisions.* EXCLUDE (fingerprint, step, position), n, n_correct, has_signal
    FROM train_steps
    LEFT JOIN sampler_decisions AS decisions USING (fingerprint, step)
    LEFT JOIN rollout_stats USING (fingerprint, step, prompt_id)
    WHERE fingerprint = 'train'
    ORDER BY step, position
"""


def replay(sampler: Sampler, history: list[Observation], rows: list[dict[str, Any]]) -> list[Decision]:
    """Let a fresh sampler decide again, told only how the groups of the rows ended."""
    chooser = make_sampler(sampler, POOL, history, SEED, group_size=4)
    decided: list[Decision] = []
    for _, of_step in groupby(rows, key=lambda row: row["step"]):
        for number, of_round in groupby(of_step, key=lambda row: row["round"]):
            if number is None:  # a step that was carried over whole
                continue
            recorded = list(of_round)
            kept = [row for row in recorded if row["keep"]]
            # Where the last one was skipped, more were asked for than there were.
            decided += chooser.propose(len(kept) + (not recorded[-1]["keep"]))
            chooser.observe([Observation(*(row[key] for key in Observation._fields)) for row in kept])
        chooser.end_step()
    return decided


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_every_decision_of_a_stage_is_made_again_from_the_warehouse(
    sampler: Sampler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # 200 steps need not outlive a power cut
    warehouse = Warehouse(tmp_path / "root")
    record_offline_rollouts(warehouse)
    history = read_history(warehouse)
    run_stage(tmp_path / "records", sampler, history)
    at: Any = SimpleNamespace(record=partial(warehouse.write, fingerprint="train"))
    TrainStage._carry_records(tmp_path, at, Trackers([], logged=0, warn=print), finished_steps(tmp_path / "records"))

    rows = warehouse.query(DECISIONS).to_pylist()
    recorded = [Decision(**{name: row[name] for name in Decision._fields}) for row in rows if row["prompt_id"]]
    assert replay(sampler, read_history(warehouse), rows) == recorded

    # Else little would have been decided.
    assert {row["step"] for row in rows} == set(range(1, STEPS + 1))
    assert len({d.epoch for d in recorded}) > 20
    keeps_everything = sampler.type in ("uniform", "dynamic")
    assert all(d.keep for d in recorded) == keeps_everything
    assert len({d.keep_probability for d in recorded}) > (0 if keeps_everything else 50)
    assert (max(d.round for d in recorded) == 0) == (sampler.type == "uniform")


def test_a_history_that_differs_in_one_group_is_told_by_the_decisions(tmp_path: Path) -> None:
    """Else the replay above would prove nothing."""
    warehouse = Warehouse(tmp_path / "root")
    record_offline_rollouts(warehouse)
    history = read_history(warehouse)
    other = [Observation(h.prompt_id, h.n, h.n // 2, True) if h.prompt_id == "p00" else h for h in history]
    assert other != history
    decided = [
        make_sampler(PosteriorSampler(), POOL, told, SEED, group_size=4).propose(len(POOL)) for told in (history, other)
    ]
    assert decided[0] != decided[1]
