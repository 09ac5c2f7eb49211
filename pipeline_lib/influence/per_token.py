"""Directional derivatives of single tokens, by forward-mode differentiation.

l'_kt = <∇ log π(x_kt | s_kt), v> depends on no reward, advantage, ratio or length rule: stored once, it gives the
influence along v under any of them (`estimators`). No activation is kept for a backward pass; each direction costs
about three forward passes.

Suffixes: V directions, B trajectories, T completion tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from pipeline_lib.influence.objective import Gradient, scored_parameters
from pipeline_lib.policy import Policy, TokenBatch, collate, micro_batches, token_logprobs
from pipeline_lib.records import Trajectory

_FIELDS: list[pa.Field] = [
    pa.field("prompt_id", pa.string(), nullable=False),
    pa.field("sample_index", pa.int32(), nullable=False),
    pa.field("validation_set", pa.string(), nullable=False),
    pa.field("derivatives", pa.list_(pa.float32()), nullable=False),
    pa.field("logprobs", pa.list_(pa.float32()), nullable=False),
]
PER_TOKEN_SCHEMA = pa.schema(_FIELDS)
"""One row a trajectory and validation set. `logprobs` are the scored policy's; rewards and behaviour log-probs stand
in the rollouts' row of the same prompt_id and sample_index."""


@dataclass(frozen=True)
class TokenDerivatives:
    """float32; `logprobs_T` are the policy's own, in nats, at the temperature asked for."""

    trajectory: Trajectory
    derivatives_VT: np.ndarray
    logprobs_T: np.ndarray


def token_derivatives(
    policy: Policy,
    trajectories: Sequence[Trajectory],
    directions: Sequence[Gradient],
    *,
    temperature: float,
    tokens_per_micro_batch: int,
) -> Iterator[TokenDerivatives]:
    """l' of every completion token along each of the directions (at least one), longest trajectory first.

    A direction is rounded to the parameters' dtype. Rewards are not looked at: which trajectories are worth
    the passes is the caller's choice.
    """
    lengths = [len(t.prompt_token_ids) + len(t.completion_token_ids) for t in trajectories]
    for indices in micro_batches(lengths, tokens_per_micro_batch):
        batch = collate([trajectories[i] for i in indices], policy.pad_token_id, policy.device)
        pairs = [_jvp(policy, batch, direction, temperature) for direction in directions]
        logprobs_BT = pairs[0][0]
        derivatives_BVT = np.stack([derivatives_BT for _, derivatives_BT in pairs], axis=1)
        for row, i in enumerate(indices):
            completion = slice(logprobs_BT.shape[1] - len(trajectories[i].completion_token_ids), None)
            yield TokenDerivatives(
                trajectories[i],
                derivatives_VT=derivatives_BVT[row, :, completion],
                logprobs_T=logprobs_BT[row, completion],
            )


def per_token_table(found: Iterable[TokenDerivatives], validation_sets: Sequence[str]) -> pa.Table:
    """`validation_sets` name the directions. Rows stand in the order of prompt_id, sample_index and the sets."""
    columns: dict[str, list[object]] = {name: [] for name in PER_TOKEN_SCHEMA.names}
    for item in sorted(found, key=lambda item: (item.trajectory.prompt_id, item.trajectory.sample_index)):
        for validation_set, derivatives_T in zip(validation_sets, item.derivatives_VT, strict=True):
            columns["prompt_id"].append(item.trajectory.prompt_id)
            columns["sample_index"].append(item.trajectory.sample_index)
            columns["validation_set"].append(validation_set)
            columns["derivatives"].append(derivatives_T)
            columns["logprobs"].append(item.logprobs_T)
    return pa.table(columns, schema=PER_TOKEN_SCHEMA)


class _TokenLogprobs(torch.nn.Module):
    """`token_logprobs` as a module, so that `functional_call` can put other parameters into the policy."""

    def __init__(self, policy: Policy, temperature: float):
        super().__init__()
        self.model = policy.model
        self.policy = policy
        self.temperature = temperature

    def forward(self, batch: TokenBatch) -> torch.Tensor:
        return token_logprobs(self.policy, batch, temperature=self.temperature).logprobs_BT


def _jvp(policy: Policy, batch: TokenBatch, direction: Gradient, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """The log-probs [B, T] of a batch's completions, and their derivatives along `direction`."""
    module = _TokenLogprobs(policy, temperature)
    scored = set(scored_parameters(policy.model))
    primals = {name: parameter.detach() for name, parameter in module.named_parameters() if parameter in scored}
    tangents = {
        name: part.to(primal).reshape(primal.shape)
        for (name, primal), part in zip(primals.items(), direction, strict=True)
    }

    def logprobs(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        # A tied parameter stands once; functional_call puts it in both of its places.
        return torch.func.functional_call(module, parameters, (batch,), tie_weights=True)

    # Fused attention has no forward derivative, and inference mode drops tangents without a word.
    with torch.inference_mode(False), sdpa_kernel(SDPBackend.MATH):
        logprobs_BT, derivatives_BT = torch.func.jvp(logprobs, (primals,), (tangents,))  # type: ignore[misc]
    return logprobs_BT.cpu().numpy(), derivatives_BT.cpu().numpy()
