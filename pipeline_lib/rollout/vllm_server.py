"""Sampling from a vLLM server that runs elsewhere, by its OpenAI-compatible API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import torch
from safetensors.torch import save_file

from pipeline_lib.config import VllmServer as Config
from pipeline_lib.policy import Policy
from pipeline_lib.rollout.engine import Completion, EngineFailed, EngineOverloaded, SamplingParams, make_completion
from pipeline_lib.rollout.vllm_engine import request_seed, vllm_request


class VllmServerEngine:
    """One request a prompt, as many at once as fit into `batch_size` sequences."""

    def __init__(self, policy: Policy, config: Config) -> None:
        self._policy, self._config = policy, config
        self._client = httpx.Client(base_url=config.base_url.rstrip("/"), timeout=config.timeout_seconds)
        self._model = self._ask("GET", "/v1/models")["data"][0]["id"]

    def generate(
        self, prompts_token_ids: Sequence[Sequence[int]], params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        at_once = max(1, params.batch_size // params.n)
        with ThreadPoolExecutor(at_once) as pool:
            answers = pool.map(
                lambda numbered: self._complete(numbered[1], params, request_seed(seed, numbered[0])),
                enumerate(prompts_token_ids),
            )
            return list(answers)

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """By a directory that the server sees under the same path, and the calls of its development mode."""
        if self._config.shared_directory is None:
            raise EngineFailed(
                "generation.engine.shared_directory is not set: a server takes new weights from a directory that both "
                "machines see under one path; set it, or roll out with engine: vllm"
            )
        with TemporaryDirectory(dir=self._config.shared_directory) as directory:
            tensors = {name: tensor.detach().contiguous().clone() for name, tensor in weights.items()}
            save_file(tensors, str(Path(directory) / "model.safetensors"))
            reload = {"method": "reload_weights", "kwargs": {"weights_path": directory}}
            self._ask("POST", "/collective_rpc", reload)
            self._ask("POST", "/reset_prefix_cache")

    def close(self) -> None:
        self._client.close()

    def _complete(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> list[Completion]:
        request = vllm_request(self._policy, params, seed if self._config.seeded else None)
        request |= {"model": self._model, "prompt": list(prompt), "return_token_ids": True}
        answer = self._ask("POST", "/v1/completions", request)
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        completions = [self._completion(choice) for choice in choices]
        if len(completions) != params.n:
            raise EngineFailed(
                f"{self._config.base_url}: the server gives {len(completions)} completions of a prompt where "
                f"n={params.n} were asked for; a group must be whole, so let the server give as many"
            )
        return completions

    def _completion(self, choice: Mapping[str, Any]) -> Completion:
        token_ids, logprobs = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
        if not token_ids or not logprobs or len(token_ids) != len(logprobs) or None in logprobs:
            raise EngineFailed(
                f"{self._config.base_url}: the server gives no token ids with log-probs, which training needs; use "
                "vLLM 0.32 or newer"
            )
        return make_completion(self._policy, tuple(token_ids), tuple(logprobs))

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            answer = self._client.request(method, path, json=body)
        except httpx.TimeoutException as error:
            raise EngineOverloaded(
                f"{self._config.base_url}{path}: no answer within timeout_seconds={self._config.timeout_seconds:g}"
            ) from error
        except httpx.TransportError as error:
            raise EngineFailed(f"{self._config.base_url}{path}: {error!r}; is the server up?") from error
        if answer.status_code == 404:
            raise EngineFailed(
                f"{self._config.base_url}{path}: not found; is it vLLM's address, without /v1, and does it run with "
                "VLLM_SERVER_DEV_MODE=1, which new weights need?"
            )
        if answer.is_error:
            kind = EngineOverloaded if answer.is_server_error or answer.status_code == 429 else EngineFailed
            raise kind(f"{self._config.base_url}{path}: {answer.status_code} {answer.text[:500]}")
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise EngineFailed(
                f"{self._config.base_url}{path}: the answer is not JSON: {answer.text[:200]!r}; is it vLLM's address?"
            ) from None
