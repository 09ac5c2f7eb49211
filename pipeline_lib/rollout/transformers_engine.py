"""Sampling with transformers' own `generate`, recording exact log-probs of what was sampled."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from transformers import DynamicCache, GenerationConfig, LogitsProcessor, LogitsProcessorList

from pipeline_lib.policy import Policy
from pipeline_lib.rollout.engine import Completion, SamplingParams, make_completion


class RecordedSampling(LogitsProcessor):
    """Makes the logits into the log-probs that are sampled from, and notes those of the tokens chosen.

    Only the last step's log-probs are held, so memory is B × V however long the completions are. `generate`
    shows what it sampled one step later, as the last column of `input_ids_BS`.
    """

    def __init__(self, temperature: float, suppressed_token_ids: Sequence[int]):
        self.temperature = temperature
        self.suppressed = list(suppressed_token_ids)
        self.logprobs_BV: torch.Tensor | None = None
        self.chosen_B: list[torch.Tensor] = []

    def __call__(self, input_ids_BS: torch.LongTensor, scores_BV: torch.FloatTensor) -> torch.FloatTensor:
        self.note_last_token(input_ids_BS)
        logits_BV = scores_BV / self.temperature
        logits_BV[:, self.suppressed] = float("-inf")
        self.logprobs_BV = torch.log_softmax(logits_BV, dim=-1)
        return self.logprobs_BV  # type: ignore[return-value]

    def note_last_token(self, input_ids_BS: torch.Tensor) -> None:
        if self.logprobs_BV is not None:
            self.chosen_B.append(self.logprobs_BV.gather(-1, input_ids_BS[:, -1:]).squeeze(-1))


class TransformersEngine:
    """Decodes left-padded batches with a KV cache on the policy's own device; no copy of the weights."""

    def __init__(self, policy: Policy):
        self.policy = policy

    @torch.no_grad()
    def generate(
        self, prompts_token_ids: Sequence[Sequence[int]], params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        by_length = sorted(range(len(prompts_token_ids)), key=lambda i: len(prompts_token_ids[i]))
        completions: list[list[Completion]] = [[] for _ in prompts_token_ids]
        with self._sampling_mode(params):
            for batch_index, (prompts, n) in enumerate(_batches(by_length, params)):
                with self._own_randomness(seed, batch_index):
                    sampled = self._generate_batch([prompts_token_ids[i] for i in prompts], n, params)
                owners = [prompt for prompt in prompts for _ in range(n)]
                for prompt, completion in zip(owners, sampled, strict=True):
                    completions[prompt].append(completion)
        return completions

    def _generate_batch(self, prompts: Sequence[Sequence[int]], n: int, params: SamplingParams) -> list[Completion]:
        """`n` completions of each prompt, one prompt's together. The prompt is run through the policy once."""
        policy = self.policy
        P = max(len(p) for p in prompts)
        padded = [[policy.pad_token_id] * (P - len(p)) + list(p) for p in prompts]
        input_ids_BP = torch.tensor(padded, device=policy.device)
        attention_mask_BP = torch.tensor([[0] * (P - len(p)) + [1] * len(p) for p in prompts], device=policy.device)
        recorder = RecordedSampling(params.temperature, policy.suppressed_token_ids)
        with policy.autocast():
            sequences_BS = policy.model.generate(  # type: ignore[operator]
                input_ids=input_ids_BP.repeat_interleave(n, dim=0),
                attention_mask=attention_mask_BP.repeat_interleave(n, dim=0),
                past_key_values=self._shared_prefill(input_ids_BP, attention_mask_BP, n),
                logits_processor=LogitsProcessorList([recorder]),
            )
        recorder.note_last_token(sequences_BS)
        return self._completions(sequences_BS[:, P:].tolist(), torch.stack(recorder.chosen_B, dim=1).tolist())

    def _shared_prefill(
        self, input_ids_BP: torch.Tensor, attention_mask_BP: torch.Tensor, n: int
    ) -> DynamicCache | None:
        """The KV cache of all but the last prompt token, each row `n` times; `generate` goes on from there."""
        if n == 1 or input_ids_BP.shape[1] == 1:
            return None
        cache = DynamicCache(config=self.policy.model.config)
        self.policy.model(
            input_ids=input_ids_BP[:, :-1],
            attention_mask=attention_mask_BP[:, :-1],
            position_ids=(attention_mask_BP[:, :-1].cumsum(-1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache.batch_repeat_interleave(n)
        return cache

    def _completions(self, rows: list[list[int]], logprob_rows: list[list[float]]) -> list[Completion]:
        eos = set(self.policy.eos_token_ids)
        sampled = [row[: next((t + 1 for t, token in enumerate(row) if token in eos), None)] for row in rows]
        return [
            make_completion(self.policy, tuple(tokens), tuple(logprobs[: len(tokens)]))
            for tokens, logprobs in zip(sampled, logprob_rows, strict=True)
        ]

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Nothing to do: the policy's weights are the engine's own."""

    def close(self) -> None:
        """Nothing to do: the policy outlives it."""

    @contextmanager
    def _sampling_mode(self, params: SamplingParams) -> Iterator[None]:
        """Evaluation mode, and a generation config of our own.

        `generate` fills whatever a passed config leaves open from the model's own generation config (top_k,
        repetition_penalty, min_p, ...), so that one is put aside: the log-probs must be of what is sampled.
        """
        model, policy = self.policy.model, self.policy
        training, generation_config = model.training, model.generation_config
        model.train(False)
        model.generation_config = GenerationConfig(
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=params.max_tokens,
            eos_token_id=list(policy.eos_token_ids),
            pad_token_id=policy.pad_token_id,
            use_cache=True,
        )
        try:
            yield
        finally:
            model.generation_config = generation_config
            model.train(training)

    @contextmanager
    def _own_randomness(self, seed: int, batch_index: int) -> Iterator[None]:
        """Random numbers of this batch alone; the global generators come out as they went in."""
        device = self.policy.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            digest = hashlib.sha256(f"{seed}:{batch_index}".encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
            yield


def _batches(prompts: Sequence[int], params: SamplingParams) -> Iterator[tuple[Sequence[int], int]]:
    """(prompts, completions of each) within `batch_size` sequences; a larger group is split."""
    at_once = max(1, params.batch_size // params.n)
    for start in range(0, len(prompts), at_once):
        for done in range(0, params.n, params.batch_size):
            yield prompts[start : start + at_once], min(params.n - done, params.batch_size)
