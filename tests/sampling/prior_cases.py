"""Texts whose pass rates are known, and what a policy makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pipeline_lib.sampling.priors.rows import Row, Text

Rate = Callable[[int, str], float]
"""(number of operations, operation) -> pass rate."""


def sums(count: int, seed: int, source: str = "sums") -> list[Text]:
    """`1+2+3=?` and `1*2=?`: one to six operations of one kind."""
    rng = np.random.default_rng(seed)
    texts = []
    for i in range(count):
        operation = "+*"[rng.integers(2)]
        digits = "".join(str(d) for d in rng.integers(10, size=rng.integers(2, 8)))
        texts.append(Text(f"{source}{seed}-{i:04d}", source, operation.join(digits) + "=?"))
    return texts


def by_length_and_operation(operations: int, operation: str) -> float:
    return float(1 / (1 + np.exp(-(3 - operations - 1.5 * (operation == "*")))))


def rates_of(texts: Sequence[Text], rate: Rate = by_length_and_operation) -> np.ndarray:
    return np.array([rate(t.text.count("+") + t.text.count("*"), "*" if "*" in t.text else "+") for t in texts])


def answered(texts: Sequence[Text], rates: np.ndarray, n: int, seed: int, kappa: float | None = None) -> list[Row]:
    """`n` completions of each; with `kappa`, prompts differ from their rate as Beta(κm, κ(1-m)) does."""
    rng = np.random.default_rng(seed)
    own = rates if kappa is None else rng.beta(kappa * rates, kappa * (1 - rates))
    return [Row(t, n, int(rng.binomial(n, p))) for t, p in zip(texts, own, strict=True)]


def log_loss(predicted: np.ndarray, rates: np.ndarray) -> float:
    """Expected negative log-likelihood of one completion, nats."""
    return float(-(rates * np.log(predicted) + (1 - rates) * np.log(1 - predicted)).mean())
