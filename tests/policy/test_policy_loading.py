"""Loading and saving policies: stop tokens, chat templates, identity, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pipeline_lib.policy import Policy, load_policy, policy_id_of, resolve_device, save_policy
from pipeline_lib.policy.make_builtin import make_model, make_tokenizer

CPU = torch.device("cpu")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tokenizer = make_tokenizer()
        policy = Policy(make_model(tokenizer), tokenizer, (2,), 0, torch.float32)
    save_policy(policy, tmp_path / "policy")
    yield tmp_path / "policy"


def load(path: Path, **options: bool) -> Policy:
    return load_policy(path, device=CPU, dtype=torch.float32, **options)


def edit(file: Path, **values: object) -> None:
    settings = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))


def test_what_was_saved_is_loaded(directory: Path) -> None:
    policy = load(directory)
    assert (policy.eos_token_ids, policy.pad_token_id, policy.suppressed_token_ids) == ((2,), 0, (0,))
    assert not policy.model.training
    assert not any(p.requires_grad for p in policy.model.parameters())
    assert load(directory, trainable=True).model.lm_head.weight.requires_grad


def test_parameters_under_training_stay_float32(directory: Path) -> None:
    frozen = load_policy(directory, device=CPU, dtype=torch.bfloat16)
    trained = load_policy(directory, device=CPU, dtype=torch.bfloat16, trainable=True)
    assert (frozen.model.dtype, trained.model.dtype) == (torch.bfloat16, torch.float32)
    with trained.autocast():
        assert trained.model(torch.tensor([[1, 5]])).logits.dtype == torch.bfloat16


def test_every_stop_token_of_the_generation_config_counts(directory: Path) -> None:
    edit(directory / "generation_config.json", eos_token_id=[5, 9])
    assert load(directory).eos_token_ids == (2, 5, 9)


def test_without_a_pad_token_a_stop_token_pads(directory: Path) -> None:
    edit(directory / "tokenizer_config.json", pad_token=None)
    policy = load(directory)
    assert (policy.pad_token_id, policy.suppressed_token_ids) == (2, ())


def test_adapters_are_refused_with_the_remedy(directory: Path) -> None:
    """They would be loaded beside the weights, and the whole model trained and saved without its base."""
    (directory / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"carries LoRA adapters.*merge_and_unload"):
        load(directory)


def test_a_missing_chat_template_is_refused(directory: Path) -> None:
    (directory / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match=r"no chat template; add chat_template\.jinja"):
        load(directory)


def test_a_policy_that_never_stops_is_refused(directory: Path) -> None:
    edit(directory / "tokenizer_config.json", eos_token=None)
    edit(directory / "generation_config.json", eos_token_id=None)
    edit(directory / "config.json", eos_token_id=None)
    with pytest.raises(ValueError, match="no eos token"):
        load(directory)


def test_the_id_is_that_of_the_bytes(directory: Path, tmp_path: Path) -> None:
    policy = load(directory)
    identity = policy_id_of(directory)
    save_policy(policy, tmp_path / "copy")
    assert policy_id_of(tmp_path / "copy") == identity
    (tmp_path / "copy" / "chat_template.jinja").unlink()
    assert policy_id_of(tmp_path / "copy") == identity
    with torch.no_grad():
        policy.model.lm_head.weight[0, 0] += 1
    save_policy(policy, tmp_path / "moved")
    assert policy_id_of(tmp_path / "moved") != identity


def test_a_directory_without_weights_has_no_id(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no \.safetensors"):
        policy_id_of(tmp_path)


def test_cuda_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == CPU
    with pytest.raises(ValueError, match="device=cuda"):
        resolve_device("cuda")
