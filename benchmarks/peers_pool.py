"""The policy and the pool that influence_peers.py compares on, and what rlsift and plain autograd make of them.

Suffixes: N prompts, K trajectories of each, V queries of R trajectories, S tokens, T of them the completion,
B samples, P parameters (one entry for each tensor).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging as transformers_logging

transformers_logging.disable_progress_bar()

PAD = EOS = 0  # one id, so that rlsift suppresses no token, as the libraries do not
Score = Callable[[], np.ndarray]
"""Gives the dot products [N, V]: the part that is timed."""


@dataclass(frozen=True)
class Pool:
    directory: Path
    model: Qwen2ForCausalLM
    tokens_NKS: torch.Tensor
    weights_NKT: torch.Tensor
    query_tokens_VRS: torch.Tensor
    query_weights_VRT: torch.Tensor
    rewards_NK: torch.Tensor
    query_rewards_VGK: torch.Tensor
    behaviour_logprobs_NKT: torch.Tensor
    query_behaviour_logprobs_VRT: torch.Tensor

    def batches(self, batch: int) -> Iterator[slice]:
        N = len(self.tokens_NKS)
        return (slice(start, min(start + batch, N)) for start in range(0, N, batch))


@dataclass(frozen=True)
class Peer:
    package: str
    prepare: Callable[[Pool, int], Score]
    route: str
    linear_only: bool = False
    one_batch: bool = False
    """Measured with the whole pool as one batch alone: the library makes its projection anew for each batch."""
    one_by_one: bool = False


def load_pool(directory: Path) -> Pool:
    model = AutoModelForCausalLM.from_pretrained(directory / "model", dtype=torch.float32, attn_implementation="sdpa")
    model.train(False)
    return Pool(directory, model, **load_file(directory / "pool.safetensors"))


def weighted_logprob(forward: Callable[..., Any], tokens_BS: torch.Tensor, weights_BT: torch.Tensor) -> torch.Tensor:
    """Σ weight · log π(token) over the completions; no padding, hence no mask."""
    T = weights_BT.shape[-1]
    logits_BTV = forward(input_ids=tokens_BS, logits_to_keep=T + 1, use_cache=False).logits[:, :-1]
    logprobs_BT = logits_BTV.log_softmax(-1).gather(-1, tokens_BS[:, -T:, None]).squeeze(-1)
    return (weights_BT * logprobs_BT).sum()


def packed_weighted_logprob(model: nn.Module, tokens_BRS: torch.Tensor, weights_BRT: torch.Tensor) -> torch.Tensor:
    """The same with the R sequences of a sample in one row, none seeing another: for libraries that take every
    row of a layer's input for one sample."""
    B, R, S = tokens_BRS.shape
    T = weights_BRT.shape[-1]
    causal_SS = torch.ones(S, S, dtype=torch.bool).tril()
    mask_LL = torch.block_diag(*[causal_SS] * R)
    logits = model(
        input_ids=tokens_BRS.reshape(B, R * S),
        attention_mask=mask_LL.expand(B, 1, -1, -1),
        position_ids=torch.arange(S).repeat(R).expand(B, -1),
        use_cache=False,
    ).logits
    logits_BRTV = logits.reshape(B, R, S, -1)[:, :, -T - 1 : -1]
    logprobs_BRT = logits_BRTV.log_softmax(-1).gather(-1, tokens_BRS[..., -T:, None]).squeeze(-1)
    return (weights_BRT * logprobs_BRT).sum()


def make(directory: Path, sizes: argparse.Namespace) -> None:
    """Policy, pool and the reference, all seeded. Random tokens, but for one regularity, so that gradients have a
    direction in common: a trajectory is rewarded when most of its completion is from its prompt's topic, one of
    four sets of seven tokens. The queries are two of the topics. Every group is mixed."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(directory / "measured", ignore_errors=True)  # of another pool
    torch.manual_seed(sizes.seed)
    config = Qwen2Config(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.intermediate,
        num_hidden_layers=sizes.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():  # off their initial values: biases from 0, norms from 1
            parameter.add_(0.02 * torch.randn_like(parameter))
    model.train(False)
    model.save_pretrained(directory / "model")

    N, K, V, G = sizes.prompts, sizes.trajectories, 2, sizes.query_prompts
    S, T = sizes.prompt_tokens + sizes.completion_tokens, sizes.completion_tokens
    everything = N + V * G
    tokens_NKS = torch.randint(1, sizes.vocabulary, (everything, K, S))
    tokens_NKS[:, :, : S - T] = tokens_NKS[:, :1, : S - T]
    share_NK = torch.rand(everything, K)
    share_NK[:, 0], share_NK[:, 1] = 0.9, 0.1
    rewards_NK = (share_NK > 0.5).float()
    topic_N = torch.cat([torch.arange(N) % 4, torch.arange(V).repeat_interleave(G)])
    of_topic_NKT = 8 * topic_N[:, None, None] + torch.randint(1, 8, (everything, K, T))
    chosen_NKT = torch.rand(everything, K, T) < share_NK[..., None]
    tokens_NKS[..., -T:] = torch.where(chosen_NKT, of_topic_NKT, tokens_NKS[..., -T:])
    with torch.no_grad():
        logits = torch.cat([model(input_ids=row_KS, use_cache=False).logits[:, -T - 1 : -1] for row_KS in tokens_NKS])
    logprobs = logits.log_softmax(-1).gather(-1, tokens_NKS.reshape(-1, S)[:, -T:, None]).reshape(everything, K, T)

    from pipeline_lib.influence.objective import weighted_trajectories

    groups = _groups(tokens_NKS, rewards_NK, logprobs)
    weights_NK = torch.tensor([[weight for _, weight in weighted_trajectories(group)] for group in groups])
    weights_NKT = weights_NK[..., None].expand(-1, -1, T)
    save_file(
        {
            "tokens_NKS": tokens_NKS[:N].contiguous(),
            "weights_NKT": weights_NKT[:N].contiguous(),
            "rewards_NK": rewards_NK[:N].contiguous(),
            "behaviour_logprobs_NKT": logprobs[:N].contiguous(),
            "query_tokens_VRS": tokens_NKS[N:].reshape(V, G * K, S).contiguous(),
            "query_weights_VRT": (weights_NKT[N:] / G).reshape(V, G * K, T).contiguous(),
            "query_rewards_VGK": rewards_NK[N:].reshape(V, G, K).contiguous(),
            "query_behaviour_logprobs_VRT": logprobs[N:].reshape(V, G * K, T).contiguous(),
        },
        directory / "pool.safetensors",
    )
    _reference(load_pool(directory))


def _groups(tokens_NKS: torch.Tensor, rewards_NK: torch.Tensor, logprobs_NKT: torch.Tensor) -> list[Any]:
    from pipeline_lib.records import RolloutGroup, Trajectory

    T = logprobs_NKT.shape[-1]
    return [
        RolloutGroup(
            f"{n:04d}",
            tuple(
                Trajectory(
                    prompt_id=f"{n:04d}",
                    sample_index=k,
                    prompt_token_ids=tuple(tokens_NKS[n, k, :-T].tolist()),
                    completion_token_ids=tuple(tokens_NKS[n, k, -T:].tolist()),
                    behaviour_logprobs=tuple(logprobs_NKT[n, k].tolist()),
                    finish_reason="length",
                    text="",
                    reward=rewards_NK[n, k].item(),
                    correct=rewards_NK[n, k].item() == 1.0,
                    verifier_status="ok",
                )
                for k in range(tokens_NKS.shape[1])
            ),
        )
        for n in range(len(tokens_NKS))
    ]


def _reference(pool: Pool) -> None:
    """Every prompt's gradient by autograd, in float32; dot products summed in float64, parameter by parameter."""
    parameters = dict(pool.model.named_parameters())
    directions_VP = [_autograd(pool, t, w) for t, w in zip(pool.query_tokens_VRS, pool.query_weights_VRT, strict=True)]
    norms_NP, dots_NVP = [], []
    for tokens_KS, weights_KT in zip(pool.tokens_NKS, pool.weights_NKT, strict=True):
        g_P = [g.double() for g in _autograd(pool, tokens_KS, weights_KT)]
        norms_NP.append([g.square().sum() for g in g_P])
        dots_NVP.append([[(g * v.double()).sum() for g, v in zip(g_P, v_P, strict=True)] for v_P in directions_VP])
    linear = {
        f"{module_name}.{name}"
        for module_name, module in pool.model.named_modules()
        if isinstance(module, nn.Linear)
        for name, _ in module.named_parameters(recurse=False)
    }
    tensors = {
        "dots_NVP": torch.tensor(dots_NVP, dtype=torch.float64),
        "squared_norms_NP": torch.tensor(norms_NP, dtype=torch.float64),
        "squared_norms_VP": torch.tensor(
            [[v.double().square().sum() for v in v_P] for v_P in directions_VP], dtype=torch.float64
        ),
        "linear_P": torch.tensor([name in linear for name in parameters]),
        "entries_P": torch.tensor([parameter.numel() for parameter in parameters.values()]),
    }
    save_file(tensors, pool.directory / "reference.safetensors")


def _autograd(pool: Pool, tokens_BS: torch.Tensor, weights_BT: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(weighted_logprob(pool.model, tokens_BS, weights_BT), list(pool.model.parameters()))


def rlsift(pool: Pool, batch: int) -> Score:
    from pipeline_lib.influence.exact import exact_scores
    from pipeline_lib.policy import Policy

    _, K, S = pool.tokens_NKS.shape
    V, G, _ = pool.query_rewards_VGK.shape
    T = pool.weights_NKT.shape[-1]
    groups = _groups(pool.tokens_NKS, pool.rewards_NK, pool.behaviour_logprobs_NKT)
    validation = {
        str(v): _groups(
            pool.query_tokens_VRS[v].reshape(G, K, S),
            pool.query_rewards_VGK[v],
            pool.query_behaviour_logprobs_VRT[v].reshape(G, K, T),
        )
        for v in range(V)
    }
    policy = Policy(pool.model, None, (EOS,), PAD, torch.float32)  # type: ignore[arg-type]

    def score() -> np.ndarray:
        return exact_scores(
            policy,
            groups,
            validation,
            temperature=1.0,
            tokens_per_micro_batch=batch * K * S,
            progress=lambda _: None,
        ).dot

    return score


def autograd(pool: Pool, batch: int) -> Score:
    def score() -> np.ndarray:
        queries = zip(pool.query_tokens_VRS, pool.query_weights_VRT, strict=True)
        directions_VP = [_autograd(pool, tokens_RS, weights_RT) for tokens_RS, weights_RT in queries]
        rows = []
        for tokens_KS, weights_KT in zip(pool.tokens_NKS, pool.weights_NKT, strict=True):
            g_P = _autograd(pool, tokens_KS, weights_KT)
            rows.append(
                [sum(float(g.flatten() @ v.flatten()) for g, v in zip(g_P, v_P, strict=True)) for v_P in directions_VP]
            )
        return np.array(rows)

    return score
