"""The libraries that influence_peers.py measures, each by its own route to per-sample gradient products.

Run where the libraries are, without rlsift. Suffixes as in peers_pool.py.
"""

from __future__ import annotations

import tempfile
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from peers_pool import Peer, Pool, Score, autograd, packed_weighted_logprob, rlsift, weighted_logprob
from torch import nn


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
