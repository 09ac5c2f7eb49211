"""Every kind of policy source becomes a directory, or an error that tells what is missing."""

import sys
from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from pipeline_lib.config import BuiltinPolicy, ConfigError, GgufPolicy, PretrainedPolicy
from pipeline_lib.policy import materialise
from pipeline_lib.policy.materialise import BUILTIN_DIRECTORY, materialise_policy


def test_the_builtin_policy_is_the_packaged_directory(tmp_path: Path) -> None:
    assert materialise_policy(BuiltinPolicy(), tmp_path) == BUILTIN_DIRECTORY
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert materialise_policy(PretrainedPolicy(path=str(tmp_path)), tmp_path) == tmp_path


def test_a_directory_that_is_no_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        materialise_policy(PretrainedPolicy(path=str(tmp_path)), tmp_path)
    with pytest.raises(ConfigError, match="no such directory"):
        materialise_policy(PretrainedPolicy(path=str(tmp_path / "nowhere")), tmp_path)


def test_what_is_neither_a_directory_nor_a_hub_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a directory nor a hub id"):
        materialise_policy(PretrainedPolicy(path="a/b/c"), tmp_path)


def test_a_hub_id_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, allow_patterns: list[str]) -> str:
        assert name == "owner/model" and "*.safetensors" in allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(materialise, "snapshot_download", fetch)
    assert materialise_policy(PretrainedPolicy(path="owner/model"), tmp_path) == tmp_path


def test_an_unreachable_hub_is_said_to_be_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, allow_patterns: list[str]) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(materialise, "snapshot_download", fail)
    with pytest.raises(ConfigError, match=r"owner/model: no such directory, and .* could not be fetched"):
        materialise_policy(PretrainedPolicy(path="owner/model"), tmp_path)


def test_a_missing_gguf_file_or_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"m\.gguf: no such file"):
        materialise_policy(GgufPolicy(path=str(tmp_path / "m.gguf")), tmp_path)
    with pytest.raises(ConfigError, match=r"not_installed_anywhere.*`make smollm2`"):
        materialise_policy(GgufPolicy(package="not_installed_anywhere"), tmp_path)


@pytest.mark.parametrize("count", [0, 2])
def test_a_package_must_carry_exactly_one_gguf_file(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / f"carrier{count}"
    package.mkdir()
    (package / "__init__.py").touch()
    for index in range(count):
        (package / f"{index}.gguf").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=rf"holds {count} \.gguf files"):
        materialise_policy(GgufPolicy(package=package.name), tmp_path)


def test_without_the_reader_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    installed = materialise.find_spec("json")
    monkeypatch.setattr(materialise, "find_spec", lambda name: None if name == "gguf" else installed)
    with pytest.raises(ConfigError, match=r"needs gguf; pip install 'rlsift\[gguf\]'"):
        materialise_policy(GgufPolicy(path=str(tmp_path / "m.gguf")), tmp_path)


def test_a_conversion_is_done_once_and_a_failed_one_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    source, calls = GgufPolicy(path=str(tmp_path / "m.gguf")), []

    def fail(file: Path, directory: Path) -> None:
        (directory / "half").touch()
        raise RuntimeError

    def convert(file: Path, directory: Path) -> None:
        calls.append(file)
        (directory / "config.json").touch()

    monkeypatch.setattr(materialise, "find_spec", lambda name: object())
    monkeypatch.setattr(materialise, "_convert", fail)
    with pytest.raises(RuntimeError):
        materialise_policy(source, tmp_path)
    assert list((tmp_path / "policies").iterdir()) == []

    monkeypatch.setattr(materialise, "_convert", convert)
    first = materialise_policy(source, tmp_path)
    assert materialise_policy(source, tmp_path) == first and len(calls) == 1
    assert first.parent == tmp_path / "policies" and first.name.startswith("m-")
