"""Exact influence: each prompt's whole gradient against each validation set's, no projection.

Suffixes: N prompts, V validation sets, D entries of a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from pipeline_lib.config import ExactInfluence
from pipeline_lib.influence.cascade import parameters_of_last_blocks, thinned
from pipeline_lib.influence.drift import DriftMeter
from pipeline_lib.influence.job import ScoreJob
from pipeline_lib.influence.objective import Gradient, gradient, scored_parameters, weighted_trajectories
from pipeline_lib.influence.pack import attention_share, make_pack, packs, padded_tokens, rows_of
from pipeline_lib.influence.packed import packed_dots, supports
from pipeline_lib.influence.per_token import per_token_table, token_derivatives
from pipeline_lib.influence.scorer import Keep, Progress, Scorer
from pipeline_lib.influence.scores import InfluenceScores, Products, scores_from_products
from pipeline_lib.influence.validation import Directions, ValidationGroups, validation_directions
from pipeline_lib.policy import Policy
from pipeline_lib.policy.checkpointing import checkpointing
from pipeline_lib.records import RolloutGroup


def exact_scores(
    policy: Policy,
    groups: Sequence[RolloutGroup],
    validation: ValidationGroups,
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    progress: Callable[[int], None],
    adam: bool = False,
) -> InfluenceScores:
    """<g_i, v_j>, its cosine, and |g_i| for every prompt i and validation set j. CROPI, arXiv 2510.26491; with `adam`
    in the optimizer's geometry.

    Raises ValueError when no group of a validation set has signal, or a gradient is not finite.
    """
    directions = validation_directions(
        policy,
        validation,
        scored_parameters(policy.model),
        temperature=temperature,
        tokens_per_micro_batch=tokens_per_micro_batch,
        progress=lambda _: None,
        adam=adam,
    )
    products = exact_products(
        policy,
        groups,
        directions,
        scored_parameters(policy.model),
        temperature=temperature,
        tokens_per_micro_batch=tokens_per_micro_batch,
        progress=progress,
    )
    return scores_from_products(products, directions.names, directions.norms())


def exact_products(
    policy: Policy,
    groups: Sequence[RolloutGroup],
    directions: Directions,
    parameters: Sequence[nn.Parameter],
    *,
    temperature: float,
    tokens_per_micro_batch: int,
    progress: Callable[[int], None],
    trajectories: int | None = None,
    meter: DriftMeter | None = None,
) -> Products:
    """<g_i, v_j> and |g_i| over `parameters`, which `directions` are of as well.

    A group without signal has gradient 0: it is never run. `progress` is told how many more of the others
    are done, `meter` what their tokens' ratios are. `trajectories` is how many of a prompt are looked at, None
    for all. Nothing is kept of a prompt but V + 1 numbers.
    """
    observe = None if meter is None else meter.observe
    dot_NV = np.zeros((len(groups), len(directions.names)))
    squared_norm_N = np.zeros(len(groups))
    share = attention_share(policy)
    weighted_N = [weighted_trajectories(group) for group in groups]
    if trajectories is not None:
        weighted_N = [thinned(weighted, trajectories) for weighted in weighted_N]
    rows_N = [rows_of(weighted, share, tokens_per_micro_batch) for weighted in weighted_N]
    packable = supports(policy.model, parameters)
    for members in packs(rows_N, tokens_per_micro_batch if packable else 0):
        rows = [rows_N[i] for i in members]
        if packable and padded_tokens([row for rows_of_prompt in rows for row in rows_of_prompt]) <= (
            tokens_per_micro_batch
        ):
            dots, squares = packed_dots(
                policy,
                make_pack(rows, policy),
                parameters,
                directions,
                temperature=temperature,
                observe=observe,
            )
        else:
            # A prompt of several micro-batches: its gradient has to be whole before its norm is taken.
            [rows_of_prompt] = rows
            g = gradient(
                policy,
                rows_of_prompt,
                parameters,
                temperature=temperature,
                tokens_per_micro_batch=tokens_per_micro_batch,
                observe=observe,
            )
            dots, squares = _plain_dots(g, directions)
        dot_NV[members] = dots.numpy()
        squared_norm_N[members] = squares.numpy()
        progress(len(members))
    return Products([group.prompt_id for group in groups], dot_NV, np.sqrt(squared_norm_N))


class ExactScorer(Scorer):
    """The validation gradients are kept whole, one number for each scored parameter and set."""

    def __init__(self, policy: Policy, job: ScoreJob) -> None:
        super().__init__(policy, job)
        assert isinstance(job.influence, ExactInfluence)
        self.config = job.influence
        self.parameters = scored_parameters(policy.model)
        self.cascade = job.influence.cascade if job.cheap else None
        if self.cascade is not None:
            self.parameters = parameters_of_last_blocks(policy.model, self.cascade.blocks)
        self.path = job.directions_file

    @property
    def prepared(self) -> list[Path]:
        return [self.path]

    def prepare(self, validation: ValidationGroups, meter: DriftMeter, progress: Progress) -> Mapping[str, float]:
        if not self.path.exists():  # the other pass of a cascade may have left them
            with checkpointing(self.policy.model, self.config.gradient_checkpointing, reentrant=True):
                directions = validation_directions(
                    self.policy,
                    validation,
                    scored_parameters(self.policy.model),
                    temperature=self.job.temperature,
                    tokens_per_micro_batch=self.job.tokens_per_micro_batch,
                    progress=progress,
                    adam=self.config.geometry == "adam",
                    meter=meter,
                )
            directions.save(self.path)
        self.load()
        return dict(zip(self.directions.names, self.directions.norms(), strict=True))

    def load(self) -> None:
        whole = Directions.load(self.path, tuple(self.job.validation), self.policy.device)
        self.directions = whole.over(scored_parameters(self.policy.model), self.parameters)

    def score(self, groups: Sequence[RolloutGroup], meter: DriftMeter, progress: Progress) -> tuple[Products, Keep]:
        # The cheap pass ends above the first of its blocks; checkpoints would lead it down to the embeddings.
        with checkpointing(
            self.policy.model, self.config.gradient_checkpointing and self.cascade is None, reentrant=True
        ):
            products = exact_products(
                self.policy,
                groups,
                self.directions,
                self.parameters,
                temperature=self.job.temperature,
                tokens_per_micro_batch=self.job.tokens_per_micro_batch,
                trajectories=None if self.cascade is None else self.cascade.trajectories,
                progress=progress,
                meter=meter,
            )
        return products, {kind: lambda: self._per_token(groups) for kind in self.job.kinds_of_shard}

    def _per_token(self, groups: Sequence[RolloutGroup]) -> pa.Table:
        found = token_derivatives(
            self.policy,
            [trajectory for group in groups for trajectory, _ in weighted_trajectories(group)],
            [self.directions.derivative(j, self.parameters) for j in range(len(self.directions.names))],
            temperature=self.job.temperature,
            tokens_per_micro_batch=self.job.tokens_per_micro_batch,
        )
        return per_token_table(found, self.directions.names)


def _plain_dots(g: Gradient, directions: Directions) -> tuple[torch.Tensor, torch.Tensor]:
    """As `packed_dots` gives them, of one whole gradient."""
    if directions.geometry is not None:
        g = directions.geometry.scaled(g)
    pairs = [(v_VD, part.reshape(-1)) for v_VD, part in zip(directions.values_VD, g, strict=True)]
    dots_V = torch.stack([v_VD @ part for v_VD, part in pairs]).double().sum(0)
    squared_norm = torch.stack([part @ part for _, part in pairs]).double().sum()
    return dots_V.cpu()[None], squared_norm.cpu()[None]
