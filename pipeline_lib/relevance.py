"""How far a prompt is of the kind that a validation set asks, by the policy's own states while it reads them.

An inner product of two prompts' gradients is, layer by layer, that of what goes into the layer times that of what comes
back: the first factor is known from reading alone, the second is an estimate from a few sampled rewards. Likeness
of states is influence without that noise. RDS+ chooses data for fine-tuning by it (Ivison et al., arXiv 2503.01807).
Suffixes: N prompts of a pool, M of a validation set, V sets, D dimensions of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from pipeline_lib.policy import Policy
from pipeline_lib.records import Prompt

RELEVANCE_SCHEMA = pa.schema(
    {
        "prompt_id": pa.string(),
        "validation_set": pa.string(),
        "cosine": pa.float64(),
        "relevance": pa.float64(),
    }
)
STATES_SCHEMA = pa.schema({"prompt_id": pa.string(), "n_tokens": pa.int32(), "state": pa.list_(pa.float32())})
LEADING = 64
"""Dimensions of a state that is kept: more than a few hundred rollouts can tell apart."""
SAMPLE = 4096
"""Prompts of the pool that say what is usual in it."""


@dataclass(frozen=True)
class States:
    """`mean_ND` is the mean over a prompt's tokens, of which it has `n_tokens_N`; float64."""

    mean_ND: np.ndarray
    n_tokens_N: np.ndarray


@dataclass(frozen=True)
class Background:
    """What a prompt of this length looks like in the pool, which is taken off before any two are compared.

    Without it a long prompt is like any other long one, and short prompts of the kind asked for, which teach the same
    for less, are like none. Linear in the length, by least squares.
    """

    coefficients_2D: np.ndarray
    deviation_D: np.ndarray

    @classmethod
    def of(cls, states: States) -> Background:
        coefficients_2D = np.linalg.lstsq(_one_and_length(states), states.mean_ND, rcond=None)[0]
        deviation_D = _rest(states, coefficients_2D).std(axis=0)
        scale_D = np.abs(states.mean_ND).max(axis=0)
        return cls(coefficients_2D, np.where(deviation_D > 1e-9 * scale_D, deviation_D, np.inf))

    def scaled(self, states: States) -> np.ndarray:
        """[N, D] what is no background, of deviation 1 in each dimension."""
        return _rest(states, self.coefficients_2D) / self.deviation_D


def directions(scaled_ND: np.ndarray) -> np.ndarray:
    """[N, D] of length 1; a state that is all background is 0."""
    length_N1 = np.linalg.norm(scaled_ND, axis=1, keepdims=True)
    return np.divide(scaled_ND, length_N1, out=np.zeros_like(scaled_ND), where=length_N1 > 0)


def _rest(states: States, coefficients_2D: np.ndarray) -> np.ndarray:
    return states.mean_ND - _one_and_length(states) @ coefficients_2D


def _one_and_length(states: States) -> np.ndarray:
    return np.stack([np.ones(len(states.n_tokens_N)), states.n_tokens_N], axis=1)


@dataclass(frozen=True)
class Kind:
    """A validation set's prompts as one direction."""

    mean_D: np.ndarray
    own: float
    """The median prompt's mean cosine with the others of the set; nan where it has no others or they are no kind."""

    @classmethod
    def of(cls, directions_MD: np.ndarray) -> Kind:
        M = len(directions_MD)
        mean_D = directions_MD.mean(axis=0)
        if M < 2:
            return cls(mean_D, 1.0)
        own_M = (M * (directions_MD @ mean_D) - np.square(directions_MD).sum(axis=1)) / (M - 1)
        return cls(mean_D, float(np.median(own_M)) if _positive(own_M) else np.nan)

    def cosine(self, directions_ND: np.ndarray) -> np.ndarray:
        """[N] mean cosines with the set's prompts."""
        return directions_ND @ self.mean_D

    def relevance(self, cosine_N: np.ndarray) -> np.ndarray:
        """[N] in 0..1: 1 for whatever is as near to the set as half of its own prompts are to each other.

        Nothing is gained by being nearer: the extreme of a kind is no better than the kind.
        Where the set's prompts are no nearer to each other than any two of the pool, all of the pool is of its kind.
        """
        return np.ones_like(cosine_N) if np.isnan(self.own) else np.clip(cosine_N / self.own, 0.0, 1.0)


def _positive(own_M: np.ndarray) -> bool:
    """By two standard errors."""
    return bool(own_M.mean() > 2 * own_M.std(ddof=1) / np.sqrt(len(own_M)))


def relevances(
    policy: Policy,
    pool: Sequence[Prompt],
    validation: Mapping[str, Sequence[Prompt]],
    *,
    tokens_per_batch: int,
    progress: Callable[[int], None],
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Rows of RELEVANCE_SCHEMA and of STATES_SCHEMA for SAMPLE prompts of the pool at a time.

    A kept state is along the LEADING principal directions of the first SAMPLE, strongest first. `progress` is told how
    many more prompts are read.
    """

    def read(prompts: Sequence[Prompt]) -> States:
        states = prompt_states(policy, prompts, tokens_per_batch=tokens_per_batch)
        progress(len(prompts))
        return states

    ids = [prompt.prompt_id for prompt in pool]
    by_id = sorted(range(len(pool)), key=ids.__getitem__)  # ids are hashes: the first ones are as good as drawn
    sample = [pool[i] for i in by_id[:SAMPLE]]
    first = read(sample)
    background = Background.of(first)
    kinds = {name: Kind.of(directions(background.scaled(read(prompts)))) for name, prompts in validation.items()}
    leading_LD = np.linalg.svd(background.scaled(first), full_matrices=False)[2][:LEADING]
    yield _rows(sample, background.scaled(first), kinds), _kept(sample, first, background, leading_LD)
    for start in range(SAMPLE, len(pool), SAMPLE):
        prompts = [pool[i] for i in by_id[start : start + SAMPLE]]
        states = read(prompts)
        yield _rows(prompts, background.scaled(states), kinds), _kept(prompts, states, background, leading_LD)


def _rows(prompts: Sequence[Prompt], scaled_ND: np.ndarray, kinds: Mapping[str, Kind]) -> pa.Table:
    ids = pa.array([prompt.prompt_id for prompt in prompts], pa.string())
    tables = []
    for name, kind in kinds.items():
        cosine_N = kind.cosine(directions(scaled_ND))
        columns = [ids, pa.repeat(name, len(prompts)), pa.array(cosine_N), pa.array(kind.relevance(cosine_N))]
        tables.append(pa.table(columns, schema=RELEVANCE_SCHEMA))
    return pa.concat_tables(tables)


def _kept(prompts: Sequence[Prompt], states: States, background: Background, leading_LD: np.ndarray) -> pa.Table:
    kept_NL = background.scaled(states) @ leading_LD.T
    return pa.table(
        {
            "prompt_id": [prompt.prompt_id for prompt in prompts],
            "n_tokens": states.n_tokens_N,
            "state": list(kept_NL.astype(np.float32)),
        },
        schema=STATES_SCHEMA,
    )


@torch.no_grad()
def prompt_states(policy: Policy, prompts: Sequence[Prompt], *, tokens_per_batch: int) -> States:
    """The mean over a prompt's tokens of what half of the policy's blocks make of them.

    `tokens_per_batch` bounds the padded tokens of one forward pass.
    """
    encoded = [policy.encode(prompt.messages) for prompt in prompts]
    shortest_first = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))
    decoder = policy.model.get_decoder()
    states: list[np.ndarray] = [np.empty(0)] * len(encoded)
    while shortest_first:
        width = len(encoded[shortest_first[-1]])
        batch = [shortest_first.pop() for _ in range(min(len(shortest_first), max(1, tokens_per_batch // width)))]
        ids_BT = torch.full((len(batch), width), policy.pad_token_id, device=policy.device)
        real_BT = torch.zeros((len(batch), width), dtype=torch.long, device=policy.device)
        for row, i in enumerate(batch):
            ids_BT[row, : len(encoded[i])] = torch.tensor(encoded[i], device=policy.device)
            real_BT[row, : len(encoded[i])] = 1
        with policy.autocast():
            layers = decoder(
                input_ids=ids_BT, attention_mask=real_BT, output_hidden_states=True, use_cache=False
            ).hidden_states
        middle_BTD = layers[(len(layers) - 1) // 2].double() * real_BT.unsqueeze(-1)
        mean_BD = (middle_BTD.sum(dim=1) / real_BT.sum(dim=1, keepdim=True)).cpu().numpy()
        for row, i in enumerate(batch):
            states[i] = mean_BD[row]
    return States(np.stack(states), np.array([len(ids) for ids in encoded], dtype=np.float64))
