"""Numbers as exact fractions: 1,080 and 0.5 and 1e3 and -1/2 and \\frac{1}{2}, with or without a dollar sign."""

from __future__ import annotations

import re
from fractions import Fraction

# Longer than any answer; int() itself refuses strings beyond 4,300 digits.
MAX_LENGTH = 1000

_NUMBER = re.compile(
    r"(?P<sign>(?<![0-9A-Za-z_)\]}])[-+])?"  # in 10-5 the minus is an operation
    r"(?P<value>(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,3}(?![0-9A-Za-z_]))?)"  # three digits: no text may ask for a number that fills the memory
    r"(?:\s*/\s*(?P<denominator>[0-9]+(?:\.[0-9]+)?))?"
)
# Not after a digit: 2\frac{1}{2} is a mixed number.
_FRAC = re.compile(r"(?<![0-9])\\[dt]?frac\s*\{(-?[0-9.]+)\}\s*\{([0-9.]+)\}")


def plain_number(text: str) -> Fraction | None:
    """The number that `text` is, a trailing full stop aside; None when it is anything else."""
    if text.isdecimal() and text.isascii() and len(text) <= MAX_LENGTH:  # nearly all golds: no need of the pattern
        return Fraction(int(text))
    match = _NUMBER.fullmatch(_plain(text).strip().removesuffix("."))
    return _value(match) if match else None


def first_number(text: str) -> Fraction | None:
    match = _NUMBER.search(_plain(text))
    return _value(match) if match else None


def last_number(text: str) -> Fraction | None:
    matches = list(_NUMBER.finditer(_plain(text)))
    return _value(matches[-1]) if matches else None


def _plain(text: str) -> str:
    text = text.replace("−", "-").replace("{,}", ",").replace("\\$", "").replace("$", "")
    return _FRAC.sub(r"\1/\2", text)


def _value(match: re.Match[str]) -> Fraction | None:
    if len(match.group()) > MAX_LENGTH:
        return None
    value = Fraction(match["value"].replace(",", ""))
    if match["denominator"]:
        denominator = Fraction(match["denominator"])
        if denominator == 0:
            return None
        value /= denominator
    return -value if match["sign"] == "-" else value
