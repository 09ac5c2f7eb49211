r"""Numbers as exact fractions: 1,080 and 10\,000 and 0.5 and 1e3, -1/2 and 2\frac{1}{2}, with or without a $ sign."""

from __future__ import annotations

import re
from fractions import Fraction

# Longer than any answer; int() itself refuses strings beyond 4,300 digits.
MAX_LENGTH = 1000

_PLAIN = re.compile(r"-?(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")

_MINUS = str.maketrans("−–－", "---")
_SPACE_IN_LATEX = r"\\(?:[,;:! ]|thinspace(?![A-Za-z]))|~"
_THOUSANDS = re.compile(
    r"(?<=[0-9])(?:\{\s*,\s*\}|,\\!|\{\\,\}|[\u00a0\u2009\u202f]|" + _SPACE_IN_LATEX + r")(?=[0-9]{3}(?![0-9]))"
)
_SPACE = re.compile(_SPACE_IN_LATEX)
_FRAC = re.compile(
    r"(?:(?<=[0-9])(?P<mixed>\s*))?"
    r"\\[dtc]?frac\s*(?:\{\s*(?P<top>-?[0-9.,]+)\s*\}|(?P<t>[0-9]))\s*(?:\{\s*(?P<bottom>[0-9.,]+)\s*\}|(?P<b>[0-9]))"
    r"(?!\s*\.?[0-9])"  # \frac{1}{2}3 is a product
)

CURRENCY = r"(?:\\?\$|[€£¥₹])"
_CURRENCY_AFTER = re.compile(rf"(?<=[0-9])\s*{CURRENCY}+")
_CURRENCY = re.compile(CURRENCY)

_NUMERAL = r"(?:(?:[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
_VALUE = (
    r"(?:(?P<whole>[0-9]+) +(?=[0-9]+\s*/\s*[0-9]))?"
    rf"(?P<value>{_NUMERAL}(?:[eE][-+]?[0-9]{{1,3}}(?![0-9A-Za-z_]))?)"  # no text may ask for one that fills the memory
    rf"(?:\s*/\s*(?P<denominator>{_NUMERAL}))?"
)
# In 10-5 the minus is an operation; in x = - 5 it is a sign.
_NUMBER = re.compile(rf"(?P<sign>(?<![0-9A-Za-z_)\]}}])[-+]|(?:\A|(?<=[=:])|(?<=[=:]\s))[-+]\s+)?{_VALUE}")
_WHOLE = re.compile(
    rf"(?P<sign>(?:[-+]\s*)?(?:{CURRENCY}\s*)?|{CURRENCY}\s*[-+]\s*)"
    rf"{_VALUE}(?:\s*{CURRENCY})?\.?"
)


def plain_number(text: str) -> Fraction | None:
    """The number that `text` is, a currency sign and a trailing full stop aside; None when it is anything else."""
    if text.isdecimal() and text.isascii() and len(text) <= MAX_LENGTH:  # nearly all golds: no need of the pattern
        return Fraction(int(text))
    if _PLAIN.fullmatch(text) and len(text) <= MAX_LENGTH:
        return Fraction(text.replace(",", ""))
    match = _WHOLE.fullmatch(plain(text).strip())
    if match is None or len(match.group()) > MAX_LENGTH:
        return None
    value = _value(match, alone=True)
    return -value if value is not None and "-" in match["sign"] else value


def first_number(text: str) -> Fraction | None:
    match = _NUMBER.search(_without_currency(text))
    return _signed(match) if match else None


def last_number(text: str) -> Fraction | None:
    matches = list(_NUMBER.finditer(_without_currency(text)))
    return _signed(matches[-1]) if matches else None


def join_thousands(text: str) -> str:
    r"""`text` without what LaTeX and typographers put between thousands: 10\,000 and 10{,}000 become 10000."""
    return _THOUSANDS.sub("", text)


def plain(text: str) -> str:
    r"""`text` with one minus, thousands joined, LaTeX's spaces as spaces, and \frac of numbers as a slash."""
    return _FRAC.sub(_with_slash, _SPACE.sub(" ", join_thousands(text.translate(_MINUS))))


def _without_currency(text: str) -> str:
    # Two formulas side by side, $5$$6$, are two numbers.
    return _CURRENCY.sub("", _CURRENCY_AFTER.sub(" ; ", plain(text)))


def _with_slash(match: re.Match[str]) -> str:
    mixed = " " if match["mixed"] is not None else ""
    return f"{mixed}{match['top'] or match['t']}/{match['bottom'] or match['b']}"


def _signed(match: re.Match[str]) -> Fraction | None:
    value = _value(match, alone=False)
    return -value if value is not None and (match["sign"] or "").startswith("-") else value


def _value(match: re.Match[str], *, alone: bool) -> Fraction | None:
    """Without the sign. Of 2 3/2, which is no mixed number, 3/2 where it is not `alone`."""
    if len(match.group()) > MAX_LENGTH:
        return None
    value = _fraction(match["value"])
    if match["denominator"]:
        denominator = _fraction(match["denominator"])
        if denominator == 0:
            return None
        value /= denominator
    if match["whole"]:
        if value < 1:
            return int(match["whole"]) + value
        return None if alone else value
    return value


def _fraction(numeral: str) -> Fraction:
    return Fraction(numeral.replace(",", "").replace(" ", ""))
