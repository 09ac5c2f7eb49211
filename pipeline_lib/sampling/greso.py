"""GRESO (arXiv 2506.02177): the longer a prompt's zero-variance run, the less often it is rolled out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_lib.config import GresoSampler
from pipeline_lib.records import Outcome
from pipeline_lib.sampling.base import Judgement, Observation, PromptSampler
from pipeline_lib.sampling.controller import make_controller


class Greso(PromptSampler):
    """keep = max(ε, p_c^z), z the trailing run of all_right or all_wrong outcomes, c which of the two.

    p_right and p_wrong are steered once a training step, from the second epoch on, so that the shares of all_right
    and all_wrong groups among the rolled-out prompts approach their targets.
    """

    def __init__(self, config: GresoSampler, prompt_ids: Sequence[str], seed: int) -> None:
        super().__init__(prompt_ids, seed)
        self._exploration = config.exploration
        self._p = {
            outcome: make_controller(
                config.controller, start=config.initial_p, low=config.p_min, high=config.p_max, target=target
            )
            for outcome, target in (("all_right", config.target_right), ("all_wrong", config.target_wrong))
        }
        self._runs: dict[str, tuple[Outcome, int]] = {}

    def _decide(self, prompt_id: str) -> Judgement:
        outcome, length = self._runs.get(prompt_id, ("mixed", 0))
        if length == 0:
            return Judgement(1.0, "mixed" if prompt_id in self._runs else "no history")
        return Judgement(max(self._exploration, self._p[outcome].value ** length), f"{outcome} × {length}")

    def _learn(self, observation: Observation) -> None:
        outcome = observation.outcome
        previous, length = self._runs.get(observation.prompt_id, ("mixed", 0))
        if outcome == "mixed":
            self._runs[observation.prompt_id] = ("mixed", 0)
        else:
            self._runs[observation.prompt_id] = (outcome, length + 1 if previous == outcome else 1)

    def _steer(self, shares: Mapping[str, float]) -> None:
        if self._epoch >= 1:
            for outcome, controller in self._p.items():
                controller.update(shares.get(outcome, 0.0))

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {"p_right": self._p["all_right"].value, "p_wrong": self._p["all_wrong"].value}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "p": {outcome: controller.state_dict() for outcome, controller in self._p.items()},
            "runs": {prompt_id: list(run) for prompt_id, run in self._runs.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for outcome, controller in self._p.items():
            controller.load_state_dict(state["p"][outcome])
        self._runs = {prompt_id: (outcome, length) for prompt_id, (outcome, length) in state["runs"].items()}
