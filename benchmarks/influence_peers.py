"""rlsift's exact influence against libraries that score per-sample gradients, on the same gradients.

    python benchmarks/influence_peers.py run DIR --peers-python PEERS/bin/python   # everything, one after the other
    python benchmarks/influence_peers.py make DIR          # policy, pool, reference; rlsift and plain autograd measured
    PEERS/bin/python benchmarks/influence_peers.py peer NAME DIR                   # one library at one batch size
    python benchmarks/influence_peers.py table DIR         # markdown, and benchmarks/results/influence_peers.json

`make` and `table` run where rlsift is installed, `peer` where the libraries are: see benchmarks/README.md.

The objective of a prompt is the weighted sum of its tokens' ratios π/β. The behaviour log-probs are the policy's
own, so that its gradient is that of Σ weight · log π, which every library can be given.
Suffixes: N prompts, K trajectories of each, V queries of R trajectories, S tokens, T of them the completion,
B samples, P parameters (one entry for each tensor).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging as transformers_logging

transformers_logging.disable_progress_bar()

MEASURE_AGAIN_WITHIN_S = 60.0
RESULTS = Path(__file__).parent / "results" / "influence_peers.json"
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


# --- in rlsift's environment ------------------------------------------------------------------------------------


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


# --- in either --------------------------------------------------------------------------------------------------


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


# --- in the libraries' environment ------------------------------------------------------------------------------


def _traker_output() -> Any:
    from trak.modelout_functions import AbstractModelOutput

    class WeightedLogprob(AbstractModelOutput):
        def __init__(self) -> None:
            pass

        @staticmethod
        def get_output(
            model: nn.Module, weights: Any, buffers: Any, tokens_BS: torch.Tensor, weights_BT: torch.Tensor
        ) -> torch.Tensor:
            def forward(**inputs: Any) -> Any:
                return torch.func.functional_call(model, (weights, buffers), args=(), kwargs=inputs)

            return weighted_logprob(forward, tokens_BS, weights_BT)

        def get_out_to_loss_grad(self, model: nn.Module, weights: Any, buffers: Any, batch: Any) -> torch.Tensor:
            return torch.ones(len(batch[0]), 1)

    return WeightedLogprob()


def traker(pool: Pool, batch: int) -> Score:
    """Its gradient computer, no-op projector and product; TRAKer itself would keep all N x P numbers on disk."""
    from trak.gradient_computers import FunctionalGradientComputer
    from trak.projectors import NoOpProjector
    from trak.score_computers import BasicScoreComputer

    D = sum(parameter.numel() for parameter in pool.model.parameters())
    computer = FunctionalGradientComputer(pool.model, _traker_output(), D, torch.float32, "cpu")
    projector = NoOpProjector(device="cpu")
    score_computer = BasicScoreComputer(torch.float32, "cpu")

    def gradients_BD(tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return projector.project(computer.compute_per_sample_grad(batch=(tokens, weights)), model_id=0)

    def score() -> np.ndarray:
        N, V = len(pool.tokens_NKS), len(pool.query_tokens_VRS)
        directions_VD = gradients_BD(pool.query_tokens_VRS, pool.query_weights_VRT)
        dots_NV = torch.zeros(N, V)
        for rows in pool.batches(batch):
            g_BD = gradients_BD(pool.tokens_NKS[rows], pool.weights_NKT[rows])
            score_computer.get_scores(g_BD, directions_VD, accumulator=dots_NV[rows])
        return dots_NV.numpy()

    return score


def traker_projected(pool: Pool, batch: int) -> Score:
    """Its features at their default dimension. The queries are featurised as further samples, since its own
    scores hold (ΦᵀΦ)⁻¹; its features are divided by √P and not by √dimension, which is put right here."""
    import logging

    from trak import TRAKer

    def score() -> np.ndarray:
        N, V = len(pool.tokens_NKS), len(pool.query_tokens_VRS)
        with tempfile.TemporaryDirectory() as save_dir:
            traker = TRAKer(
                pool.model,
                _traker_output(),
                train_set_size=N + V,
                save_dir=save_dir,
                device="cpu",
                use_half_precision=False,
                logging_level=logging.WARNING,
            )
            traker.load_checkpoint(pool.model.state_dict(), model_id=0)
            for rows in pool.batches(batch):
                inds = np.arange(rows.start, rows.stop)
                traker.featurize(batch=(pool.tokens_NKS[rows], pool.weights_NKT[rows]), inds=inds)
            traker.featurize(batch=(pool.query_tokens_VRS, pool.query_weights_VRT), inds=np.arange(N, N + V))
            features = np.array(traker.saver.current_store["grads"])
        return features[:N] @ features[N:].T * (traker.num_params / traker.proj_dim)

    return score


def _dattri(pool: Pool, batch: int, projector_kwargs: dict[str, Any]) -> Score:
    from dattri.algorithm.tracin import TracInAttributor
    from dattri.task import AttributionTask
    from torch.utils.data import DataLoader, TensorDataset

    def loss(parameters: Any, sample: Any) -> torch.Tensor:
        def forward(**inputs: Any) -> Any:
            return torch.func.functional_call(pool.model, parameters, args=(), kwargs=inputs)

        return weighted_logprob(forward, *sample)

    def score() -> np.ndarray:
        task = AttributionTask(loss_func=loss, model=pool.model, checkpoints=pool.model.state_dict())
        attributor = TracInAttributor(
            task, weight_list=torch.ones(1), normalized_grad=False, projector_kwargs=projector_kwargs
        )
        prompts = TensorDataset(pool.tokens_NKS, pool.weights_NKT)
        queries = TensorDataset(pool.query_tokens_VRS, pool.query_weights_VRT)
        return attributor.attribute(
            DataLoader(prompts, batch_size=batch), DataLoader(queries, batch_size=len(queries))
        ).numpy()

    return score


def dattri(pool: Pool, batch: int) -> Score:
    return _dattri(pool, batch, {"proj_type": "identity"})


def dattri_blocks(pool: Pool, batch: int) -> Score:
    """Its hooks on linear layers with neither sparsifier nor projector; a prompt is one packed row. It keeps the
    gradients of the whole pool, N x P numbers."""
    from dattri.algorithm.block_projected_if.block_projected_if import BlockProjectedIFAttributor
    from dattri.task import AttributionTask
    from torch.utils.data import DataLoader

    class WithLoss(nn.Module):
        """It takes the loss of a query from the model's output, not from the task."""

        def __init__(self, policy: nn.Module) -> None:
            super().__init__()
            self.policy = policy

        def forward(self, tokens: torch.Tensor, weights: torch.Tensor) -> SimpleNamespace:
            # It takes the loss for a mean over the batch, and multiplies by the batch's size.
            return SimpleNamespace(loss=packed_weighted_logprob(self.policy, tokens, weights) / len(tokens))

    def loss(model: nn.Module, sample: dict[str, torch.Tensor], device: str) -> torch.Tensor:
        return model(**sample).loss

    def loader(tokens: torch.Tensor, weights: torch.Tensor, batch_size: int) -> DataLoader:
        rows = [{"tokens": t, "weights": w} for t, w in zip(tokens, weights, strict=True)]
        return DataLoader(rows, batch_size=batch_size)  # type: ignore[arg-type]

    model = WithLoss(pool.model)

    def score() -> np.ndarray:
        task = AttributionTask(loss_func=loss, model=model, checkpoints=model.state_dict())
        identity = {"device": "cpu", "proj_dim": -1, "proj_max_batch_size": 64, "proj_type": "identity"}
        queries = loader(pool.query_tokens_VRS, pool.query_weights_VRT, len(pool.query_tokens_VRS))
        prompts = loader(pool.tokens_NKS, pool.weights_NKT, batch)
        with tempfile.TemporaryDirectory() as cache_dir:  # it takes up what an earlier run left there
            attributor = BlockProjectedIFAttributor(
                task, hessian="Identity", sparsifier_kwargs=identity, projector_kwargs=identity, cache_dir=cache_dir
            )
            attributor.cache(prompts)
            return attributor.attribute(prompts, queries).numpy()

    return score


def dattri_projected(pool: Pool, batch: int) -> Score:
    return _dattri(pool, batch, {})


def kronfluence(pool: Pool, batch: int) -> Score:
    """Pairwise scores, strategy identity. A row is a trajectory, and a prompt's score the sum over its own; a
    query is one packed row, so that one pass over the pool serves all."""
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments, ScoreArguments
    from kronfluence.task import Task
    from torch.utils.data import TensorDataset

    class WeightedLogprob(Task):
        def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> torch.Tensor:
            return weighted_logprob(model, *batch)

        def compute_measurement(self, batch: Any, model: nn.Module) -> torch.Tensor:
            return packed_weighted_logprob(model, *batch)

    N, K, _ = pool.tokens_NKS.shape
    task = WeightedLogprob()
    model = prepare_model(pool.model, task)
    trajectories = TensorDataset(pool.tokens_NKS.flatten(0, 1), pool.weights_NKT.flatten(0, 1))
    queries = TensorDataset(pool.query_tokens_VRS, pool.query_weights_VRT)
    output_dir = tempfile.mkdtemp(dir=pool.directory)
    analyzer = Analyzer("peers", model, task, cpu=True, disable_tqdm=True, output_dir=output_dir)
    analyzer.fit_all_factors("identity", trajectories, factor_args=FactorArguments(strategy="identity"))

    def score() -> np.ndarray:
        analyzer.compute_pairwise_scores(
            scores_name="scores",
            factors_name="identity",
            query_dataset=queries,
            train_dataset=trajectories,
            per_device_query_batch_size=len(queries),
            per_device_train_batch_size=batch * K,
            score_args=ScoreArguments(),
            overwrite_output_dir=True,
        )
        scores_VB = analyzer.load_pairwise_scores("scores")["all_modules"]
        return scores_VB.reshape(-1, N, K).sum(-1).T.numpy()

    return score


def bergson(pool: Pool, batch: int) -> Score:
    """Its in-memory collector, first with the summing builder for each query, then with the scorer. A prompt is
    one packed row."""
    from bergson.collector.in_memory_collector import InMemoryCollector
    from bergson.config.config import IndexConfig, PreprocessConfig
    from bergson.gradients import GradientProcessor
    from bergson.score.score_writer import InMemorySequenceScoreWriter
    from bergson.score.scorer import Scorer

    N, K, _ = pool.tokens_NKS.shape
    cfg = IndexConfig(run_path="unused")
    pool.model.requires_grad_(False)  # as its own worker does, so that nothing but the hooks forms gradients
    pool.model.get_input_embeddings().requires_grad_(True)

    def collect(collector: Any, indices: list[int], tokens_BRS: torch.Tensor, weights_BRT: torch.Tensor) -> None:
        with collector.with_batch(None):
            packed_weighted_logprob(pool.model, tokens_BRS, weights_BRT).backward()
        pool.model.zero_grad()
        collector.process_batch(indices, losses=torch.zeros(len(indices)))

    def collector_over(n: int, **kwargs: Any) -> Any:
        return InMemoryCollector(
            model=pool.model,
            data=[None] * n,  # type: ignore[arg-type]
            cfg=cfg,
            processor=GradientProcessor(include_bias=True),
            **kwargs,
        )

    def direction(tokens_RS: torch.Tensor, weights_RT: torch.Tensor) -> dict[str, torch.Tensor]:
        tokens_GKS, weights_GKT = tokens_RS.unflatten(0, (-1, K)), weights_RT.unflatten(0, (-1, K))
        collector = collector_over(len(tokens_GKS), preprocess_cfg=PreprocessConfig(aggregation="sum"))
        for start in range(0, len(tokens_GKS), batch):
            rows = slice(start, start + batch)
            indices = list(range(len(tokens_GKS)))[rows]
            collect(collector, indices, tokens_GKS[rows], weights_GKT[rows])
        collector.teardown()
        return collector.gradients

    def score() -> np.ndarray:
        queries = zip(pool.query_tokens_VRS, pool.query_weights_VRT, strict=True)
        directions = [direction(tokens_RS, weights_RT) for tokens_RS, weights_RT in queries]
        modules = list(directions[0])
        writer = InMemorySequenceScoreWriter(N, len(directions))
        query_grads = {name: torch.cat([d[name] for d in directions]) for name in modules}
        collector = collector_over(N, scorer=Scorer(query_grads, modules, writer, torch.device("cpu"), torch.float32))
        for rows in pool.batches(batch):
            indices = list(range(rows.start, rows.stop))
            collect(collector, indices, pool.tokens_NKS[rows], pool.weights_NKT[rows])
        collector.teardown()
        return collector.scores.numpy()

    return score


PEERS = {
    "rlsift": Peer("rlsift", rlsift, "exact, dots and norms"),
    "autograd": Peer("torch", autograd, "one prompt after the other, dots", one_by_one=True),
    "traker": Peer("traker", traker, "vmap(grad), NoOpProjector, get_scores"),
    "traker-projected": Peer("traker", traker_projected, "TRAKer.featurize, default dimension", one_batch=True),
    "dattri": Peer("dattri", dattri, "TracInAttributor, identity projection"),
    "dattri-blocks": Peer(
        "dattri", dattri_blocks, "BlockProjectedIFAttributor, identity, no projection", linear_only=True
    ),
    "dattri-projected": Peer("dattri", dattri_projected, "TracInAttributor, default projection", one_batch=True),
    "kronfluence": Peer("kronfluence", kronfluence, "pairwise scores, strategy identity", linear_only=True),
    "bergson": Peer("bergson", bergson, "InMemoryCollector, Scorer, no projection", linear_only=True),
}
HERE = ("autograd", "rlsift")


# --- measuring --------------------------------------------------------------------------------------------------


def measure(name: str, directory: Path, *, batch: int, repeats: int) -> None:
    """Writes measured/NAME-BATCH.json. Runs in a process of its own."""
    peer = PEERS[name]
    pool = load_pool(directory)
    score = peer.prepare(pool, batch)
    before = _memory_mib("VmRSS")
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < MEASURE_AGAIN_WITHIN_S:
        start = time.perf_counter()
        dots_NV = score()
        seconds.append(time.perf_counter() - start)
    reference = load_file(directory / "reference.safetensors")
    linear_P, entries_P = reference["linear_P"], reference["entries_P"]
    covered_P = linear_P if peer.linear_only else torch.ones_like(linear_P)
    _write_json(
        directory / "measured" / f"{name}-{batch}.json",
        {
            "name": name,
            "route": peer.route,
            "version": importlib.metadata.version(peer.package),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "batch_prompts": 1 if peer.one_by_one else batch,
            "seconds": seconds,
            "rss_before_mib": before,
            "rss_peak_mib": _memory_mib("VmHWM"),
            "parameters_covered": float(entries_P[covered_P].sum() / entries_P.sum()),
            "against_all": _agreement(dots_NV, reference["dots_NVP"].sum(-1).numpy()),
            "against_covered": _agreement(dots_NV, reference["dots_NVP"][..., covered_P].sum(-1).numpy()),
        },
    )


def _memory_mib(field: str) -> float:
    """Of this process from /proc. Not getrusage: ru_maxrss goes over from the parent that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def _agreement(found_NV: np.ndarray, expected_NV: np.ndarray) -> dict[str, float]:
    """The error is the largest over all entries relative to the largest entry; the rest are means over queries."""
    N = len(expected_NV)
    top = math.ceil(N / 10)
    ranks_found, ranks_expected = (values.argsort(0).argsort(0) for values in (found_NV, expected_NV))
    columns = list(zip(ranks_found.T, ranks_expected.T, strict=True))
    return {
        "error": float(np.abs(found_NV - expected_NV).max() / np.abs(expected_NV).max()),
        "spearman": float(np.mean([np.corrcoef(found, expected)[0, 1] for found, expected in columns])),
        "precision_at_10_percent": float(
            np.mean([np.mean(expected[found >= N - top] >= N - top) for found, expected in columns])
        ),
    }


def spawn(python: str, name: str, directory: Path, *, batch: int, repeats: int, threads: int) -> None:
    """One measurement in a fresh process; what it dies of is a result too."""
    options = {"--batch": batch, "--repeats": repeats, "--threads": threads}
    command = [
        python,
        __file__,
        "peer",
        name,
        str(directory),
        *(str(word) for pair in options.items() for word in pair),
    ]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or [f"exit status {done.returncode}"]
        content = {"name": name, "route": PEERS[name].route, "batch_prompts": batch, "failed": last[0].strip()}
        _write_json(directory / "measured" / f"{name}-{batch}.json", content)
    print(f"{name} batch {batch}: {'failed' if done.returncode else 'done'}", file=sys.stderr, flush=True)


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


# --- the table --------------------------------------------------------------------------------------------------


def table(directory: Path) -> str:
    """Each library at its fastest batch size, against rlsift at its own fastest."""
    measured = [json.loads(path.read_text()) for path in sorted((directory / "measured").glob("*.json"))]
    best: dict[str, dict[str, Any]] = {}
    for name in PEERS:
        candidates = [m for m in measured if m["name"] == name]
        ran = [m for m in candidates if "failed" not in m]
        if candidates:
            best[name] = min(ran, key=lambda m: min(m["seconds"])) if ran else candidates[0]
    unit = min(best["rlsift"]["seconds"])
    pool = load_file(directory / "pool.safetensors")
    reference = load_file(directory / "reference.safetensors")
    N, K, S = pool["tokens_NKS"].shape
    lengths_NV = torch.outer(reference["squared_norms_NP"].sum(-1), reference["squared_norms_VP"].sum(-1)).sqrt()
    cosines_NV = reference["dots_NVP"].sum(-1) / lengths_NV
    content = {
        "setting": {
            "parameters": int(reference["entries_P"].sum()),
            "prompts": N,
            "trajectories_per_prompt": K,
            "tokens_per_trajectory": S,
            "completion_tokens": pool["weights_NKT"].shape[-1],
            "queries": list(pool["query_rewards_VGK"].shape[:2]),
            "cosine_std": float(cosines_NV.std()),
            "processor": _processor(),
        },
        "best": best,
        "measured": measured,
    }
    _write_json(RESULTS, content)
    lines = [
        "| library | route | batch | time, s | ÷ rlsift | peak RSS, MiB | above the loaded model | parameters covered "
        "| error, all parameters | error, covered | Spearman | precision@10 % |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, m in best.items():
        if "failed" in m:
            lines.append(f"| {name} | {m['route']} | {m['batch_prompts']} | {m['failed']} |" + " |" * 8)
            continue
        seconds, whole, covered = min(m["seconds"]), m["against_all"], m["against_covered"]
        cells = [
            f"{name} {m['version']}",
            m["route"],
            str(m["batch_prompts"]),
            f"{seconds:.2f}",
            f"{seconds / unit:.2f}",
            f"{m['rss_peak_mib']:.0f}",
            f"{m['rss_peak_mib'] - m['rss_before_mib']:.0f}",
            f"{m['parameters_covered']:.1%}",
            f"{whole['error']:.1e}",
            f"{covered['error']:.1e}",
            f"{whole['spearman']:.4f}",
            f"{whole['precision_at_10_percent']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("run", "make", "peer", "table"):
        sub = commands.add_parser(command)
        if command == "peer":
            sub.add_argument("name", choices=PEERS)
            sub.add_argument("--batch", type=int, default=16, help="prompts in a micro-batch")
        sub.add_argument("directory", type=Path)
        sub.add_argument("--threads", type=int, default=2)
        if command in ("run", "make"):
            sub.add_argument("--seed", type=int, default=0)
            sub.add_argument("--prompts", type=int, default=64)
            sub.add_argument("--trajectories", type=int, default=4)
            sub.add_argument("--query-prompts", type=int, default=8, help="held-out prompts of each query")
            sub.add_argument("--prompt-tokens", type=int, default=32)
            sub.add_argument("--completion-tokens", type=int, default=32)
            sub.add_argument("--vocabulary", type=int, default=512)
            sub.add_argument("--hidden", type=int, default=256)
            sub.add_argument("--intermediate", type=int, default=832)
            sub.add_argument("--layers", type=int, default=6)
            sub.add_argument("--batches", type=int, nargs="+", default=[4, 16], help="each is measured")
        if command in ("run", "make", "peer"):
            sub.add_argument("--repeats", type=int, default=3, help="fewer, once a minute is spent")
        if command == "run":
            sub.add_argument("--peers-python", required=True, help="the interpreter that has the libraries")
            sub.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.command == "peer":
        measure(args.name, args.directory, batch=args.batch, repeats=args.repeats)
    if args.command in ("run", "make"):
        make(args.directory, args)
        there = [name for name in args.only if name not in HERE] if args.command == "run" else []
        for name in [*HERE, *there]:
            peer, python = PEERS[name], sys.executable if name in HERE else args.peers_python
            sizes = [1] if peer.one_by_one else [args.prompts] if peer.one_batch else args.batches
            for batch in sizes:
                spawn(python, name, args.directory, batch=batch, repeats=args.repeats, threads=args.threads)
    if args.command in ("run", "table"):
        print(table(args.directory))


if __name__ == "__main__":
    main()
