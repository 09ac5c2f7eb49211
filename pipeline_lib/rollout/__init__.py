"""Rollouts: engines that sample completions, and the Parquet form of what they sampled."""

from pipeline_lib.policy import Policy
from pipeline_lib.rollout.collect import Grade, Rollout, roll_out
from pipeline_lib.rollout.engine import Completion, Engine, SamplingParams
from pipeline_lib.rollout.parquet import (
    ROLLOUT_SCHEMA,
    groups_from_table,
    groups_to_table,
    read_groups,
    read_prompt_ids,
)
from pipeline_lib.rollout.stats import ROLLOUT_STATS_SCHEMA, rollout_stats
from pipeline_lib.rollout.transformers_engine import TransformersEngine

ENGINES: dict[str, type[TransformersEngine]] = {"transformers": TransformersEngine}
"""By the value of `generation.engine` in the config."""


def make_engine(name: str, policy: Policy) -> Engine:
    return ENGINES[name](policy)


__all__ = [
    "ENGINES",
    "ROLLOUT_SCHEMA",
    "ROLLOUT_STATS_SCHEMA",
    "Completion",
    "Engine",
    "Grade",
    "Rollout",
    "SamplingParams",
    "TransformersEngine",
    "groups_from_table",
    "groups_to_table",
    "make_engine",
    "read_groups",
    "read_prompt_ids",
    "roll_out",
    "rollout_stats",
]
