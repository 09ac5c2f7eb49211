"""The engine samples from the distribution whose log-probs it records, and from nothing else."""

from dataclasses import replace

import pytest
import torch
from rollout_cases import PROMPTS, as_group, tiny_policy
from transformers import GenerationConfig

from pipeline_lib.config import Generation
from pipeline_lib.policy import Policy, collate, token_logprobs
from pipeline_lib.rollout import Completion, SamplingParams, TransformersEngine, make_engine

PARAMS = SamplingParams(n=5, temperature=1.0, max_tokens=12, batch_size=7)


def generate(policy: Policy, params: SamplingParams = PARAMS, seed: int = 0) -> list[list[Completion]]:
    return TransformersEngine(policy).generate(PROMPTS, params, seed)


def assert_logprobs_are_exact(policy: Policy, params: SamplingParams) -> None:
    for prompt, completions in zip(PROMPTS, generate(policy, params), strict=True):
        assert len(completions) == params.n
        batch = collate(as_group(prompt, completions).trajectories, policy.pad_token_id, policy.device)
        expected_BT = token_logprobs(policy, batch, temperature=params.temperature).logprobs_BT
        torch.testing.assert_close(batch.behaviour_logprobs_BT, expected_BT, rtol=0, atol=1e-4)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
def test_recorded_logprobs_are_those_of_teacher_forcing(temperature: float) -> None:
    assert_logprobs_are_exact(tiny_policy(), replace(PARAMS, temperature=temperature))


def test_logprobs_are_exact_where_pad_is_eos() -> None:
    policy = tiny_policy(pad=2)
    assert policy.suppressed_token_ids == ()
    assert_logprobs_are_exact(policy, PARAMS)


def test_logprobs_are_float32_numbers() -> None:
    for group in generate(tiny_policy()):
        for completion in group:
            assert torch.tensor(completion.logprobs).tolist() == list(completion.logprobs)


def test_any_stop_token_ends_a_completion_and_belongs_to_it() -> None:
    eos = (2, 5, 9)
    completions = [c for group in generate(tiny_policy(eos=eos)) for c in group]
    stopped = [c for c in completions if c.finish_reason == "stop"]
    assert {c.token_ids[-1] for c in stopped} == set(eos)
    assert all(not set(c.token_ids[:-1]) & set(eos) for c in completions)
    assert all(len(c.token_ids) == len(c.logprobs) for c in completions)


def test_a_completion_without_stop_token_is_marked_truncated() -> None:
    completions = [c for g in generate(tiny_policy(), replace(PARAMS, max_tokens=3)) for c in g]
    truncated = [c for c in completions if c.finish_reason == "length"]
    assert truncated
    assert all(len(c.token_ids) == 3 and 2 not in c.token_ids for c in truncated)
    assert all(c.token_ids[-1] == 2 for c in completions if c.finish_reason == "stop")


def test_pad_is_never_sampled() -> None:
    assert all(0 not in c.token_ids for g in generate(tiny_policy()) for c in g)


def test_text_leaves_out_the_stop_token_and_special_tokens() -> None:
    policy = tiny_policy(eos=(2, 18))  # 18 is `=`
    for group in generate(policy):
        for c in group:
            ids = c.token_ids[:-1] if c.finish_reason == "stop" else c.token_ids
            assert c.text == policy.tokenizer.decode(list(ids), skip_special_tokens=True)
            assert "=" not in c.text and "<" not in c.text


def test_lone_surrogates_are_replaced() -> None:
    class SurrogateTokenizer:
        def decode(self, token_ids: list[int], skip_special_tokens: bool) -> str:
            return "a\ud800b"

    policy = replace(tiny_policy(), tokenizer=SurrogateTokenizer())
    assert generate(policy)[0][0].text == "a?b"


def test_same_seed_same_completions_and_the_global_generator_is_left_alone() -> None:
    policy = tiny_policy()
    first = generate(policy, seed=3)
    before = torch.get_rng_state()
    assert generate(policy, seed=3) == first
    assert torch.equal(torch.get_rng_state(), before)
    assert generate(policy, seed=4) != first


def test_completions_of_a_group_differ() -> None:
    groups = TransformersEngine(tiny_policy()).generate([PROMPTS[0]] * 3, PARAMS, seed=0)
    assert all(len({c.token_ids for c in group}) > 1 for group in groups)
    assert len({tuple(c.token_ids for c in group) for group in groups}) == 3


@pytest.mark.parametrize("batch_size", [3, 100])
def test_each_prompt_gets_its_n_completions_whatever_the_batch_size(batch_size: int) -> None:
    assert_logprobs_are_exact(tiny_policy(), replace(PARAMS, batch_size=batch_size))


def test_nothing_leaks_from_the_models_generation_config() -> None:
    clean = generate(tiny_policy())
    policy = tiny_policy()
    theirs = GenerationConfig(
        do_sample=True,
        temperature=0.3,
        top_k=2,
        top_p=0.4,
        min_p=0.3,
        typical_p=0.5,
        repetition_penalty=5.0,
        no_repeat_ngram_size=1,
        suppress_tokens=[5, 6, 7],
        bad_words_ids=[[8]],
        min_new_tokens=6,
        max_length=4,
        num_beams=2,
        return_dict_in_generate=True,
        output_scores=True,
        eos_token_id=11,
    )
    policy.model.generation_config = theirs
    assert generate(policy) == clean
    assert policy.model.generation_config is theirs


def test_the_models_mode_is_restored_even_after_an_error() -> None:
    policy = tiny_policy()
    policy.model.train()
    config = policy.model.generation_config
    generate(policy)
    assert policy.model.training
    with pytest.raises(IndexError):
        TransformersEngine(policy).generate([[99]], PARAMS, seed=0)
    assert policy.model.training and policy.model.generation_config is config
    assert policy.model.config._attn_implementation == "sdpa"


def test_dropout_is_off_while_sampling() -> None:
    policy = tiny_policy()
    for layer in policy.model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    policy.model.train()
    sampled = generate(policy)
    policy.model.train(False)
    assert sampled == generate(policy)


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_first_tokens_come_as_often_as_softmax_says(temperature: float) -> None:
    policy, prompt, draws = tiny_policy(), PROMPTS[0], 4000
    params = SamplingParams(n=draws, temperature=temperature, max_tokens=1, batch_size=1000)
    [group] = TransformersEngine(policy).generate([prompt], params, seed=1)
    with torch.no_grad():
        logits_V = policy.model(torch.tensor([prompt])).logits[0, -1] / temperature
    logits_V[0] = float("-inf")
    expected_V = torch.softmax(logits_V, -1) * draws
    observed_V = torch.bincount(torch.tensor([c.token_ids[0] for c in group]), minlength=len(expected_V))
    common_V = expected_V >= 5
    chi_square = ((observed_V - expected_V)[common_V] ** 2 / expected_V[common_V]).sum().item()
    freedom = int(common_V.sum()) - 1
    assert freedom >= 5
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5


def test_made_by_the_name_in_the_config() -> None:
    generation = Generation(temperature=0.7, max_tokens=9, batch_size=3)
    assert isinstance(make_engine(generation, tiny_policy()), TransformersEngine)
    assert SamplingParams.of(generation, n=4) == SamplingParams(4, 0.7, 9, 3)
