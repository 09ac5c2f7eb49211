"""The GRPO loop of one stage: fill a batch, update, record, checkpoint."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline_lib.atomic import remove_unfinished
from pipeline_lib.config import Train
from pipeline_lib.grpo.backends import Backend
from pipeline_lib.grpo.checkpoint import load_checkpoint, read_state, save_checkpoint
from pipeline_lib.grpo.checkpoint_files import checkpoint_path, complete_checkpoints, step_of, torn_checkpoints
from pipeline_lib.grpo.fill import RollOut, StepBatch, fill_batch
from pipeline_lib.grpo.metrics import step_row
from pipeline_lib.grpo.record_files import drop_records_after
from pipeline_lib.grpo.records import write_non_finite_batch, write_step_records
from pipeline_lib.grpo.update import NonFiniteUpdate, Reference, UpdateMetrics, update_policy
from pipeline_lib.records import RolloutGroup, Trajectory
from pipeline_lib.sampling import PromptSampler, RoundSizer

MAX_EMPTY_STEPS = 2
"""Steps in a row that nothing could be trained on, after which nothing is left to learn, if the sampler has decided on
the whole pool meanwhile; or, where nothing could be graded, after which the verifier is taken for broken."""


class NothingGraded(RuntimeError):
    """No completion of several steps in a row could be graded."""


class Trainer:
    """Trains the back end's policy in place for at most `config.steps` updates.

    `roll_out(prompt_ids, seed)` samples and grades groups from the current policy, which `hand_over` gives to an engine
    with weights of its own, called whenever they have changed. Everything that the loop
    remembers is in the checkpoint, and every random draw is a function of (seed, step, round), so a resumed
    stage takes the same decisions as one that was never stopped. Every process runs the same loop over the same
    groups; the first one writes.
    """

    def __init__(
        self,
        *,
        backend: Backend,
        policy_id: str,
        reference: Reference | None,
        sampler: PromptSampler,
        roll_out: RollOut,
        config: Train,
        max_tokens: int,
        directory: Path,
        validate: Callable[[], float | None] | None = None,
        hand_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._backend, self._policy_id, self._reference = backend, policy_id, reference
        self._sampler, self._roll_out = sampler, roll_out
        self._config, self._max_tokens, self._directory = config, max_tokens, directory
        self._validate, self._hand_over = validate, hand_over
        self._sizer = RoundSizer(config.refill, config.prompts_per_step, backend.ranks.size)
        self._carried: list[RolloutGroup] = []
        self._step = 0
        self._num_tokens = 0
        self._empty_steps = 0
        self._decided_since_fruitful: set[str] = set()
        self._ungraded_steps = 0
        self._non_finite_steps = 0
        self._ended_early: str | None = None
        self._best: tuple[int, float] | None = None

    @property
    def step(self) -> int:
        """Update steps done."""
        return self._step

    @property
    def _checkpoints(self) -> Path:
        return self._directory / "checkpoints"

    def train(self, before_step: Callable[[], None]) -> str | None:
        """Run to the last step, or until nothing is left to learn or the policy has moved far enough.

        Returns why it ended early, else None. Raises NonFiniteUpdate when more steps than the config allows were not
        finite, and NothingGraded.
        """
        self._resume()
        self._hand_over()
        while self._step < self._config.steps and self._ended_early is None:
            before_step()
            self._ended_early = self._one_step()
            best_step = None if self._best is None else self._best[0]
            if self._is_last or self._step % self._config.checkpoint_every == 0 or best_step == self._step:
                save_checkpoint(
                    self._checkpoints, self._step, self._backend, self._state(), self._config.keep_last, best_step
                )
        return self._ended_early

    def take_best(self) -> int:
        """Give the back end the parameters of the best validated step; returns that step.

        It is the last one where no validation prompt could ever be graded.
        """
        if self._best is None or self._best[0] == self._step:
            return self._step
        load_checkpoint(checkpoint_path(self._checkpoints, self._best[0]), self._backend)
        return self._best[0]

    @property
    def _is_last(self) -> bool:
        return self._step == self._config.steps or self._ended_early is not None

    def _one_step(self) -> str | None:
        """Returns why this step is the stage's last, if it is."""
        started = time.perf_counter()
        step = self._step + 1
        learning_rate = self._config.learning_rate * min(1.0, step / max(1, self._config.warmup_steps))
        batch = fill_batch(
            self._sampler,
            self._sizer,
            lambda prompt_ids, number: self._roll_out(prompt_ids, step * 1000 + number),
            self._carried,
            self._config,
        )
        filled = time.perf_counter()
        update = self._update(step, batch, learning_rate)
        if update is not None:
            self._hand_over()
        self._carried = batch.carried
        self._step = step
        self._num_tokens += 0 if update is None else update.num_tokens
        self._count(batch, update)
        now = time.perf_counter()
        row = step_row(batch, update) | {
            "learning_rate": learning_rate,
            "num_tokens": self._num_tokens,
            "non_finite": update is None,
            "sampler_metrics": json.dumps(
                self._sampler.metrics() | {"zero_variance_share": self._sizer.zero_variance_share}
            ),
            "step_time": now - started,
            "update_time": now - filled - (0.0 if update is None else update.logprob_time),
        }
        ended_early = self._why_it_ends(step, batch, update)
        row["validation_accuracy"] = self._look(last=ended_early is not None or step == self._config.steps)
        if self._backend.ranks.first:
            write_step_records(self._directory / "records", step, row, batch, self._policy_id)
        return ended_early

    def _count(self, batch: StepBatch, update: UpdateMetrics | None) -> None:
        """Steps since something was learned; one in which nothing could be graded says nothing of that."""
        self._decided_since_fruitful.update(d.prompt_id for d in batch.decisions)
        if any(g.has_signal for g in batch.groups) and (update is None or update.num_tokens > 0):
            self._empty_steps = self._ungraded_steps = 0
            self._decided_since_fruitful.clear()
        elif batch.rolled_out and not any(g.graded for g in batch.rolled_out):
            self._ungraded_steps += 1
        else:
            self._empty_steps, self._ungraded_steps = self._empty_steps + 1, 0

    def _look(self, *, last: bool) -> float | None:
        """Mean pass rate of the validation prompts, where it is time for it."""
        validation = self._config.validation
        if validation is None or self._validate is None or not (last or self._step % validation.every == 0):
            return None
        accuracy = self._validate()
        if accuracy is not None and (self._best is None or accuracy > self._best[1]):
            self._best = (self._step, accuracy)
        return accuracy

    def _why_it_ends(self, step: int, batch: StepBatch, update: UpdateMetrics | None) -> str | None:
        if self._ungraded_steps >= MAX_EMPTY_STEPS:
            raise NothingGraded(
                f"none of the {sum(len(g.trajectories) for g in batch.rolled_out)} completions of step {step} could be "
                "graded, nor any of the step before: see verifier_status in records/; once the verifier works, the "
                "stage goes on from its last checkpoint"
            )
        if self._empty_steps >= MAX_EMPTY_STEPS and len(self._decided_since_fruitful) == self._sampler.pool_size:
            return _nothing_left(step, batch, 0 if update is None else update.n_masked)
        limit = self._config.stage_kl_limit
        if limit is not None and update is not None and update.kl is not None and update.kl > limit:
            return (
                f"stopped at step {step} of {self._config.steps}: before its update the policy was {update.kl:.3g} "
                f"nats a token from the stage's start, beyond stage_kl_limit {limit:g}"
            )
        return None

    def _update(self, step: int, batch: StepBatch, learning_rate: float) -> UpdateMetrics | None:
        """None for a step that was not finite and may be passed over."""
        try:
            return update_policy(
                self._backend,
                self._reference,
                batch.groups,
                self._config,
                learning_rate=learning_rate,
                max_tokens=self._max_tokens,
            )
        except NonFiniteUpdate as error:
            kept = self._directory / "non_finite"
            if self._backend.ranks.first:
                write_non_finite_batch(kept, step, batch.groups, str(error))
            self._non_finite_steps += 1
            if self._non_finite_steps > self._config.max_nonfinite_steps:
                raise NonFiniteUpdate(f"step {step}: {error}; its batch is in {kept}/step-{step:06d}") from None
            return None

    def _state(self) -> dict[str, Any]:
        return {
            "sampler": self._sampler.state_dict(),
            "zero_variance_share": self._sizer.zero_variance_share,
            "carried": [[_as_dict(t) for t in group.trajectories] for group in self._carried],
            "num_tokens": self._num_tokens,
            "empty_steps": self._empty_steps,
            "decided_since_fruitful": sorted(self._decided_since_fruitful),
            "ungraded_steps": self._ungraded_steps,
            "non_finite_steps": self._non_finite_steps,
            "ended_early": self._ended_early,
            "best": self._best,
        }

    def _misses_its_best(self, checkpoints: Sequence[Path]) -> bool:
        """Whether the newest counts on a best step whose own checkpoint is gone, so that it is trained again."""
        if self._config.validation is None or not self._config.validation.take_best:
            return False
        best = read_state(checkpoints[-1])["best"]
        return best is not None and checkpoint_path(self._checkpoints, best[0]) not in checkpoints

    def _resume(self) -> None:
        if self._backend.ranks.first:
            for directory in (self._directory, self._checkpoints, self._directory / "records"):
                remove_unfinished(directory)
            for torn in torn_checkpoints(self._checkpoints):
                shutil.rmtree(torn)
        self._backend.ranks.gather(None)  # nobody looks before they are gone
        checkpoints = complete_checkpoints(self._checkpoints)
        useless = []
        while checkpoints and self._misses_its_best(checkpoints):
            useless.append(checkpoints.pop())
        self._backend.ranks.gather(None)  # until everyone has looked
        if self._backend.ranks.first:
            for checkpoint in useless:
                shutil.rmtree(checkpoint)
            # Done again, a step need not come to as many files: what an abandoned attempt has left must not stand.
            drop_records_after(self._directory / "records", step_of(checkpoints[-1]) if checkpoints else 0)
        if not checkpoints:
            return
        state = load_checkpoint(checkpoints[-1], self._backend)
        self._sampler.load_state_dict(state["sampler"])
        self._sizer.zero_variance_share = state["zero_variance_share"]
        self._carried = [_group_of(rows) for rows in state["carried"]]
        self._step, self._num_tokens = state["step"], state["num_tokens"]
        self._empty_steps, self._non_finite_steps = state["empty_steps"], state["non_finite_steps"]
        self._decided_since_fruitful = set(state["decided_since_fruitful"])
        self._ungraded_steps = state["ungraded_steps"]
        self._ended_early, self._best = state["ended_early"], state["best"]


def _nothing_left(step: int, batch: StepBatch, n_masked: int) -> str:
    outcomes = [g.outcome for g in batch.rolled_out]
    skipped = sum(not d.keep for d in batch.decisions)
    rest = f", {n} could not be graded" if (n := outcomes.count("ungraded")) else ""
    rest += f", and {n_masked} completions were cut off at max_tokens and masked" if n_masked else ""
    return (
        f"nothing left to learn at step {step}: of {len(batch.decisions)} prompts {skipped} were skipped, "
        f"{outcomes.count('all_right')} were all right, {outcomes.count('all_wrong')} all wrong, "
        f"{outcomes.count('mixed') or 'none'} mixed{rest}"
    )


def _as_dict(trajectory: Trajectory) -> dict[str, Any]:
    return {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}


def _group_of(rows: Sequence[dict[str, Any]]) -> RolloutGroup:
    return RolloutGroup(rows[0]["prompt_id"], tuple(Trajectory(**row) for row in rows))
