"""The prior of a pool of prompts while it is trained on: a window of outcomes, fitted anew when asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from pipeline_lib.config import ClusterPrior, PredictorPrior
from pipeline_lib.records import Prompt
from pipeline_lib.sampling.base import Observation
from pipeline_lib.sampling.beta import Beta
from pipeline_lib.sampling.priors.clusters import ClusterRates, cluster_texts
from pipeline_lib.sampling.priors.predictor import DifficultyPredictor
from pipeline_lib.sampling.priors.rows import Row, Text, text_of
from pipeline_lib.sampling.priors.vectors import embeddings, hashed_ngrams
from pipeline_lib.sampling.priors.window_file import load_rows, save_rows


class Fitted(Protocol):
    """What a window of outcomes says of texts."""

    concentration: float

    def betas(self, texts: Sequence[Text]) -> list[Beta]: ...


class PoolPrior:
    """Betas of `prompts`, from the newest `config.window` rollout groups of the pool and of the task before it.

    A function of config, prompts, seed and the observations, in their order.
    """

    def __init__(
        self,
        config: PredictorPrior | ClusterPrior,
        prompts: Sequence[Prompt],
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        self._config, self._seed = config, seed
        self._pool = sorted({text_of(prompt) for prompt in prompts})
        self._text_of = {text.prompt_id: text for text in self._pool}
        self._rows: deque[Row] = deque(maxlen=config.window)
        warm = load_rows(Path(config.warm_start)) if isinstance(config, PredictorPrior) and config.warm_start else []
        self._rows.extend(warm)
        self._text_of = {row.text.prompt_id: row.text for row in warm} | self._text_of
        self._vectorise = (
            hashed_ngrams([text.text for text in self._text_of.values()])
            if config.embedding_model is None
            else embeddings(config.embedding_model, device)
        )
        self._clusters = (
            cluster_texts(self._pool, self._vectorise, config.clusters, seed)
            if isinstance(config, ClusterPrior)
            else {}
        )
        self._concentration = 0.0

    @property
    def refit_every(self) -> int:
        return self._config.refit_every

    def observe(self, observations: Sequence[Observation]) -> None:
        """Take in rollout groups, oldest first; those of prompts outside the pool have no text and are left out."""
        self._rows.extend(
            Row(self._text_of[o.prompt_id], o.n, o.n_high)
            for o in observations
            if o.n > 0 and o.prompt_id in self._text_of
        )

    def fit(self) -> dict[str, Beta]:
        """By prompt id, for the whole pool; none has seen its own prompt's outcomes."""
        fitted: Fitted = (
            DifficultyPredictor(
                self._rows, self._vectorise, max_concentration=self._config.max_concentration, seed=self._seed
            )
            if isinstance(self._config, PredictorPrior)
            else ClusterRates(
                self._rows,
                self._clusters,
                shrinkage=self._config.shrinkage,
                max_concentration=self._config.max_concentration,
            )
        )
        self._concentration = fitted.concentration
        return {t.prompt_id: beta for t, beta in zip(self._pool, fitted.betas(self._pool), strict=True)}

    def save(self, path: Path) -> None:
        """The window, for `warm_start` of another task."""
        save_rows(path, self._rows)

    def metrics(self) -> dict[str, float]:
        return {"prior_concentration": self._concentration, "prior_rows": float(len(self._rows))}

    def state_dict(self) -> dict[str, Any]:
        return {
            "rows": [[row.text.prompt_id, row.n, row.n_correct] for row in self._rows],
            "concentration": self._concentration,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._rows.clear()
        self._rows.extend(Row(self._text_of[prompt_id], n, n_correct) for prompt_id, n, n_correct in state["rows"])
        self._concentration = state["concentration"]
