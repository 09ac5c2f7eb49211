r"""Quantities: a number with or without its unit, as in 18 dollars, €18, 5\text{ cm}^2, 90^\circ."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from pipeline_lib.rewards.extract import bare
from pipeline_lib.rewards.numbers import CURRENCY, MAX_LENGTH, plain, plain_number

SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}

_UNITS = {
    **{
        unit: unit for unit in ("mm", "cm", "dm", "m", "km", "mg", "g", "kg", "ml", "l", "s", "h", "min", "day", "week")
    },
    **{unit: unit for unit in ("month", "year", "lb", "oz", "in", "ft", "yd", "mi", "mph", "km/h", "m/s", "unit")},
    **{unit: unit for unit in ("degree", "dollar", "cent", "euro")},
    **{"millimeter": "mm", "centimeter": "cm", "decimeter": "dm", "meter": "m", "kilometer": "km", "metre": "m"},
    **{"gram": "g", "kilogram": "kg", "liter": "l", "litre": "l", "milliliter": "ml", "sec": "s", "second": "s"},
    **{"minute": "min", "hour": "h", "hr": "h", "pound": "lb", "ounce": "oz", "inch": "in", "foot": "ft", "feet": "ft"},
    **{"yard": "yd", "mile": "mi", "milesperhour": "mph", "usd": "dollar"},
}
_POWERS = {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}
_SHORT = _UNITS.keys() - {"in"}  # the others of one or two letters are taken for variables
_JOINS = frozenset(["and", "or", "to", "of", "not", "is", "plus", "minus", "times", "over", "by", "mod"])

_IN_TEXT = r"\\(?:text|textrm|textbf|textit|mathrm|mathbf|mbox|operatorname)\s*\{(?P<text>[^{}]*)\}"
_DEGREES = r"(?P<degrees>\^\s*(?:\{\s*\\circ\s*\}|\\circ)|°|\\degree)\s*(?:\\(?:text|mathrm)\s*)?\{?(?P<scale>[CF]?)\}?"
_QUANTITY = re.compile(
    rf"(?P<number>[-+]?\s*{CURRENCY}?\s*[-+]?\s*[0-9.](?:[0-9.,/ ]*[0-9.])?)(?P<space>\s*)"
    rf"(?:_\s*\{{?\s*(?P<base>[0-9]+)\s*\}}?|{_DEGREES}|(?:{_IN_TEXT}|(?P<word>[A-Za-z](?:[A-Za-z./ ]*[A-Za-z])?))"
    r"\s*(?P<power>(?:\^\s*\{?\s*[23]\s*\}?|[²³])?))\s*\.?"
)
_PLURAL = re.compile(r"(?<=ch|sh)es$|(?<=[a-z]{2})s$")
_DECIMAL = re.compile(r"-?[0-9]*\.[0-9]+")
_EQUALS = re.compile(r"(?<![\\<>!:])=|\\approx(?![A-Za-z])|≈")
NAME = re.compile(r"(?:[A-Za-z\s(),:]|\\(?:text|mathrm|mathbf)\s*\{[^{}]*\}|_\s*(?:[A-Za-z0-9]|\{[A-Za-z0-9 ]*\}))*")
_SUM = re.compile(r"(?:[-+*/×·÷(){}^0-9.,\s]|\\(?:times|cdot|div|[dt]?frac|left|right)(?![A-Za-z]))+")


@dataclass(frozen=True, slots=True)
class Quantity:
    number: Fraction
    written: str
    """The number as a decimal, where it was written as one, else as a fraction."""

    unit: str
    """In lower case, singular and without spaces; "" where there is none. The base of 11_2 counts as one."""

    certain: bool = True
    """Whether the unit can only be one; else it may be a product of variables."""

    known: bool = True
    """Whether another known one is another unit; apples and red apples may be the same."""


def quantity(text: str) -> Quantity | None:
    """The number that `text` is, with the unit behind it; None when it is anything else."""
    number = plain_number(text)
    if number is not None:
        return Quantity(number, _written(text, number), "")
    match = _QUANTITY.fullmatch(plain(bare(text)).strip()) if len(text) <= MAX_LENGTH else None
    number = plain_number(match["number"]) if match else None
    if match is None or number is None:
        return None
    written = _written(match["number"], number)
    if match["base"]:
        return Quantity(number, written, f"base{match['base']}")
    if match["degrees"]:
        return Quantity(number, written, f"degree{match['scale'].lower()}")
    words = (match["text"] or match["word"] or "").lower().replace(".", " ").split()
    if not words:
        return Quantity(number, written, "")
    if words[0] in _JOINS:
        return None
    certain = match["word"] is None or (len(words[0]) > 2 and bool(match["space"])) or words[0] in _SHORT
    if words[0] in SCALES:
        number *= SCALES[words.pop(0)]
        written = str(number)
    power = re.sub(r"[^23²³]", "", match["power"]).translate(str.maketrans("²³", "23"))
    if len(words) > 1 and words[0] in _POWERS:
        power = _POWERS[words.pop(0)]
    stem = _PLURAL.sub("", "".join(words))
    return Quantity(number, written, _UNITS.get(stem, stem) + power, certain, known=certain and stem in _UNITS)


def amount(text: str) -> Fraction | None:
    """The number that `text` is, whatever its unit, after its name or sum, as in x = 5 and 2 + 3 = 5; None else."""
    *names, last = _EQUALS.split(bare(text))
    number = _number(last)
    for name in names:
        known = _number(name)
        if known is not None and number is not None and contradict(known, number):
            return None
        if known is None and NAME.fullmatch(name) is None and _SUM.fullmatch(name) is None:
            return None
    return number


def contradict(one: Fraction, other: Fraction) -> bool:
    """Whether two sides of an equation cannot be the same number; 1/3 = 0.33 only rounds."""
    return abs(one - other) > max(abs(one), abs(other)) / 100


def sides(equation: str) -> list[Fraction]:
    """The sides that are plain numbers, in their order."""
    numbers = (plain_number(bare(side)) for side in _EQUALS.split(equation))
    return [number for number in numbers if number is not None]


def _number(text: str) -> Fraction | None:
    found = quantity(text.strip().removesuffix(".").removesuffix("%").removesuffix("\\"))
    return found.number if found is not None and found.certain else None


def _written(text: str, number: Fraction) -> str:
    decimal = _DECIMAL.fullmatch(plain(text).strip().replace(",", ""))
    return decimal[0] if decimal else str(number)
