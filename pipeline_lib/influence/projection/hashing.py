"""64 random bits for each coordinate, which depend on the seed and on its index alone."""

from __future__ import annotations

import torch

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def hash64(index: torch.Tensor, seed: int) -> torch.Tensor:
    """64 bits for each index, as int64: the index-th output of SplitMix64 started at a mix of the seed."""
    start = _mix(torch.tensor(_signed(seed + 1), device=index.device) * _signed(_GOLDEN))
    return _mix(start + (index + 1) * _signed(_GOLDEN))


def stream_seed(seed: int, stream: int) -> int:
    """A seed for one more independent hash of the coordinates: hashed at -1-stream, where no coordinate is."""
    return int(hash64(torch.tensor(-1 - stream), seed))


def shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifts in zeros, where >> of an int64 repeats the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def sign_of(hashed: torch.Tensor) -> torch.Tensor:
    """±1 as int8, by the lowest bit."""
    return (1 - 2 * (hashed & 1)).to(torch.int8)


def _mix(x: torch.Tensor) -> torch.Tensor:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014), whose products wrap around."""
    x = (x ^ shift_right(x, 30)) * _signed(_MIX_1)
    x = (x ^ shift_right(x, 27)) * _signed(_MIX_2)
    return x ^ shift_right(x, 31)


def _signed(x: int) -> int:
    """The int64 with the same 64 bits."""
    return (x + 2**63) % 2**64 - 2**63
