"""GRESO (arXiv 2506.02177): the longer a prompt's zero-variance run, the less often it is rolled out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pipeline_lib.config import GresoSampler
from pipeline_lib.records import Outcome
from pipeline_lib.sampling.base import Decision, Observation, PromptSampler


class Greso(PromptSampler):
    """keep = max(ε, p_c^z), z the trailing run of all_right or all_wrong outcomes, c which of the two.

    p_right and p_wrong move by ±Δ once a training step, from the second epoch on, so that the shares of
    all_right and all_wrong groups among the rolled-out prompts approach their targets.
    """

    def __init__(self, config: GresoSampler, prompt_ids: Sequence[str], seed: int) -> None:
        super().__init__(prompt_ids, seed)
        self._config = config
        self._p: dict[str, float] = {"all_right": config.initial_p, "all_wrong": config.initial_p}
        self._runs: dict[str, tuple[Outcome, int]] = {}
        self._step_outcomes: Counter[str] = Counter()

    def _decide(self, prompt_id: str, epoch: int) -> Decision:
        outcome, length = self._runs.get(prompt_id, ("mixed", 0))
        if length == 0:
            return Decision(prompt_id, epoch, True, 1.0, "mixed" if prompt_id in self._runs else "no history")
        probability = max(self._config.exploration, self._p[outcome] ** length)
        keep = self._draw(prompt_id, epoch) < probability
        return Decision(prompt_id, epoch, keep, probability, f"{outcome} × {length}")

    def observe(self, observations: Sequence[Observation]) -> None:
        for prompt_id, outcome in observations:
            if outcome == "ungraded":
                continue
            self._step_outcomes[outcome] += 1
            previous, length = self._runs.get(prompt_id, ("mixed", 0))
            if outcome == "mixed":
                self._runs[prompt_id] = ("mixed", 0)
            else:
                self._runs[prompt_id] = (outcome, length + 1 if previous == outcome else 1)

    def end_step(self) -> None:
        super().end_step()
        total = self._step_outcomes.total()
        if self._epoch >= 1 and total:
            targets = {"all_right": self._config.target_right, "all_wrong": self._config.target_wrong}
            for outcome, target in targets.items():
                too_many = self._step_outcomes[outcome] / total >= target
                moved = self._p[outcome] + (-self._config.step if too_many else self._config.step)
                self._p[outcome] = min(max(moved, self._config.p_min), self._config.p_max)
        self._step_outcomes.clear()

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {"p_right": self._p["all_right"], "p_wrong": self._p["all_wrong"]}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "p": dict(self._p),
            "runs": {prompt_id: list(run) for prompt_id, run in self._runs.items()},
            "step_outcomes": dict(self._step_outcomes),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._p = dict(state["p"])
        self._runs = {prompt_id: (outcome, length) for prompt_id, (outcome, length) in state["runs"].items()}
        self._step_outcomes = Counter(state["step_outcomes"])
