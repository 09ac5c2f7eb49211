"""A discounted Beta posterior of each prompt's pass rate; prompts are kept by their chance of a mixed group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_lib.config import PosteriorSampler
from pipeline_lib.sampling.base import Decision, Judgement, Observation, PromptSampler
from pipeline_lib.sampling.beta import Beta, mixed_probability
from pipeline_lib.sampling.controller import make_controller


class Posterior(PromptSampler):
    """keep = max(ε, (V / V_max)^γ), V the chance that a group of the prompt is mixed (see `mixed_probability`).

    The posterior is Beta(a0 + s, b0 + f), s and f the discounted counts of correct and wrong completions, or of those
    on either side of a group whose rewards differ otherwise (`Observation.n_high`). Two
    things let them fade, both towards the prior. Each further group of the prompt first multiplies them by
    `discount`: a <- λ·a + (1-λ)·a0 + s (MoPPS, arXiv 2507.04632). And each training step since the prompt's last
    group multiplies them by 0.5^(1/half_life), so that a prompt which was skipped for long, while the policy
    changed, is tried again. History from before the stage counts as observed at its first step.

    V_max is the greatest V that a prompt of the pool has now. So the likeliest prompts are always kept, also where
    none is likely; the greatest V there could be would skip prompts at random as long as nothing is known of any.

    γ is steered once a training step, so that the share of mixed groups among those rolled out approaches its
    target, but only in steps in which some keep probability was below 1: where all prompts are alike γ does nothing.
    """

    def __init__(
        self,
        config: PosteriorSampler,
        prompt_ids: Sequence[str],
        seed: int,
        *,
        group_size: int,
        priors: Mapping[str, Beta] | None = None,
    ) -> None:
        super().__init__(prompt_ids, seed)
        self._config, self._group_size, self._priors = config, group_size, priors or {}
        self._discount = config.discount
        self._default_prior = Beta(config.prior_right, config.prior_wrong)
        self._sharpness = make_controller(
            config.controller,
            start=config.sharpness,
            low=config.sharpness_min,
            high=config.sharpness_max,
            target=config.target_mixed,
        )
        self._counts: dict[str, tuple[float, float, int]] = {}  # correct, wrong, at which step
        self._greatest = 0.0

    def posterior(self, prompt_id: str) -> Beta:
        """What is believed of the prompt's pass rate now."""
        prior = self._priors.get(prompt_id, self._default_prior)
        right, wrong = self._faded(prompt_id)
        return Beta(prior.a + right, prior.b + wrong)

    def _faded(self, prompt_id: str) -> tuple[float, float]:
        right, wrong, at_step = self._counts.get(prompt_id, (0.0, 0.0, self._steps))
        left = 0.5 ** ((self._steps - at_step) / self._config.half_life)
        return left * right, left * wrong

    def propose(self, n: int) -> list[Decision]:
        known = {self.posterior(prompt_id) for prompt_id in self._pool}
        self._greatest = max(mixed_probability(beta, self._group_size) for beta in known)
        return super().propose(n)

    def _decide(self, prompt_id: str) -> Judgement:
        chance = mixed_probability(self.posterior(prompt_id), self._group_size)
        relative = chance / self._greatest if self._greatest > 0 else 1.0
        keep_probability = max(self._config.exploration, relative**self._sharpness.value)
        return Judgement(keep_probability, f"mixed chance {chance:.1f}", chance)

    def _learn(self, observation: Observation) -> None:
        right, wrong = self._faded(observation.prompt_id)
        discount, n_high = self._discount, observation.n_high
        self._counts[observation.prompt_id] = (
            discount * right + n_high,
            discount * wrong + observation.n - n_high,
            self._steps,
        )

    def _steer(self, shares: Mapping[str, float]) -> None:
        if self._selective:
            self._sharpness.update(shares.get("mixed", 0.0))

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {"sharpness": self._sharpness.value}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "sharpness": self._sharpness.state_dict(),
            "counts": {prompt_id: list(counts) for prompt_id, counts in self._counts.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._sharpness.load_state_dict(state["sharpness"])
        self._counts = {prompt_id: (right, wrong, at) for prompt_id, (right, wrong, at) in state["counts"].items()}
