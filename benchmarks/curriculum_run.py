"""One curriculum on one pool: collect, score, select, train as the pipeline does, in one process, and what it costs."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from curriculum_arms import ARMS, Arm, Measured
from curriculum_worlds import WORLDS, Prompts, World, WorldName, draw

from pipeline_lib.atomic import write_text
from pipeline_lib.config import Train
from pipeline_lib.grpo.backends import make_backend
from pipeline_lib.grpo.ranks import Ranks
from pipeline_lib.grpo.trained import Trained
from pipeline_lib.grpo.trainer import Trainer
from pipeline_lib.influence.exact import exact_scores
from pipeline_lib.parquet import write_parquet
from pipeline_lib.policy import Policy, load_policy, policy_id_of
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY
from pipeline_lib.records import Prompt, RolloutGroup
from pipeline_lib.relevance import relevances
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rollout import Rollout, SamplingParams, TransformersEngine, groups_to_table, read_groups, roll_out
from pipeline_lib.sampling import Observation, make_sampler
from pipeline_lib.selection import Likeness

K, VALIDATION_K, ANSWERS = 8, 16, 4
VALIDATION, EVALUATION = 30, 160
LEARNING_RATE = 2e-4
EVALUATE_EVERY = 5
GENERATED, SCORED, TRAINED = 1.0, 3.0, 3.0
"""Forward-equivalents of a token: sampled, scored and trained on; the last two go forward and back."""


@dataclass
class Cost:
    """What a run has spent on its selection and its training; evaluations are left out."""

    forwards: float = 0.0
    """Forward passes of one token."""
    seconds: float = 0.0
    """Of processor time."""
    parts: dict[str, float] = field(default_factory=dict)
    """Forwards by what they were for."""

    def add(self, what: str, forwards: float) -> None:
        self.forwards += forwards
        self.parts[what] = self.parts.get(what, 0.0) + forwards

    @contextmanager
    def timed(self) -> Iterator[None]:
        started = time.process_time()
        yield
        self.seconds += time.process_time() - started


def whole_tokens(groups: Sequence[RolloutGroup]) -> int:
    """Of the prompts, once each, and of all completions that a gradient is taken of."""
    with_signal = [group.trajectories for group in groups if group.has_signal]
    return sum(
        len(group[0].prompt_token_ids) + sum(len(t.completion_token_ids) for t in group) for group in with_signal
    )


def generated_tokens(groups: Sequence[RolloutGroup]) -> int:
    return sum(len(t.completion_token_ids) for group in groups for t in group.trajectories)


class Curriculum:
    """A pool as one seed draws it, the policy under way, and what both have cost."""

    def __init__(self, root: Path, world: WorldName, seed: int, pool_size: int, grader: Grader) -> None:
        self.directory = root / f"{world}-{seed}"
        self.world: World = WORLDS[world]
        self.prompts: Prompts = draw(self.world, pool_size, VALIDATION, EVALUATION, seed)
        self.by_id = {prompt.prompt_id: prompt for prompt in self.prompts.pool}
        self.seed, self._grader = seed, grader
        self.cost = Cost()
        self.pass_rate = dict.fromkeys(self.by_id, (0, 0))
        """Newest (graded, correct)."""
        self.tokens: dict[str, float] = {}
        """Newest mean length of a completion."""
        self.signal: frozenset[str] = frozenset()
        """Prompts whose first rollouts differed in their rewards."""
        self.curve: list[dict[str, float]] = []
        self.step = 0
        self.policy: Policy = load_policy(
            BUILTIN_DIRECTORY, device=torch.device("cpu"), dtype=torch.float32, trainable=True
        )

    def is_asked_for(self, prompt_id: str) -> bool:
        """Whether the prompt is of a kind that a validation set asks, and its gold the right one."""
        kinds = {kind for kinds, _ in self.world.targets.values() for kind in kinds}
        return prompt_id not in self.prompts.wrong and self.by_id[prompt_id].extra["kind"] in kinds

    def roll(self, prompts: Sequence[Prompt], samples: int, seed: int) -> Rollout:
        params = SamplingParams.of(self.world.generation, samples)
        return roll_out(self.policy, TransformersEngine(self.policy), self._grader.grade, prompts, params, seed)

    def collected(self, n_prompts: int | None, samples: int) -> list[RolloutGroup]:
        """Rollouts of the policy that all begin with, of prompts drawn at random; made once for all arms."""
        made = self._kept("pool", self.prompts.pool, K, 10 * self.seed + 1)
        # A word in the seed, since the wrong golds are drawn by the bare one: the same draws would find just these.
        drawn = made if n_prompts is None else Random(f"rolled out {self.seed}").sample(made, n_prompts)
        groups = [replace(group, trajectories=group.trajectories[:samples]) for group in drawn]
        self._spend("pool", generated_tokens(groups), generated_tokens(made))
        self.observe(groups)
        self.signal = frozenset(group.prompt_id for group in groups if group.has_signal)
        return groups

    def relevance(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[N, V], states [N, D] and lengths of the pool, in its order. It costs a forward pass over each prompt."""
        with self.cost.timed():
            pieces = relevances(
                self.policy,
                self.prompts.pool,
                self.prompts.validation,
                tokens_per_batch=16384,
                progress=lambda _: None,
            )
            compared, kept = map(pa.concat_tables, zip(*pieces, strict=True))
        found = {(row["prompt_id"], row["validation_set"]): row["relevance"] for row in compared.to_pylist()}
        states = {row["prompt_id"]: row for row in kept.to_pylist()}
        read = [*self.prompts.pool, *(p for prompts in self.prompts.validation.values() for p in prompts)]
        self.cost.add("score", GENERATED * sum(len(self.policy.encode(prompt.messages)) for prompt in read))
        return (
            np.array([[found[i, name] for name in self.prompts.validation] for i in self.by_id]),
            np.array([states[i]["state"] for i in self.by_id]),
            np.array([states[i]["n_tokens"] for i in self.by_id]),
        )

    def validation(self) -> dict[str, list[RolloutGroup]]:
        groups = {}
        for number, (name, prompts) in enumerate(self.prompts.validation.items(), start=2):
            groups[name] = self._kept(name, prompts, VALIDATION_K, 10 * self.seed + number)
            self._spend(name, generated_tokens(groups[name]), generated_tokens(groups[name]))
        return groups

    def _kept(self, name: str, prompts: Sequence[Prompt], samples: int, seed: int) -> list[RolloutGroup]:
        """Rollouts that every arm begins with."""
        path, seconds = self.directory / f"{name}.parquet", self.directory / f"{name}.seconds"
        if not seconds.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            made = Cost()
            with made.timed():
                write_parquet(path, groups_to_table(self.roll(prompts, samples, seed).groups))
            write_text(seconds, str(made.seconds))
        return read_groups(path)

    def _spend(self, name: str, tokens: int, of: int) -> None:
        """The cost of kept rollouts, or of a part of them, is each arm's that uses them, whoever has made them."""
        self.cost.seconds += float((self.directory / f"{name}.seconds").read_text()) * tokens / of
        self.cost.add("collect", GENERATED * tokens)

    def observe(self, groups: Sequence[RolloutGroup]) -> None:
        self.pass_rate |= {g.prompt_id: (len(g.graded), g.n_correct) for g in groups if g.graded}
        self.tokens |= {g.prompt_id: generated_tokens([g]) / len(g.trajectories) for g in groups}

    def scores(self, pool: Sequence[RolloutGroup], validation: dict[str, list[RolloutGroup]], adam: bool) -> Measured:
        with self.cost.timed():
            scores = exact_scores(
                self.policy,
                pool,
                validation,
                temperature=self.world.generation.temperature,
                tokens_per_micro_batch=16384,
                progress=lambda _: None,
                adam=adam,
            )
        tokens = whole_tokens([*pool, *(g for groups in validation.values() for g in groups)])
        self.cost.add("score", SCORED * tokens)
        return Measured(scores, np.array([generated_tokens([group]) / K for group in pool]))

    def train(self, selected: Sequence[str], arm: Arm, steps: int, stage: int, directory: Path) -> None:
        config = Train(
            steps=steps,
            prompts_per_step=arm.prompts_per_step,
            group_size=K,
            learning_rate=LEARNING_RATE,
            sampler=arm.sampler,
            checkpoint_every=10_000,
        )
        known = [
            Observation(prompt_id, n, right, 0 < right < n)
            for prompt_id in selected
            for n, right in [self.pass_rate[prompt_id]]
            if n > 0
        ]
        sampler = make_sampler(arm.sampler, list(selected), known, self.seed + stage, group_size=K)
        begun, measuring = time.process_time(), 0.0
        first = self.step

        def roll(prompt_ids: Sequence[str], number: int) -> Rollout:
            rollout = self.roll([self.by_id[i] for i in prompt_ids], K, (self.seed * 100 + stage) * 10**6 + number)
            self.cost.add("roll out", GENERATED * rollout.generated_tokens)
            self.cost.add("train", TRAINED * whole_tokens(rollout.groups))
            self.observe(rollout.groups)
            self.rolled_out.extend(rollout.groups)
            return rollout

        trainer = Trainer(
            backend=make_backend(config, Trained(self.policy), 1.0, Ranks()),
            policy_id=policy_id_of(BUILTIN_DIRECTORY),
            reference=None,
            sampler=sampler,
            roll_out=roll,
            config=config,
            max_tokens=self.world.max_tokens,
            directory=directory,
        )

        def before_step() -> None:
            nonlocal measuring
            self.step = first + trainer.step
            if trainer.step and self.step % EVALUATE_EVERY == 0:
                started = time.process_time()
                self.measure(self.cost.seconds + started - begun - measuring)
                measuring += time.process_time() - started

        self.rolled_out: list[RolloutGroup] = []
        trainer.train(before_step)
        self.step = first + trainer.step
        self.cost.seconds += time.process_time() - begun - measuring
        self.measure(self.cost.seconds)

    def measure(self, seconds: float) -> None:
        accuracy = {
            name: statistics.fmean(g.n_correct / len(g.trajectories) for g in self.roll(prompts, ANSWERS, 99).groups)
            for name, prompts in (("targeted", self.prompts.targeted), ("untargeted", self.prompts.untargeted))
        }
        self.curve.append({"step": self.step, "forwards": self.cost.forwards, "seconds": seconds} | accuracy)


def result_path(root: Path, world: str, arm: str, seed: int | str) -> Path:
    return root / f"{world}-{arm.replace(' ', '-')}-{seed}.json"


def is_done(root: Path, world: str, arm: str, seed: int) -> bool:
    """Whether the result is there, of the arm as it is set now."""
    path = result_path(root, world, arm, seed)
    return path.exists() and json.loads(path.read_text())["settings"] == repr(ARMS[arm])


def run(
    root: Path, world: WorldName, name: str, seed: int, *, stages: int, steps: int, pool_size: int
) -> dict[str, Any]:
    """All stages of one arm; the result is written to `root` as well."""
    torch.set_num_threads(1)
    arm = ARMS[name]
    with Grader() as grader:
        curriculum = Curriculum(root, world, seed, pool_size, grader)
        curriculum.measure(0.0)
        pool = curriculum.collected(*arm.rolled_out) if arm.collects else []
        validation = curriculum.validation() if arm.geometry else {}
        read = curriculum.relevance() if arm.relates else None
        newest = pool
        measured: Measured | None = None
        asked = list(curriculum.by_id)
        told: list[dict[str, float]] = []
        for stage in range(1, stages + 1):
            if arm.geometry and (measured is None or arm.rescored):
                asked = arm.asked(curriculum.pass_rate)
                wanted = set(asked)
                of_asked = [group for group in pool if group.prompt_id in wanted]
                measured = curriculum.scores(of_asked, validation, adam=arm.geometry == "adam")
            signal, likeness = curriculum.signal, None
            with curriculum.cost.timed():
                if read is not None:
                    fresh = {group.prompt_id for group in newest if group.graded}
                    signal = frozenset(i for i, (n, right) in curriculum.pass_rate.items() if 0 < right < n)
                    likeness = Likeness(*read, np.array([i in fresh for i in asked]))
                selected = arm.select(
                    asked,
                    curriculum.pass_rate,
                    (seed, stage),
                    signal=signal,
                    tokens=curriculum.tokens,
                    measured=measured,
                    likeness=likeness,
                )
            if arm.oracle:
                selected = [i for i in selected if curriculum.is_asked_for(i)]
            directory = root / "stages" / f"{result_path(root, world, name, seed).stem}-{stage}"
            # What a killed run has left would be resumed, and the cost of it never counted.
            shutil.rmtree(directory, ignore_errors=True)
            curriculum.train(selected, arm, steps, stage, directory)
            groups = newest = curriculum.rolled_out
            told.append(
                {
                    "selected": len(selected),
                    "wrong golds": statistics.fmean(i in curriculum.prompts.wrong for i in selected),
                    "zero variance": statistics.fmean(not g.has_signal for g in groups),
                    "groups": len(groups),
                }
            )
    result = {
        "world": world,
        "arm": name,
        "settings": repr(arm),
        "seed": seed,
        "curve": curriculum.curve,
        "stages": told,
        "seconds": curriculum.cost.seconds,
        "forwards": curriculum.cost.parts,
    }
    write_text(result_path(root, world, name, seed), json.dumps(result) + "\n")
    return result
