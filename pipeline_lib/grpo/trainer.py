"""The GRPO loop of one stage: fill a batch, update, record, checkpoint."""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from pipeline_lib.config import Train
from pipeline_lib.grpo.checkpoint import complete_checkpoints, load_checkpoint, save_checkpoint
from pipeline_lib.grpo.fill import RollOut, StepBatch, fill_batch
from pipeline_lib.grpo.records import write_step_records
from pipeline_lib.grpo.update import NonFiniteUpdate, UpdateMetrics, update_policy
from pipeline_lib.policy import Policy
from pipeline_lib.records import RolloutGroup, Trajectory
from pipeline_lib.sampling import PromptSampler, RoundSizer

MAX_EMPTY_STEPS = 2
"""Steps in a row without a group to train on, after which nothing is left to learn."""


class Trainer:
    """Trains `policy` in place for at most `config.steps` updates.

    `roll_out(prompt_ids, seed)` samples and grades groups from the current policy. Everything that the loop
    remembers is in the checkpoint, and every random draw is a function of (seed, step, round), so a resumed
    stage takes the same decisions as one that was never stopped.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        policy_id: str,
        reference: Policy | None,
        sampler: PromptSampler,
        roll_out: RollOut,
        config: Train,
        temperature: float,
        directory: Path,
    ) -> None:
        self._policy, self._policy_id, self._reference = policy, policy_id, reference
        self._sampler, self._roll_out = sampler, roll_out
        self._config, self._temperature, self._directory = config, temperature, directory
        self._sizer = RoundSizer(config.refill, config.prompts_per_step)
        self._optimizer = torch.optim.AdamW(
            policy.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self._carried: list[RolloutGroup] = []
        self._step = 0
        self._num_tokens = 0
        self._empty_steps = 0
        self._ended_early: str | None = None

    @property
    def step(self) -> int:
        """Update steps done."""
        return self._step

    def train(self, before_step: Callable[[], None]) -> str | None:
        """Run to the last step, or until nothing is left to learn; returns why it ended early, else None."""
        self._resume()
        while self._step < self._config.steps and self._ended_early is None:
            before_step()
            batch = self._one_step()
            if self._empty_steps == MAX_EMPTY_STEPS:
                self._ended_early = _nothing_left(self._step, batch)
            last = self._step == self._config.steps or self._ended_early is not None
            if last or self._step % self._config.checkpoint_every == 0:
                save_checkpoint(
                    self._directory / "checkpoints",
                    self._step,
                    self._policy,
                    self._state(),
                    self._config.keep_last,
                )
        return self._ended_early

    def _one_step(self) -> StepBatch:
        started = time.perf_counter()
        step = self._step + 1
        learning_rate = self._config.learning_rate * min(1.0, step / max(1, self._config.warmup_steps))
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        batch = fill_batch(
            self._sampler,
            self._sizer,
            lambda prompt_ids, number: self._roll_out(prompt_ids, step * 1000 + number),
            self._carried,
            self._config,
        )
        filled = time.perf_counter()
        try:
            metrics = update_policy(
                self._policy, self._reference, self._optimizer, batch.groups, self._config, self._temperature
            )
        except NonFiniteUpdate as error:
            raise NonFiniteUpdate(f"step {step}: {error}") from None
        self._carried = batch.carried
        self._step = step
        self._num_tokens += metrics.num_tokens
        self._empty_steps = 0 if batch.groups else self._empty_steps + 1
        row = self._row(batch, metrics) | {
            "learning_rate": learning_rate,
            "num_tokens": self._num_tokens,
            "step_time": time.perf_counter() - started,
            "update_time": time.perf_counter() - filled,
        }
        write_step_records(self._directory / "records", step, row, batch, self._policy_id)
        return batch

    def _row(self, batch: StepBatch, metrics: UpdateMetrics) -> dict[str, Any]:
        groups = batch.rolled_out
        trajectories = [t for g in groups for t in g.trajectories]
        lengths = [len(t.completion_token_ids) for t in trajectories]
        return dataclasses.asdict(metrics) | {
            "reward": _mean(g_mean for g in groups if (g_mean := _mean(g.rewards)) is not None),
            "reward_std": _mean(statistics.stdev(g.rewards) for g in groups if len(g.rewards) > 1),
            "frac_reward_zero_std": _mean(float(not g.has_signal) for g in groups),
            "solved_all": sum(g.outcome == "all_right" for g in groups),
            "solved_some": sum(g.outcome == "mixed" for g in groups),
            "solved_none": sum(g.outcome == "all_wrong" for g in groups),
            "n_ungraded": sum(t.reward is None for t in trajectories),
            "completions_mean_length": _mean(lengths),
            "completions_max_length": max(lengths, default=None),
            "completions_clipped_ratio": _mean(float(_truncated(t)) for t in trajectories),
            "generated_tokens": batch.generated_tokens,
            "generation_rounds": batch.rounds,
            "prompts_proposed": len(batch.decisions),
            "prompts_skipped": sum(not d.keep for d in batch.decisions),
            "prompts_rolled_out": len(groups),
            "rollouts": len(trajectories),
            "groups_trained": len(batch.groups),
            "groups_carried": len(batch.carried),
            "sampler_metrics": json.dumps(
                self._sampler.metrics() | {"zero_variance_share": self._sizer.zero_variance_share}
            ),
            "rollout_time": batch.generate_seconds,
            "verify_time": batch.verify_seconds,
        }

    def _state(self) -> dict[str, Any]:
        return {
            "optimizer": self._optimizer.state_dict(),
            "sampler": self._sampler.state_dict(),
            "zero_variance_share": self._sizer.zero_variance_share,
            "carried": [[_as_dict(t) for t in group.trajectories] for group in self._carried],
            "num_tokens": self._num_tokens,
            "empty_steps": self._empty_steps,
            "ended_early": self._ended_early,
        }

    def _resume(self) -> None:
        checkpoints = complete_checkpoints(self._directory / "checkpoints")
        if not checkpoints:
            return
        state = load_checkpoint(checkpoints[-1], self._policy)
        self._optimizer.load_state_dict(state["optimizer"])
        self._sampler.load_state_dict(state["sampler"])
        self._sizer.zero_variance_share = state["zero_variance_share"]
        self._carried = [_group_of(rows) for rows in state["carried"]]
        self._step, self._num_tokens = state["step"], state["num_tokens"]
        self._empty_steps, self._ended_early = state["empty_steps"], state["ended_early"]


def _nothing_left(step: int, batch: StepBatch) -> str:
    outcomes = [g.outcome for g in batch.rolled_out]
    skipped = sum(not d.keep for d in batch.decisions)
    return (
        f"nothing left to learn at step {step}: of {len(batch.decisions)} prompts {skipped} were skipped, "
        f"{outcomes.count('all_right')} were all right, {outcomes.count('all_wrong')} all wrong, none mixed"
    )


def _mean(values: Any) -> float | None:
    values = list(values)
    return statistics.fmean(values) if values else None


def _truncated(trajectory: Trajectory) -> bool:
    return trajectory.finish_reason == "length"


def _as_dict(trajectory: Trajectory) -> dict[str, Any]:
    return {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}


def _group_of(rows: Sequence[dict[str, Any]]) -> RolloutGroup:
    return RolloutGroup(rows[0]["prompt_id"], tuple(Trajectory(**row) for row in rows))
