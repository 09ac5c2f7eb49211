"""A pass rate predicted from a prompt's text, calibrated on prompts it was not fitted to. N texts, F features."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pipeline_lib.sampling.beta import Beta
from pipeline_lib.sampling.priors.concentration import beta_of, concentration
from pipeline_lib.sampling.priors.features import Features
from pipeline_lib.sampling.priors.package import require_scikit_learn
from pipeline_lib.sampling.priors.rows import Row, Text, counts_of, one_row_a_prompt
from pipeline_lib.sampling.priors.vectors import Vectorise

FOLDS = 5
MIN_PROMPTS = 20
"""With fewer there is nothing to calibrate on, and the mean of all says as much."""
PENALTY = 1.0
"""Of the logistic regression's squared weights, per prompt's worth of outcomes (scikit-learn's 1/C)."""

LogOdds = Callable[[np.ndarray], np.ndarray]
"""[N, F] -> [N]."""


class DifficultyPredictor:
    """Logistic regression on Features of the prompts in `rows`, a function of rows and seed alone.

    Fitted anew to every window rather than updated: a fit of some hundred prompts takes about a second, and an old
    policy's outcomes leave with the window. Out-of-fold predictions calibrate it (Platt: log odds times a slope plus an
    offset), give the concentration κ, and stand in for prompts of `rows`, whose own outcome must not be its
    own prior. With fewer than MIN_PROMPTS prompts, outcomes of one class, or predictions that go against the
    outcomes, every prompt gets the mean.
    """

    def __init__(self, rows: Sequence[Row], vectorise: Vectorise, *, max_concentration: float, seed: int) -> None:
        require_scikit_learn()
        self._rows = one_row_a_prompt(rows)
        self._max_concentration = max_concentration
        self._n_N, self._n_correct_N = counts_of(self._rows)
        self._model: Callable[[Sequence[Text]], np.ndarray] | None = None
        if len(self._rows) >= MIN_PROMPTS and 0 < self._n_correct_N.sum() < self._n_N.sum():
            self._fit(vectorise, seed)
        if self._model is None:
            self._use_the_mean()

    @property
    def informed(self) -> bool:
        """Whether texts are told apart; else every prompt has the mean as its prediction."""
        return self._model is not None

    def means(self, texts: Sequence[Text]) -> np.ndarray:
        """[N] pass rates, strictly between 0 and 1; none has seen its own prompt's outcome."""
        if self._model is None:
            return np.array([self._left_out.get(text.prompt_id, self._mean) for text in texts])
        new = [text for text in texts if text.prompt_id not in self._left_out]
        predicted = iter(self._model(new) if new else ())
        return np.array(
            [self._left_out[t.prompt_id] if t.prompt_id in self._left_out else next(predicted) for t in texts]
        )

    def betas(self, texts: Sequence[Text]) -> list[Beta]:
        """The predictions as priors; Beta(1, 1) where there are no outcomes at all."""
        return [beta_of(mean, self.concentration) for mean in self.means(texts)]

    def _fit(self, vectorise: Vectorise, seed: int) -> None:
        from sklearn.model_selection import KFold

        held_out_N = np.empty(len(self._rows))
        for fitted, held_out in KFold(FOLDS, shuffle=True, random_state=seed).split(self._rows):
            features = Features([self._rows[i] for i in fitted], vectorise)
            log_odds = _logistic(features.of_history(), self._n_N[fitted], self._n_correct_N[fitted], PENALTY)
            held_out_N[held_out] = log_odds(features.of([self._rows[i].text for i in held_out]))
        platt = _logistic(held_out_N[:, None], self._n_N, self._n_correct_N, penalty=1e-3)
        if platt(np.array([[1.0]])) <= platt(np.array([[0.0]])):
            return
        features = Features(self._rows, vectorise)
        final = _logistic(features.of_history(), self._n_N, self._n_correct_N, PENALTY)
        self._model = lambda texts: _rate(platt(final(features.of(texts))[:, None]))
        self._keep_left_out(_rate(platt(held_out_N[:, None])))

    def _use_the_mean(self) -> None:
        n, n_correct = self._n_N.sum(), self._n_correct_N.sum()
        self._mean = (n_correct + 1) / (n + 2)
        self._keep_left_out((n_correct - self._n_correct_N + 1) / (n - self._n_N + 2))

    def _keep_left_out(self, mean_N: np.ndarray) -> None:
        self._left_out = {row.text.prompt_id: float(mean) for row, mean in zip(self._rows, mean_N, strict=True)}
        self.concentration = concentration(self._n_N, self._n_correct_N, mean_N, most=self._max_concentration)


def _logistic(features_NF: np.ndarray, n_N: np.ndarray, n_correct_N: np.ndarray, penalty: float) -> LogOdds:
    """Logistic regression on counts: each prompt once as right and once as wrong, weighted by how often it was.

    Features are standardised; weights add up to the number of prompts, since completions of one prompt are
    far from independent. Outcomes of one class give the constant (s + 1) / (n + 2).
    """
    from sklearn.linear_model import LogisticRegression

    n, n_correct = n_N.sum(), n_correct_N.sum()
    if n_correct == 0 or n_correct == n:
        constant = np.log((n_correct + 1) / (n - n_correct + 1))
        return lambda asked_NF: np.full(len(asked_NF), constant)
    center_F, scale_F = features_NF.mean(axis=0), features_NF.std(axis=0)
    scale_F[scale_F < 1e-9] = 1.0
    standard_NF = (features_NF - center_F) / scale_F
    model = LogisticRegression(C=1 / penalty, max_iter=1000)
    model.fit(
        np.vstack([standard_NF, standard_NF]),
        np.repeat([1, 0], len(n_N)),
        sample_weight=np.concatenate([n_correct_N, n_N - n_correct_N]) / n_N.mean(),
    )
    return lambda asked_NF: model.decision_function((asked_NF - center_F) / scale_F)


def _rate(log_odds_N: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-log_odds_N))
