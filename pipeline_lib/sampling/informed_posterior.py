"""The posterior sampler with priors that are fitted while it trains, and with a detector of drift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_lib.config import PosteriorSampler
from pipeline_lib.sampling.base import Decision, Observation
from pipeline_lib.sampling.beta import Beta
from pipeline_lib.sampling.posterior import Posterior
from pipeline_lib.sampling.priors import DriftMonitor, PoolPrior, Surprise


class InformedPosterior(Posterior):
    """Everything as in Posterior, but for where priors and discount come from; either works without the other.

    `prior` sees what the sampler sees, and is fitted before the first proposal and then every
    `prior.refit_every` steps. The drift monitor holds each group of a step against what was believed just before
    it; an alarm lowers the discount for a while. It leaves the counts of prompts that are not rolled out alone: to
    multiply those by the discount as well was measured to be worse than no detector, as old counts still
    tell the hard from the easy when the policy has become better at both.
    """

    def __init__(
        self,
        config: PosteriorSampler,
        prompt_ids: Sequence[str],
        seed: int,
        *,
        group_size: int,
        prior: PoolPrior | None,
    ) -> None:
        super().__init__(config, prompt_ids, seed, group_size=group_size)
        self._prior = prior
        self._drift = DriftMonitor(config.drift) if config.drift is not None else None
        self._surprises: list[Surprise] = []
        self._refit_due = True

    def propose(self, n: int) -> list[Decision]:
        if self._prior is not None and self._refit_due:
            self._priors = self._prior.fit()
            self._refit_due = False
        return super().propose(n)

    def recall(self, observations: Sequence[Observation]) -> None:
        super().recall(observations)
        if self._prior is not None:
            self._prior.observe(observations)

    def observe(self, observations: Sequence[Observation]) -> None:
        if self._drift is not None:
            self._surprises += [Surprise(self.posterior(o.prompt_id), o.n, o.n_high) for o in observations]
        super().observe(observations)

    def end_step(self) -> None:
        super().end_step()
        if self._prior is not None and self._steps % self._prior.refit_every == 0:
            self._refit_due = True
        if self._drift is not None:
            self._drift.step(self._surprises)
            self._surprises.clear()
            self._discount = self._drift.discount(self._config.discount)

    def metrics(self) -> dict[str, float]:
        metrics = super().metrics() | {"discount": self._discount}
        if self._prior is not None:
            metrics |= self._prior.metrics()
        return metrics | (self._drift.metrics() if self._drift is not None else {})

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "priors": {prompt_id: list(beta) for prompt_id, beta in self._priors.items()},
            "refit_due": self._refit_due,
            "discount": self._discount,
            "surprises": [[*s.expected, s.n, s.n_correct] for s in self._surprises],
            "prior": self._prior.state_dict() if self._prior is not None else None,
            "drift": self._drift.state_dict() if self._drift is not None else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._priors = {prompt_id: Beta(a, b) for prompt_id, (a, b) in state["priors"].items()}
        self._refit_due, self._discount = state["refit_due"], state["discount"]
        self._surprises = [Surprise(Beta(a, b), n, n_correct) for a, b, n, n_correct in state["surprises"]]
        if self._prior is not None:
            self._prior.load_state_dict(state["prior"])
        if self._drift is not None:
            self._drift.load_state_dict(state["drift"])
