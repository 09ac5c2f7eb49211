"""The optional packages that a config asks for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from pipeline_lib.config.prompts import DatasetSource
from pipeline_lib.config.run import RunConfig
from pipeline_lib.config.sampling import NoPrior, PosteriorSampler


def missing_extras(config: RunConfig) -> list[str]:
    """In words, what must be installed before the run can come to its end."""
    return [
        f"{key} needs {package}, which is not installed: "
        + ("make vllm, or VLLM=vllm make vllm for a GPU" if package == "vllm" else f'pip install -e ".[{extra}]"')
        for key, package, extra in _needed(config)
        if find_spec(package) is None
    ]


def _needed(config: RunConfig) -> Iterator[tuple[str, str, str]]:
    """(key, package, extra)"""
    prompts, train = config.prompts, config.train
    sources = [prompts.train, *prompts.validation.values(), *prompts.evaluation.values()]
    if any(isinstance(source, DatasetSource) for entries in sources for source in entries):
        yield "prompts (type: dataset)", "datasets", "datasets"
    if config.generation.engine.type == "vllm":
        yield "generation.engine=vllm", "vllm", "vllm"
    if train.lora is not None:
        yield "train.lora", "peft", "lora"
    if train.backend.type == "deepspeed":
        yield "train.backend.type=deepspeed", "deepspeed", "deepspeed"
    if isinstance(train.sampler, PosteriorSampler) and not isinstance(train.sampler.prior, NoPrior):
        yield "train.sampler.prior", "sklearn", "difficulty"
        if train.sampler.prior.embedding_model is not None:
            yield "train.sampler.prior.embedding_model", "sentence_transformers", "embeddings"
    if config.diagnosis.embedding_model is not None:
        yield "diagnosis.embedding_model", "sentence_transformers", "embeddings"
    for tracker in config.tracking:
        yield f"tracking ({tracker.type})", tracker.type, tracker.type  # package and extra have its name
    runner = config.task_runner
    if runner.type != "local":
        yield f"task_runner.type={runner.type}", f"prefect_{runner.type}", runner.type
