"""Sampling with vLLM in this process: its own copy of the weights, on this machine's GPUs or, slowly, on its CPU."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pipeline_lib.config import VllmEngine as Config
from pipeline_lib.policy import Policy
from pipeline_lib.rollout.engine import Completion, SamplingParams, make_completion

# The distribution sampled from has probability 0 there; vLLM knows no -inf, and e^-100 is below float32's sums.
SUPPRESSED = -100.0


def vllm_request(policy: Policy, params: SamplingParams, seed: int | None) -> dict[str, Any]:
    """What vLLM is asked for, by the names of its SamplingParams and of its server's API alike."""
    return {
        "n": params.n,
        "temperature": params.temperature,
        # What is left open, a server fills from the model's own generation config.
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "max_tokens": params.max_tokens,
        "logprobs": 0,
        # All stop tokens are ours to name, and each stays in the completion.
        "ignore_eos": True,
        "stop_token_ids": list(policy.eos_token_ids),
        "logit_bias": dict.fromkeys(policy.suppressed_token_ids, SUPPRESSED) or None,
        "seed": seed,
    }


def request_seed(seed: int, prompt: int) -> int:
    """Of the request for the prompt of that number. vLLM takes the seeds that follow for its samples, one each."""
    digest = hashlib.sha256(f"{seed}:{prompt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


class VllmEngine:
    """Loads the policy from the directory that it came from; `load_weights` brings in what it has learned since."""

    def __init__(self, policy: Policy, config: Config, *, max_model_tokens: int) -> None:
        on_cpu = policy.device.type == "cpu"
        if on_cpu:
            # In this process weights can be handed over, and one generator makes all the draws.
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(config.cpu_cache_gib))
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        try:
            import vllm
        except ImportError:
            raise ValueError(
                "generation.engine=vllm: vllm is not installed; `make vllm` installs its CPU build, "
                "`VLLM=vllm make vllm` the one for GPUs; or set generation.engine: transformers"
            ) from None
        self._policy, self._vllm, self._on_cpu = policy, vllm, on_cpu
        self._llm = vllm.LLM(
            model=policy.model.name_or_path,
            dtype=str(policy.dtype).removeprefix("torch."),
            tensor_parallel_size=config.tensor_parallel,
            data_parallel_size=config.data_parallel,
            gpu_memory_utilization=config.memory_share,
            enforce_eager=not config.compile,
            max_model_len=max_model_tokens,
            # Of what is sampled from, temperature and all, and with no default of the model's own generation config.
            logprobs_mode="processed_logprobs",
            generation_config="vllm",
            seed=0,
            disable_log_stats=True,
            **({"distributed_executor_backend": "uni"} if on_cpu else {}),
        )

    def generate(
        self, prompts_token_ids: Sequence[Sequence[int]], params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        requests = [self._request(params, request_seed(seed, i)) for i in range(len(prompts_token_ids))]
        prompts = [{"prompt_token_ids": list(prompt)} for prompt in prompts_token_ids]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            answers = self._llm.generate(prompts, requests, use_tqdm=False)
        return [[self._completion(output) for output in answer.outputs] for answer in answers]

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take `weights` for the copy's own, by the names of the model's state dict, a tied head's included."""
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights.items())})
        self._llm.reset_prefix_cache()  # it is of the weights before

    def close(self) -> None:
        """Free its memory, so that another can be made in this process."""
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        cleanup_dist_env_and_memory()

    def _request(self, params: SamplingParams, seed: int) -> Any:
        # A CPU has one generator for all requests: a seed of a request's own ends vLLM there.
        own_seed = None if self._on_cpu else seed
        return self._vllm.SamplingParams(**vllm_request(self._policy, params, own_seed), detokenize=False)

    def _completion(self, output: Any) -> Completion:
        token_ids = tuple(output.token_ids)
        logprobs = tuple(entry[token].logprob for token, entry in zip(token_ids, output.logprobs, strict=True))
        return make_completion(self._policy, token_ids, logprobs)
