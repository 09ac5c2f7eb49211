"""Numbers are read exactly, however they are written, and junk is read as none."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.rewards.numbers import first_number, last_number, plain_number


@given(st.integers())
def test_integers(value: int) -> None:
    for text in (str(value), f"{value:,}", f"${value:,}", f"{value:,}".replace(",", "{,}"), f" {value}. "):
        assert plain_number(text) == value
    assert last_number(f"so 12 and then x = {value:,} dollars") == value
    assert first_number(f"{value} of 12") == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12))
def test_decimals(value: Decimal) -> None:
    assert plain_number(f"{value:f}") == plain_number(f"{value:,f}") == Fraction(value)


@given(st.integers(-(10**6), 10**6), st.integers(-300, 300), st.sampled_from("eE"))
def test_scientific_notation(mantissa: int, exponent: int, letter: str) -> None:
    value = mantissa * Fraction(10) ** exponent
    assert plain_number(f"{mantissa}{letter}{exponent}") == last_number(f"x = {mantissa}{letter}{exponent}.") == value


@given(st.integers(), st.integers(min_value=1))
def test_fractions(numerator: int, denominator: int) -> None:
    value = Fraction(numerator, denominator)
    assert plain_number(f"{numerator}/{denominator}") == value
    assert plain_number(f"\\dfrac{{{numerator}}}{{{denominator}}}") == value


@given(st.text(max_size=50) | st.text(alphabet="0123456789.,/-+$ \\frac{}", max_size=80))
def test_any_text_is_safe(text: str) -> None:
    plain_number(text), first_number(text), last_number(text)


@pytest.mark.parametrize(
    "text",
    [
        *["", "x", "1/0", "50%", "1 2", "3,4", "2 3/2", "2\\frac{3}{2}", "1e9999", "1e", "e5", "0x10", "9" * 5000],
        *["$5$$6$", "5 6", "12 3456", "1 0000", "0,123", "\\frac123", "\\frac{1}{2}3", "--5", "-$-5", "5²"],
    ],
)
def test_what_is_no_plain_number(text: str) -> None:
    assert plain_number(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *["10\\,000", "10\\;000", "10\\:000", "10\\!000", "10\\ 000", "10 000", "10{,}000", "10,\\!000", "10~000"],
        *["10\u00a0000", "10\u2009000", "10\u202f000", "10\\thinspace000"],
    ],
)
def test_what_stands_between_thousands(text: str) -> None:
    assert plain_number(text) == last_number(f"so it is {text}") == first_number(f"{text} of 12") == 10_000


@pytest.mark.parametrize("text", ["2 1/2", "2\\frac{1}{2}", "2\\frac12", "2 \\tfrac1{2}", "2\\,\\dfrac{1}2"])
def test_mixed_numbers(text: str) -> None:
    assert plain_number(text) == last_number(f"so {text}") == Fraction(5, 2)
    assert plain_number(f"-{text}") == Fraction(-5, 2)


@pytest.mark.parametrize(
    "text", ["-5", "- 5", "−5", "–5", "-$5", "$-5", "- €5", "-5 €", "-\\$5", "-5.", "-\\frac{10}2"]
)
def test_signs_and_currencies(text: str) -> None:
    assert plain_number(text) == -5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x = - 5", -5),
        ("10 - 5", 5),
        ("$5$$6$", 6),
        ("$3.141\\,592$", Fraction(3_141_592, 10**6)),
        ("the road 10 000 m", 10_000),
        ("in 2020 100 people", 100),
        ("-\\frac12", Fraction(-1, 2)),
        ("10-5", 5),
        ("it is -5", -5),
        ("−5", -5),
        ("-$5", -5),
        (".5", Fraction(1, 2)),
        ("1.", 1),
        ("3,4", 4),
        ("\\frac{1}{2}", Fraction(1, 2)),
        ("a = 1/0", None),
        ("none", None),
        ("about 1.5e3 of them", 1500),
        ("2.5E-2.", Fraction(1, 40)),
        ("so 1e+2", 100),
        ("item 3e4x", 4),
        ("10^1e99999", 99999),
    ],
)
def test_the_last_number(text: str, value: Fraction | None) -> None:
    assert last_number(text) == value
