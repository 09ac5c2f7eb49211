"""Predicted pass rates: as good as the rates they were drawn from allow, calibrated, never their own outcome."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra `difficulty`)")

from prior_cases import answered, log_loss, rates_of, sums

from pipeline_lib.sampling.beta import Beta
from pipeline_lib.sampling.priors.concentration import beta_of, concentration
from pipeline_lib.sampling.priors.predictor import MIN_PROMPTS, DifficultyPredictor
from pipeline_lib.sampling.priors.rows import Row, Text
from pipeline_lib.sampling.priors.vectors import Vectorise, hashed_ngrams

SEEN, UNSEEN = sums(300, seed=1), sums(300, seed=2)


@pytest.fixture(scope="module")
def vectorise() -> Vectorise:
    return hashed_ngrams([text.text for text in SEEN + UNSEEN])


def predictor(rows: list[Row], vectorise: Vectorise, most: float = 64.0) -> DifficultyPredictor:
    return DifficultyPredictor(rows, vectorise, max_concentration=most, seed=0)


def test_unseen_prompts_are_predicted_almost_as_well_as_their_rates_allow(vectorise: Vectorise) -> None:
    rates = rates_of(UNSEEN)
    predicted = predictor(answered(SEEN, rates_of(SEEN), n=8, seed=0), vectorise).means(UNSEEN)
    best, mean = log_loss(rates, rates), log_loss(np.full(len(rates), rates.mean()), rates)
    assert log_loss(predicted, rates) < best + 0.1 * (mean - best)


def test_predictions_are_calibrated(vectorise: Vectorise) -> None:
    """In ten bins of the prediction, the mean prediction is the mean of the rates that prompts really have."""
    rates = rates_of(UNSEEN)
    predicted = predictor(answered(SEEN, rates_of(SEEN), n=8, seed=3), vectorise).means(UNSEEN)
    bins = np.array_split(np.argsort(predicted), 10)
    error = np.mean([abs(predicted[b].mean() - rates[b].mean()) for b in bins])
    assert error < 0.04
    assert abs(rates.std() - predicted.std()) < 0.05  # which the mean of all would not pass


def test_out_of_fold_calibration_mends_predictions_that_know_nothing(vectorise: Vectorise) -> None:
    """Rates that have nothing to do with the text: neighbours and counts must not be believed."""
    rates = np.random.default_rng(0).uniform(0.05, 0.95, len(SEEN))
    own = predictor(answered(SEEN, rates, n=8, seed=1), vectorise)
    assert np.abs(own.means(UNSEEN) - 0.5).max() < 0.15
    # A variance of 0.9² / 12 around one half is that of Beta(κ/2, κ/2) with κ = 2.7.
    assert own.concentration == pytest.approx(2.7, abs=0.7)


def test_a_prompts_own_outcome_is_not_in_its_prediction(vectorise: Vectorise) -> None:
    rows = answered(SEEN, rates_of(SEEN), n=8, seed=0)
    turned = Row(rows[7].text, 8, 8 - rows[7].n_correct)
    before = predictor(rows, vectorise).means([rows[7].text])
    after = predictor([*rows[:7], turned, *rows[8:]], vectorise).means([rows[7].text])
    # Only the calibration, two numbers for 300 prompts, has seen it.
    assert after == pytest.approx(before, abs=0.01)


@pytest.mark.parametrize("kappa", [2.0, 5.0, 12.0])
def test_the_concentration_left_to_single_prompts_is_found(kappa: float) -> None:
    """Beta-binomial counts around known means, against the κ that they were drawn with."""
    rng = np.random.default_rng(0)
    mean_N = rng.uniform(0.1, 0.9, 20_000)
    n_N = rng.integers(2, 17, len(mean_N)).astype(float)
    n_correct_N = rng.binomial(n_N.astype(int), rng.beta(kappa * mean_N, kappa * (1 - mean_N))).astype(float)
    assert concentration(n_N, n_correct_N, mean_N, most=100) == pytest.approx(kappa, rel=0.1)


def test_concentration_by_hand() -> None:
    half = np.array([0.5, 0.5])
    # Squared residuals 4 + 1, binomial variance 2 * 1, pairs 2 * 4 * 3 * .25 = 6: ρ = (5 - 2) / 6, κ = 1.
    assert concentration(np.array([4.0, 4.0]), np.array([4.0, 1.0]), half, most=64) == pytest.approx(1)
    assert concentration(np.array([4.0, 4.0]), np.array([2.0, 2.0]), half, most=64) == 64  # less than binomial
    assert concentration(np.array([4.0, 4.0]), np.array([4.0, 0.0]), half, most=64) == 0.5  # nothing known
    assert concentration(np.array([4.0, 4.0]), np.array([0.0, 0.0]), half, most=64) == 2  # one class
    assert concentration(np.array([1.0, 1.0]), np.array([0.0, 1.0]), half, most=64) == 2  # no pair
    assert concentration(np.array([]), np.array([]), np.array([]), most=64) == 2


def test_a_prior_has_mean_and_concentration_and_is_never_certain() -> None:
    assert beta_of(0.25, 8) == Beta(2, 6)
    assert beta_of(0.0, 8) == pytest.approx(Beta(0.08, 7.92))


def test_without_outcomes_everything_is_possible(vectorise: Vectorise) -> None:
    assert predictor([], vectorise).betas(UNSEEN[:2]) == [Beta(1, 1), Beta(1, 1)]
    assert predictor([], vectorise).betas([]) == []


@pytest.mark.parametrize("right", [0, 8])
def test_a_window_of_one_class_gives_its_mean_with_little_weight(right: int, vectorise: Vectorise) -> None:
    own = predictor([Row(text, 8, right) for text in SEEN[:50]], vectorise)
    assert not own.informed
    (a, b), *_ = own.betas(UNSEEN)
    assert a + b == pytest.approx(2)
    assert a / (a + b) == pytest.approx(0.01 if right == 0 else 0.99)


def test_too_few_prompts_give_their_mean_without_the_prompts_own(vectorise: Vectorise) -> None:
    rows = [Row(text, 4, 1 + i % 2) for i, text in enumerate(SEEN[: MIN_PROMPTS - 1])]
    own = predictor(rows, vectorise)
    n, n_correct = 4 * len(rows), sum(row.n_correct for row in rows)
    assert own.means([UNSEEN[0], rows[1].text]) == pytest.approx([(n_correct + 1) / (n + 2), (n_correct - 1) / (n - 2)])


def test_a_prompt_met_twice_counts_as_one_prompt(vectorise: Vectorise) -> None:
    rows = answered(SEEN[: MIN_PROMPTS - 1], rates_of(SEEN[: MIN_PROMPTS - 1]), n=8, seed=0)
    assert not predictor(rows * 5, vectorise).informed


def test_another_tasks_source_and_all_its_prompts_are_new(vectorise: Vectorise) -> None:
    """What was learned of one task tells the other's prompts apart, though its source was never seen."""
    other = [Text(t.prompt_id, "another", t.text) for t in UNSEEN]
    rates = rates_of(UNSEEN)
    own = predictor(answered(SEEN, rates_of(SEEN), n=8, seed=0), vectorise)
    assert log_loss(own.means(other), rates) < log_loss(np.full(len(rates), rates.mean()), rates) - 0.1


def test_the_same_rows_and_seed_give_the_same_predictions(vectorise: Vectorise) -> None:
    rows = answered(SEEN, rates_of(SEEN), n=8, seed=0)
    assert np.array_equal(predictor(rows, vectorise).means(UNSEEN), predictor(rows, vectorise).means(UNSEEN))


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.integers(0, 9)), max_size=60))
def test_whatever_the_outcomes_the_priors_are_proper(vectorise: Vectorise, outcomes: list) -> None:
    rows = [Row(SEEN[i], n, min(n, right)) for i, n, right in outcomes]
    for a, b in predictor(rows, vectorise, most=16.0).betas(SEEN[:45]):
        assert a > 0 and b > 0
        assert 0.5 <= a + b <= 16 + 1e-9
