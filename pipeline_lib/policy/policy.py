"""A policy: a transformers causal language model with its tokenizer, chat template and stop tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers.utils.logging
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pipeline_lib.atomic import new_directory
from pipeline_lib.records import Message

# Loading a policy is one of many steps; the run has a progress display of its own.
transformers.utils.logging.disable_progress_bar()


@dataclass(frozen=True)
class Policy:
    """`eos_token_ids` are all the ids that end a completion; `dtype` is that of the forward pass.

    `plain_head` says that the logits are the output embeddings' product with the decoder's last hidden states.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    eos_token_ids: tuple[int, ...]
    pad_token_id: int
    dtype: torch.dtype
    plain_head: bool = False

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def suppressed_token_ids(self) -> tuple[int, ...]:
        """Ids that are never sampled, hence have probability 0 in every log-prob: the pad token, if it is
        not also a stop token."""
        return () if self.pad_token_id in self.eos_token_ids else (self.pad_token_id,)

    def autocast(self) -> AbstractContextManager[None]:
        """Runs the forward pass in `dtype` where the parameters are kept in float32."""
        mixed = self.model.dtype != self.dtype
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=mixed)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the messages through the chat template, ready to be answered."""
        return encode_messages(self.tokenizer, messages)


def encode_messages(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    encoded = tokenizer.apply_chat_template(
        [{"role": m["role"], "content": m["content"]} for m in messages],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
    )
    return list(encoded["input_ids"])  # type: ignore[call-overload, index, arg-type]


def resolve_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device=cuda: torch sees no CUDA device; set device: cpu or auto")
    return torch.device(device)


def load_policy(path: Path | str, *, device: torch.device, dtype: torch.dtype, trainable: bool = False) -> Policy:
    """Load weights, tokenizer and stop tokens from a directory (or hub id).

    Parameters of a trainable policy are float32 whatever `dtype` is. Raises ValueError when the tokenizer
    has no chat template or no stop token can be found.
    """
    if (Path(path) / "adapter_config.json").exists():
        raise ValueError(
            f"{path}: carries LoRA adapters, which a run neither trains alone nor saves; merge them into the model "
            "first (peft: merge_and_unload, then save_pretrained)"
        )
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32 if trainable else dtype, attn_implementation="sdpa"
    )
    tokenizer = AutoTokenizer.from_pretrained(path)
    if tokenizer.chat_template is None:
        raise ValueError(f"{path}: the tokenizer has no chat template; add chat_template.jinja to the directory")
    configured = model.generation_config.eos_token_id
    eos = [] if configured is None else configured if isinstance(configured, list) else [configured]
    if tokenizer.eos_token_id is not None:
        eos = [*eos, tokenizer.eos_token_id]
    if not eos:
        raise ValueError(f"{path}: no eos token in generation_config.json or the tokenizer; completions never end")
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else eos[0]
    model.to(device)  # type: ignore[arg-type]
    model.train(False)
    model.requires_grad_(trainable)
    return Policy(model, tokenizer, tuple(sorted(set(eos))), pad, dtype, _has_plain_head(model))


@torch.no_grad()
def _has_plain_head(model: PreTrainedModel) -> bool:
    """Whether nothing scales or caps the logits between the head and the loss."""
    head, decoder = model.get_output_embeddings(), model.get_decoder()
    if head is None or decoder is model:
        return False
    ids = torch.tensor([[0, 1]], device=model.device)
    return torch.equal(model(ids).logits, head(decoder(ids).last_hidden_state))


def save_policy(policy: Policy, path: Path) -> None:
    """Write safetensors, config, tokenizer and chat template; the directory appears whole or not at all."""
    with new_directory(path) as directory:
        policy.model.save_pretrained(directory)
        policy.tokenizer.save_pretrained(directory)


def policy_id_of(path: Path) -> str:
    """16 hex digits of the sha256 over config and weight files: two policies are one when their bytes are.

    Raises ValueError when the directory holds no safetensors.
    """
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise ValueError(f"{path}: holds no .safetensors file; save the policy with save_pretrained")
    digest = hashlib.sha256((path / "config.json").read_bytes())
    for file in weights:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
