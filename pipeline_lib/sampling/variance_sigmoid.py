"""A sigmoid of the reward variance within a prompt's groups: the published article's filter, put right."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_lib.config import Ramp, VarianceSigmoidSampler
from pipeline_lib.sampling.base import Judgement, Observation, PromptSampler
from pipeline_lib.sampling.controller import make_controller


class VarianceSigmoid(PromptSampler):
    """keep = ε + (1 - ε)·σ(k·(v - v0)), v the mean of p(1-p) over the prompt's last groups, p a group's pass rate.

    What an article on GRESO publishes, which GRESO itself does not have, is skip = σ(α·v), with schedules of α, of
    the window and of a base exploration. What was corrected:

    - The sign and the offset. σ(α·v) is at least 1/2 and grows with v, so it skips the informative prompts more,
      and half of those without any signal. Here a prompt is skipped the more the further v is below v0.
    - v. "Variance over the last rounds" mixes a pass rate that drifts with answers that differ; here it is the
      variance within a group, averaged over the window. An unseen prompt is kept.
    - α, whose range 0.1 to 1 leaves skip between 0.50 and 0.56 for variances up to 1/4. `sharpness` k keeps the
      tenfold rise over the training steps, in a range that tells variances apart.
    - Exploration max(pb, pd). pb falls from 0.1 to 0.01 by epochs (the article has 1 to 0.1 as well, which would
      never filter). pd is not defined there beyond "easy fades, hard is kept": here hard_exploration · (1 - pass
      rate over the window). It was joined with no rule; here it is ε, the keep probability that no v goes below.

    With partial credit p is the share of the group on the better side of its difference (`Observation.n_high`).

    The threshold v0 is steered once a training step in which a prompt with history was met, so that the share of
    mixed groups among those rolled out approaches its target.
    """

    def __init__(self, config: VarianceSigmoidSampler, prompt_ids: Sequence[str], seed: int) -> None:
        super().__init__(prompt_ids, seed)
        self._config = config
        self._threshold = make_controller(
            config.controller,
            start=config.threshold,
            low=config.threshold_min,
            high=config.threshold_max,
            target=config.target_mixed,
        )
        self._longest = max(round(config.window.start), round(config.window.end))
        self._pass_rates: dict[str, list[float]] = {}  # of the last groups, oldest first

    def _decide(self, prompt_id: str) -> Judgement:
        window = round(_ramped(self._config.window, self._epoch))
        rates = self._pass_rates.get(prompt_id, [])[-window:]
        if not rates:
            return Judgement(1.0, "no history")
        variance = statistics.fmean(p * (1 - p) for p in rates)
        sharpness = _ramped(self._config.sharpness, self._steps)
        exploration = max(
            _ramped(self._config.exploration, self._epoch),
            self._config.hard_exploration * (1 - statistics.fmean(rates)),
        )
        mixed_chance = statistics.fmean(0 < p < 1 for p in rates)
        keep_probability = exploration + (1 - exploration) * _sigmoid(sharpness * (variance - self._threshold.value))
        return Judgement(keep_probability, f"variance {variance:.2f}", mixed_chance)

    def _learn(self, observation: Observation) -> None:
        rates = self._pass_rates.setdefault(observation.prompt_id, [])
        rates.append(observation.n_high / observation.n)
        del rates[: -self._longest]

    def _steer(self, shares: Mapping[str, float]) -> None:
        if self._selective:
            self._threshold.update(shares.get("mixed", 0.0))

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {
            "threshold": self._threshold.value,
            "sharpness": _ramped(self._config.sharpness, self._steps),
            "exploration": _ramped(self._config.exploration, self._epoch),
            "window": float(round(_ramped(self._config.window, self._epoch))),
        }

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "threshold": self._threshold.state_dict(),
            "pass_rates": {prompt_id: list(rates) for prompt_id, rates in self._pass_rates.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._threshold.load_state_dict(state["threshold"])
        self._pass_rates = {prompt_id: list(rates) for prompt_id, rates in state["pass_rates"].items()}


def _ramped(ramp: Ramp, now: int) -> float:
    return ramp.start + (ramp.end - ramp.start) * min(1.0, now / ramp.over)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
