"""Rollouts: engines that sample completions, and the Parquet form of what they sampled."""

from pipeline_lib.config import Generation, VllmEngine, VllmServer
from pipeline_lib.policy import Policy
from pipeline_lib.rollout.agreement import EngineMismatch, check_agreement
from pipeline_lib.rollout.collect import Grade, Rollout, roll_out
from pipeline_lib.rollout.engine import Completion, Engine, EngineFailed, EngineOverloaded, SamplingParams
from pipeline_lib.rollout.parquet import (
    ROLLOUT_ENCODING,
    ROLLOUT_SCHEMA,
    groups_from_table,
    groups_to_table,
    read_groups,
    read_prompt_ids,
)
from pipeline_lib.rollout.stats import ROLLOUT_STATS_SCHEMA, rollout_stats
from pipeline_lib.rollout.transformers_engine import TransformersEngine


def make_engine(generation: Generation, policy: Policy) -> Engine:
    """Raises ValueError where its package is missing, EngineFailed, and EngineMismatch for a server's other weights."""
    wanted = generation.engine
    if isinstance(wanted, VllmEngine):
        from pipeline_lib.rollout.vllm_engine import VllmEngine as InProcess

        longest = generation.max_prompt_tokens + generation.max_tokens
        engine: Engine = InProcess(policy, wanted, max_model_tokens=longest)
    elif isinstance(wanted, VllmServer):
        from pipeline_lib.rollout.vllm_server import VllmServerEngine

        engine = VllmServerEngine(policy, wanted)
    else:
        return TransformersEngine(policy)
    check_agreement(engine, policy, temperature=generation.temperature)
    return engine


__all__ = [
    "ROLLOUT_ENCODING",
    "ROLLOUT_SCHEMA",
    "ROLLOUT_STATS_SCHEMA",
    "Completion",
    "Engine",
    "EngineFailed",
    "EngineMismatch",
    "EngineOverloaded",
    "Grade",
    "Rollout",
    "SamplingParams",
    "TransformersEngine",
    "check_agreement",
    "groups_from_table",
    "groups_to_table",
    "make_engine",
    "read_groups",
    "read_prompt_ids",
    "roll_out",
    "rollout_stats",
]
