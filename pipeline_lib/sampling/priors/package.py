"""The optional package behind the priors."""

from __future__ import annotations

import importlib.util
import sys


def require_scikit_learn() -> None:
    """Raises ValueError, with the remedy, where scikit-learn is missing."""
    if "sklearn" in sys.modules:
        missing = sys.modules["sklearn"] is None
    else:
        missing = importlib.util.find_spec("sklearn") is None
    if missing:
        raise ValueError(
            "train.sampler.prior: needs the package scikit-learn, which is not installed; "
            'pip install "rlsift[difficulty]", or set train.sampler.prior.type=none'
        )
