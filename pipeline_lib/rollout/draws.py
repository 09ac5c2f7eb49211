"""Random draws that are a trajectory's own: the same whoever else is sampled with it, on any device."""

from __future__ import annotations

import hashlib

import torch

# SplitMix64 in torch's signed integers, which wrap.
_STEP, _FIRST, _SECOND = (int.from_bytes(bytes.fromhex(h), signed=True) for h in (
    "9e3779b97f4a7c15", "bf58476d1ce4e5b9", "94d049bb133111eb"))  # fmt: skip


def draw_key(seed: int, prompt: int, sample: int) -> int:
    """What a trajectory's draws start from, a signed 64-bit number."""
    digest = hashlib.sha256(f"{seed}:{prompt}:{sample}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def random_bits(key_B: torch.Tensor, position_B: torch.Tensor) -> torch.Tensor:
    """[B] int64: of each key's stream the number at a position (SplitMix64; Steele, Lea, Flood, OOPSLA 2014)."""
    bits_B = key_B + (position_B + 1) * _STEP
    bits_B = (bits_B ^ _shifted(bits_B, 30)) * _FIRST
    bits_B = (bits_B ^ _shifted(bits_B, 27)) * _SECOND
    return bits_B ^ _shifted(bits_B, 31)


def uniforms(key_B: torch.Tensor, position_B: torch.Tensor) -> torch.Tensor:
    """[B] float64 in [0, 1)."""
    return _shifted(random_bits(key_B, position_B), 11).double() * 2.0**-53


def choose(logits_BV: torch.Tensor, uniform_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A token from each row's softmax and its log-prob: the token in whose share of [0, 1) the row's number falls."""
    logprobs_BV = torch.log_softmax(logits_BV, dim=-1)
    cumulative_BV = logprobs_BV.exp().double().cumsum(-1)
    # A hair below the whole, so that rounding never leads behind the last token that can be sampled.
    target_B1 = uniform_B[:, None] * cumulative_BV[:, -1:] * (1 - 2.0**-52)
    token_B1 = torch.searchsorted(cumulative_BV, target_B1, right=True)
    return token_B1[:, 0], logprobs_BV.gather(-1, token_B1)[:, 0]


def _shifted(bits_B: torch.Tensor, places: int) -> torch.Tensor:
    # torch's own shift carries the sign along.
    return (bits_B >> places) & ((1 << (64 - places)) - 1)
