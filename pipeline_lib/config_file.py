"""Reading a config: YAML, overrides from the command line, paths relative to the file itself, errors in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pipeline_lib.config import (
    ConfigError,
    DatasetSource,
    FileSource,
    GgufPolicy,
    NoPrior,
    PosteriorSampler,
    PredictorPrior,
    PretrainedPolicy,
    PromptSource,
    RunConfig,
    TensorBoardTracker,
    Tracker,
)


def load_config(path: Path, overrides: list[str] | None = None, root: Path | None = None) -> RunConfig:
    """Read a YAML config, apply `key.path=value` overrides, and make its paths absolute.

    Relative paths are taken from the config file's own directory, never from the working directory.
    Raises ConfigError naming file, key, value and rule.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not readable as YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values, found {type(raw).__name__}")
    for override in overrides or []:
        _apply_override(raw, override)
    if root is not None:
        raw["root"] = str(root.absolute())
    try:
        config = RunConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(_explain(path, raw, error)) from None
    return _with_absolute_paths(config, path.absolute().parent)


def _apply_override(raw: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"--set {override}: must have the form key.path=value")
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError:
        raise ConfigError(f"--set {override}: `{value}` is not a YAML value") from None
    *parents, leaf = key.split(".")
    node: Any = raw
    for depth, name in enumerate(parents):
        node = node.setdefault(name, {}) if isinstance(node, dict) else _entry(node, name, override)
        if not isinstance(node, dict | list):
            raise ConfigError(f"--set {override}: `{'.'.join(parents[: depth + 1])}` is a value, not a section")
    if isinstance(node, list):
        _entry(node, leaf, override)
        node[int(leaf)] = parsed
    else:
        node[leaf] = parsed


def _entry(node: list[Any], index: str, override: str) -> Any:
    if not index.isdecimal() or int(index) >= len(node):
        raise ConfigError(f"--set {override}: `{index}` must be an index below {len(node)}")
    return node[int(index)]


RULES = {"extra_forbidden": "no such key", "union_tag_not_found": "`type` is missing"}


def _explain(path: Path, raw: dict[str, Any], error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        key = _key(raw, problem["loc"]) or "(the whole file)"
        rule = RULES.get(problem["type"], problem["msg"])
        shown = repr(problem["input"])
        value = "" if problem["type"] == "missing" else f" = {shown if len(shown) < 80 else shown[:77] + '...'}"
        lines.append(f"{path}: {key}{value}: {rule}")
    return "\n".join(lines)


def _key(raw: Any, location: tuple[int | str, ...]) -> str:
    """The location as the user wrote it: pydantic puts the `type` of a choice in between, also one left out."""
    parts, node = [], raw
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        if isinstance(node, dict) and part not in node and node.get("type", None if is_last else part) == part:
            continue
        parts.append(str(part))
        if isinstance(node, dict):
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
    return ".".join(parts)


def _with_absolute_paths(config: RunConfig, base: Path) -> RunConfig:
    def absolute(path: str) -> str:
        return str((base / Path(path).expanduser()).resolve())

    def directory_or_hub_id(path: str) -> str:
        # A hub id such as org/name stays as it is unless a directory of that name stands beside the config.
        return absolute(path) if path.startswith((".", "/", "~")) or (base / path).is_dir() else path

    def source(entry: PromptSource) -> PromptSource:
        if isinstance(entry, DatasetSource):
            return entry.model_copy(update={"path": directory_or_hub_id(entry.path)})
        return entry.model_copy(update={"path": absolute(entry.path)}) if isinstance(entry, FileSource) else entry

    def tracker(entry: Tracker) -> Tracker:
        if isinstance(entry, TensorBoardTracker) and entry.directory is not None:
            return entry.model_copy(update={"directory": absolute(entry.directory)})
        return entry

    prompts = config.prompts.model_copy(
        update={
            "train": [source(s) for s in config.prompts.train],
            "validation": {name: [source(s) for s in sources] for name, sources in config.prompts.validation.items()},
            "evaluation": {name: [source(s) for s in sources] for name, sources in config.prompts.evaluation.items()},
        }
    )
    policy = config.policy
    if isinstance(policy, GgufPolicy) and policy.path is not None:
        policy = policy.model_copy(update={"path": absolute(policy.path)})
    if isinstance(policy, PretrainedPolicy):
        policy = policy.model_copy(update={"path": directory_or_hub_id(policy.path)})
    diagnosis = config.diagnosis
    if diagnosis.embedding_model is not None:
        diagnosis = diagnosis.model_copy(update={"embedding_model": directory_or_hub_id(diagnosis.embedding_model)})
    train = config.train
    if isinstance(train.sampler, PosteriorSampler) and not isinstance(train.sampler.prior, NoPrior):
        prior = train.sampler.prior
        if prior.embedding_model is not None:
            prior = prior.model_copy(update={"embedding_model": directory_or_hub_id(prior.embedding_model)})
        if isinstance(prior, PredictorPrior) and prior.warm_start is not None:
            prior = prior.model_copy(update={"warm_start": absolute(prior.warm_start)})
        train = train.model_copy(update={"sampler": train.sampler.model_copy(update={"prior": prior})})
    changed = {
        "root": absolute(config.root),
        "prompts": prompts,
        "policy": policy,
        "diagnosis": diagnosis,
        "tracking": [tracker(entry) for entry in config.tracking],
        "train": train,
    }
    return config.model_copy(update=changed)
