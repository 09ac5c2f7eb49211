"""Priors in the sampler: fitted on time, restored to the bit, carried from one task to the next."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra `difficulty`)")

from prior_cases import answered, rates_of, sums
from sampling_cases import binary

from pipeline_lib.config import ClusterPrior, DriftDetector, NoPrior, PosteriorSampler, PredictorPrior, PriorBase
from pipeline_lib.config_file import load_config
from pipeline_lib.records import Prompt
from pipeline_lib.sampling import Beta, Decision, Observation, PromptSampler, make_sampler
from pipeline_lib.sampling.posterior import Posterior
from pipeline_lib.sampling.priors import PoolPrior, make_prior
from pipeline_lib.sampling.priors.rows import text_of
from pipeline_lib.sampling.priors.window_file import load_rows, save_rows

CPU = torch.device("cpu")
PREDICTOR = PosteriorSampler(prior=PredictorPrior(refit_every=2))
CLUSTERS = PosteriorSampler(prior=ClusterPrior(refit_every=2, clusters=6))
DRIFT = PosteriorSampler(drift=DriftDetector(threshold=1.0, hold_steps=2))
ALL = PosteriorSampler(prior=PredictorPrior(refit_every=3), drift=DriftDetector(threshold=1.0, hold_steps=2))
every_config = pytest.mark.parametrize(
    "config", [PREDICTOR, CLUSTERS, DRIFT, ALL], ids=["predictor", "clusters", "drift", "all"]
)


def prompts(count: int, seed: int = 1) -> list[Prompt]:
    return [
        Prompt(text.data_source, ({"role": "user", "content": text.text},), gold="1", verifier="exact")
        for text in sums(count, seed)
    ]


POOL = list({p.prompt_id: p for p in prompts(60)}.values())
RATES = dict(zip([p.prompt_id for p in POOL], rates_of([text_of(p) for p in POOL]).tolist(), strict=True))


def sampler_of(config: PosteriorSampler, history: list[Observation] | None = None) -> PromptSampler:
    prior = make_prior(config, POOL, seed=3, device=CPU)
    return make_sampler(config, [p.prompt_id for p in POOL], history or [], 3, group_size=8, prior=prior)


def observe(decisions: list[Decision], step: int) -> list[Observation]:
    rng = random.Random(step)
    kept = [d.prompt_id for d in decisions if d.keep]
    return [binary(p, 8, sum(rng.random() < RATES[p] for _ in range(8))) for p in kept]


def play(sampler: PromptSampler, steps: range) -> list[Decision]:
    made = []
    for step in steps:
        decisions = sampler.propose(8)
        sampler.observe(observe(decisions, step))
        sampler.end_step()
        made += decisions
    return made


@every_config
@pytest.mark.parametrize("cut", [0, 3, 4])  # before the first fit, with one due, and between two
def test_a_restored_sampler_goes_on_as_if_never_stopped(config: PosteriorSampler, cut: int) -> None:
    straight, before, after = sampler_of(config), sampler_of(config), sampler_of(config)
    made = play(straight, range(7))
    first = play(before, range(cut))
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))  # plain values alone
    assert first + play(after, range(cut, 7)) == made
    assert after.state_dict() == straight.state_dict()
    assert after.metrics() == straight.metrics()


def test_a_checkpoint_takes_the_state(tmp_path: Path) -> None:
    sampler = sampler_of(ALL)
    play(sampler, range(4))
    torch.save(sampler.state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True) == sampler.state_dict()


def test_off_by_default() -> None:
    config = PosteriorSampler()
    assert config.prior == NoPrior() and config.drift is None
    assert make_prior(config, POOL, seed=0, device=CPU) is None
    assert type(sampler_of(config)) is Posterior


def posterior(sampler: PromptSampler, prompt_id: str) -> Beta:
    assert isinstance(sampler, Posterior)
    return sampler.posterior(prompt_id)


def test_priors_are_fitted_before_the_first_proposal_and_then_every_few_steps() -> None:
    history = [binary(p.prompt_id, 8, round(8 * RATES[p.prompt_id])) for p in POOL[:40]]
    sampler = sampler_of(PREDICTOR, history)
    unknown = POOL[50].prompt_id
    sampler.propose(0)
    believed = [posterior(sampler, unknown)]
    assert believed[0].mean == pytest.approx(RATES[unknown], abs=0.2)
    for step in range(4):
        play(sampler, range(step, step + 1))
        sampler.propose(0)
        counts = sampler.state_dict()["counts"]
        believed.append(Beta(*sampler.state_dict()["priors"][unknown]))
        assert unknown in counts or posterior(sampler, unknown) == believed[-1]
    assert believed[0] == believed[1] != believed[2] == believed[3] != believed[4]


def test_a_prompt_with_a_history_has_its_own_outcomes_on_top_of_its_prior() -> None:
    sampler = sampler_of(CLUSTERS, [binary(POOL[0].prompt_id, 8, 8), binary(POOL[1].prompt_id, 8, 0)])
    sampler.propose(0)
    prior = Beta(*sampler.state_dict()["priors"][POOL[0].prompt_id])
    assert posterior(sampler, POOL[0].prompt_id) == pytest.approx((prior.a + 8, prior.b))
    assert prior.mean < 0.5  # it has only seen the other's


def test_an_alarm_lowers_the_discount_of_the_groups_that_follow() -> None:
    history = [binary(p.prompt_id, 8, 8) for p in POOL]
    config = PosteriorSampler(half_life=1e12, discount=1.0, drift=DriftDetector(threshold=1.0, discount=0.25))
    sampler = sampler_of(config, history)
    seen, unseen = POOL[0].prompt_id, POOL[1].prompt_id
    sampler.observe([binary(seen, 8, 0)])
    assert posterior(sampler, seen) == Beta(1 + 8, 1 + 8)
    sampler.end_step()
    assert sampler.metrics()["drift_alarms"] == 1 and sampler.metrics()["discount"] == 0.25
    assert posterior(sampler, unseen) == pytest.approx(Beta(1 + 8, 1))
    sampler.observe([binary(seen, 8, 0)])
    # Of 8 and 8, 2 and 2 are left when the next group comes.
    assert posterior(sampler, seen) == pytest.approx(Beta(1 + 2, 1 + 2 + 8))


def test_the_window_keeps_the_newest_outcomes() -> None:
    prior = PoolPrior(PredictorPrior(window=3), POOL, seed=0, device=CPU)
    prior.observe([binary(p.prompt_id, 8, i) for i, p in enumerate(POOL[:5])])
    prior.observe([binary("elsewhere", 8, 1), binary(POOL[5].prompt_id, 0, 0)])  # no text; ungraded
    assert [row[0] for row in prior.state_dict()["rows"]] == [p.prompt_id for p in POOL[2:5]]


@pytest.mark.parametrize("config", [PredictorPrior(), ClusterPrior(clusters=4)])
def test_what_is_fitted_hangs_on_the_outcomes_and_not_on_the_prompts_order(
    config: PredictorPrior | ClusterPrior,
) -> None:
    history = [binary(p.prompt_id, 8, round(8 * RATES[p.prompt_id])) for p in POOL[:40]]
    one, other = (PoolPrior(config, pool, seed=0, device=CPU) for pool in (POOL, POOL[::-1]))
    one.observe(history)
    other.observe(history)
    assert one.fit() == other.fit()
    assert set(one.fit()) == set(RATES)


def test_a_new_task_starts_from_an_old_ones_outcomes(tmp_path: Path) -> None:
    old = PoolPrior(PredictorPrior(), POOL, seed=0, device=CPU)
    old.observe([binary(p.prompt_id, 8, round(8 * RATES[p.prompt_id])) for p in POOL])
    old.save(tmp_path / "prior.jsonl")
    new_texts = sums(50, seed=9, source="never seen")
    new = [Prompt(t.data_source, ({"role": "user", "content": t.text},), gold="1", verifier="exact") for t in new_texts]
    cold, warm = (
        PoolPrior(config, new, seed=0, device=CPU)
        for config in (PredictorPrior(), PredictorPrior(warm_start=str(tmp_path / "prior.jsonl")))
    )
    rates = rates_of([text_of(p) for p in new])
    believed = warm.fit()
    assert set(cold.fit().values()) == {Beta(1, 1)}
    assert np.corrcoef([believed[p.prompt_id].mean for p in new], rates)[0, 1] > 0.9
    # What was warm is part of the state, so that a resumed sampler needs it once.
    again = PoolPrior(PredictorPrior(warm_start=str(tmp_path / "prior.jsonl")), new, seed=0, device=CPU)
    again.load_state_dict(warm.state_dict())
    assert again.fit() == believed


def test_rows_in_a_file_come_back(tmp_path: Path) -> None:
    texts = [*sums(5, seed=1), *sums(2, seed=2, source="ünïcode\u2028")]
    rows = answered(texts, rates_of(texts), 8, seed=0)
    save_rows(tmp_path / "prior.jsonl", rows)
    assert load_rows(tmp_path / "prior.jsonl") == rows


@pytest.mark.parametrize("content", [None, "not json", '{"n": 8}', "[1, 2]", "\xff"])
def test_a_file_that_is_no_window_is_named_with_the_remedy(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "prior.jsonl"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=rf"warm_start={path}: .*give the prior.jsonl of a finished stage"):
        load_rows(path)


def test_without_scikit_learn_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for config in (PREDICTOR, CLUSTERS):
        with pytest.raises(ValueError, match=r'"rlsift\[difficulty\]".*prior.type=none'):
            make_prior(config, POOL, seed=0, device=CPU)
    assert make_prior(DRIFT, POOL, seed=0, device=CPU) is None  # which needs no package


def test_embeddings_tell_likeness_where_a_model_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def embed(texts: list[str], model: str, *, device: torch.device, key: str) -> np.ndarray:
        assert (model, key) == ("words", "train.sampler.prior.embedding_model")
        asked.extend(texts)
        return np.array([[1.0, 0.0] if "*" in text else [0.0, 1.0] for text in texts])

    monkeypatch.setattr("pipeline_lib.sampling.priors.vectors.embed", embed)
    prior = PoolPrior(ClusterPrior(embedding_model="words"), POOL, seed=0, device=CPU)
    prior.observe([binary(p.prompt_id, 8, 0 if "*" in p.messages[-1]["content"] else 8) for p in POOL[:20]])
    believed = prior.fit()
    assert all((believed[p.prompt_id].mean < 0.5) == ("*" in p.messages[-1]["content"]) for p in POOL)
    assert len(asked) == len(set(asked))  # each once


def test_paths_are_taken_from_the_configs_directory(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "{name: r, root: out, prompts: {train: [{type: chains, kinds: [plus], lengths: [1], count: 4}],"
        " validation: {v: [{type: chains, kinds: [plus], lengths: [1], count: 4}]},"
        " evaluation: {e: [{type: chains, kinds: [plus], lengths: [1], count: 4}]}},"
        " train: {sampler: {type: posterior, prior: {type: predictor, warm_start: old/prior.jsonl,"
        " embedding_model: ./encoder}}}}"
    )
    sampler = load_config(path).train.sampler
    assert isinstance(sampler, PosteriorSampler) and isinstance(sampler.prior, PredictorPrior)
    assert sampler.prior.warm_start == str(tmp_path / "old/prior.jsonl")
    assert sampler.prior.embedding_model == str(tmp_path / "encoder")


def test_settings_out_of_range_are_refused() -> None:
    for build in (lambda: PriorBase(window=0), lambda: ClusterPrior(clusters=0), lambda: DriftDetector(discount=1.5)):
        with pytest.raises(ValidationError):
            build()
