"""Sampling from the policy's own weights: what has ended leaves the batch, and waiting prompts take its place."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from pipeline_lib.policy import Policy
from pipeline_lib.policy.logprobs import sampling_logits
from pipeline_lib.rollout.draws import choose, draw_key, uniforms
from pipeline_lib.rollout.engine import Completion, SamplingParams, make_completion
from pipeline_lib.rollout.row_cache import RowCache, rows_beside
from pipeline_lib.rollout.shared_heads import shared_heads

ENDED_SHARE = 1 / 8
"""Of a batch's rows: when so many have ended, it pays to copy the others together."""


@dataclass
class Draft:
    """A completion on its way; `key` is what its draws start from."""

    key: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False


@dataclass(frozen=True)
class Piece:
    """A prompt and those of its completions that begin together."""

    prompt_token_ids: Sequence[int]
    drafts: Sequence[Draft]


@dataclass
class Batch:
    """Rows that are decoded together, left-padded, so that their last tokens stand in one column.

    `token_B` was sampled and not yet run through the policy; it is number `position_B` of its sequence, counted from 0,
    and the cache holds the `position_B` tokens before it.
    """

    drafts: list[Draft]
    key_B: torch.Tensor
    cache: RowCache
    token_B: torch.Tensor
    position_B: torch.Tensor

    def live(self) -> list[int]:
        return [row for row, draft in enumerate(self.drafts) if not draft.ended]


class TransformersEngine:
    """Decodes with a KV cache on the policy's own device; no copy of the weights. A prompt is run through it once.

    What is sampled is a function of (seed, prompt's index, sample's index, position), up to the rounding of the
    logits: neither `batch_size` nor the other prompts take part. Raises ValueError for a model that keeps more of its
    past than keys and values.
    """

    def __init__(self, policy: Policy):
        layers = DynamicCache(config=policy.model.config).layers
        if policy.model._is_stateful or not {*map(type, layers)} <= {DynamicLayer, DynamicSlidingWindowLayer}:
            raise ValueError(
                f"model_type={policy.model.config.model_type}: the transformers engine decodes models whose past is "
                "keys and values alone, and this one keeps a state of another kind; set generation.engine: vllm"
            )
        self.policy = policy

    @torch.no_grad()
    def generate(
        self, prompts_token_ids: Sequence[Sequence[int]], params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        drafts = [[Draft(draw_key(seed, i, k)) for k in range(params.n)] for i in range(len(prompts_token_ids))]
        waiting = deque(_pieces(prompts_token_ids, drafts, params.batch_size))
        batch: Batch | None = None
        with self._sampling_mode():
            while waiting or batch:
                if batch is None or len(batch.live()) <= (1 - ENDED_SHARE) * len(batch.drafts):
                    batch = self._turned_over(batch, waiting, params)
                else:
                    self._step(batch, params)
        return [
            [make_completion(self.policy, tuple(draft.token_ids), tuple(draft.logprobs)) for draft in group]
            for group in drafts
        ]

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Nothing to do: the policy's weights are the engine's own."""

    def close(self) -> None:
        """Nothing to do: the policy outlives it."""

    def _turned_over(self, batch: Batch | None, waiting: deque[Piece], params: SamplingParams) -> Batch | None:
        """Those rows of the batch that go on, and as many waiting prompts as there is room for."""
        parts = [] if batch is None else [(batch, batch.live())]
        room = params.batch_size - sum(len(live) for _, live in parts)
        joining: list[Piece] = []
        while waiting and len(waiting[0].drafts) <= room:
            joining.append(waiting.popleft())
            room -= len(joining[-1].drafts)
        if joining:
            begun = self._begun(joining, params)
            parts.append((begun, begun.live()))
        parts = [(part, live) for part, live in parts if live]
        return _together(parts) if parts else None

    def _begun(self, pieces: Sequence[Piece], params: SamplingParams) -> Batch:
        """The pieces' prompts run through the policy, and the first token of each of their completions sampled."""
        device = self.policy.device
        lengths = [len(piece.prompt_token_ids) for piece in pieces]
        P = max(lengths)
        padded = [[self.policy.pad_token_id] * (P - len(p.prompt_token_ids)) + list(p.prompt_token_ids) for p in pieces]
        length_N = torch.tensor(lengths, device=device)
        place_NP = torch.arange(P, device=device) - (P - length_N)[:, None]
        cache = RowCache()
        logits_NV = self._logits(torch.tensor(padded, device=device), place_NP >= 0, place_NP.clamp(min=0), cache)

        drafts = [draft for piece in pieces for draft in piece.drafts]
        row_B = torch.tensor([row for row, piece in enumerate(pieces) for _ in piece.drafts], device=device)
        key_B = torch.tensor([draft.key for draft in drafts], device=device)
        token_B = self._sampled(drafts, key_B, length_N[row_B], logits_NV[row_B], params)
        return Batch(drafts, key_B, rows_beside([(cache, row_B)], P), token_B, length_N[row_B])

    def _step(self, batch: Batch, params: SamplingParams) -> None:
        """One more token for each row."""
        steps_back_S = torch.arange(batch.cache.get_seq_length(), -1, -1, device=self.policy.device)
        mask_BS = steps_back_S <= batch.position_B[:, None]
        logits_BV = self._logits(batch.token_B[:, None], mask_BS, batch.position_B[:, None], batch.cache)
        batch.position_B = batch.position_B + 1
        batch.token_B = self._sampled(batch.drafts, batch.key_B, batch.position_B, logits_BV, params)

    def _logits(
        self, input_ids_BQ: torch.Tensor, mask_BS: torch.Tensor, position_ids_BQ: torch.Tensor, cache: RowCache
    ) -> torch.Tensor:
        """[B, V] logits after the last of the input tokens, which are added to the cache."""
        output = self.policy.model(
            input_ids=input_ids_BQ,
            attention_mask=mask_BS,
            position_ids=position_ids_BQ,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits_BV: torch.Tensor = output.logits[:, -1]
        return logits_BV

    def _sampled(
        self,
        drafts: Sequence[Draft],
        key_B: torch.Tensor,
        position_B: torch.Tensor,
        logits_BV: torch.Tensor,
        params: SamplingParams,
    ) -> torch.Tensor:
        """[B] token ids, which the drafts that have not ended take for their next."""
        logits_BV = sampling_logits(self.policy, logits_BV, params.temperature)
        token_B, logprob_B = choose(logits_BV, uniforms(key_B, position_B))
        for draft, token, logprob in zip(drafts, token_B.tolist(), logprob_B.tolist(), strict=True):
            if not draft.ended:
                draft.token_ids.append(token)
                draft.logprobs.append(logprob)
                draft.ended = token in self.policy.eos_token_ids or len(draft.token_ids) == params.max_tokens
        return token_B

    @contextmanager
    def _sampling_mode(self) -> Iterator[None]:
        model = self.policy.model
        training = model.training
        model.train(False)
        try:
            # One block for all steps: autocast keeps its copies of the weights until it ends.
            with shared_heads(model), self.policy.autocast():
                yield
        finally:
            model.train(training)


def _pieces(
    prompts_token_ids: Sequence[Sequence[int]], drafts: Sequence[Sequence[Draft]], batch_size: int
) -> Iterator[Piece]:
    """Longest prompts first, since memory that is too small should show at once; a larger group is split."""
    for prompt, group in sorted(zip(prompts_token_ids, drafts, strict=True), key=lambda pair: -len(pair[0])):
        for start in range(0, len(group), batch_size):
            yield Piece(prompt, group[start : start + batch_size])


def _together(parts: Sequence[tuple[Batch, list[int]]]) -> Batch:
    """The named rows of each batch as one, in no more columns than the longest of them needs."""
    first, rows = parts[0]
    if len(parts) == 1 and len(rows) == len(first.drafts):
        return first
    row_B_of = [torch.tensor(rows, device=batch.token_B.device) for batch, rows in parts]
    chosen = list(zip((batch for batch, _ in parts), row_B_of, strict=True))
    position_B = torch.cat([batch.position_B[row_B] for batch, row_B in chosen])
    return Batch(
        drafts=[batch.drafts[row] for batch, rows in parts for row in rows],
        key_B=torch.cat([batch.key_B[row_B] for batch, row_B in chosen]),
        cache=rows_beside([(batch.cache, row_B) for batch, row_B in chosen], int(position_B.max())),
        token_B=torch.cat([batch.token_B[row_B] for batch, row_B in chosen]),
        position_B=position_B,
    )
