"""Numbers in any accepted spelling: equal to their gold in any other, and to no gold of another value."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline_lib.records import Prompt
from pipeline_lib.rewards import get_verifier

# What may stand between thousands, and around a number.
MARKS = ["", ",", "{,}", "\\,", "\\;", "\\ ", "\\!", ",\\!", " ", "~", "\u2009"]
DRESSES = [
    "{}",
    " {} ",
    "{}.",
    "**{}**",
    "`{}`",
    "${}$",
    r"\({}\)",
    "{{{}}}",
    r"\text{{{}}}",
    r"\textcolor{{red}}{{{}}}",
]
UNITS = ["{}", "x = {}", "{} dollars", r"{}\text{{ cm}}", r"{}\,\mathrm{{m}}^2", r"{}^\circ"]
MINUS = ["-", "- ", "−", "–"]

INTEGERS = st.integers(-(10**7), 10**7).map(Fraction)
DECIMALS = st.integers(-(10**6), 10**6).map(lambda number: Fraction(number, 100))
RATIONALS = st.builds(Fraction, st.integers(-(10**4), 10**4), st.integers(1, 10**3))
VALUES = INTEGERS | DECIMALS | RATIONALS


@st.composite
def spellings(draw: st.DrawFn, value: Fraction) -> str:
    """One way to write `value`."""
    size = abs(value)
    ways = [f"{size.numerator}/{size.denominator}"]
    ways += [rf"\{name}{{{size.numerator}}}{{{size.denominator}}}" for name in ("frac", "dfrac", "tfrac")]
    whole, rest = divmod(size, 1)
    if rest and whole:
        fraction = rf"\frac{{{rest.numerator}}}{{{rest.denominator}}}"
        ways += [f"{whole} {rest.numerator}/{rest.denominator}", f"{whole}{fraction}", rf"{whole}\,{fraction}"]
    if 10**6 % size.denominator == 0:
        written = f"{int(whole):,}".replace(",", draw(st.sampled_from(MARKS)))
        decimals = f"{int(rest * 10**6):06}".rstrip("0")
        ways += [written + (f".{decimals}" if decimals else ".0" * draw(st.integers(0, 1)))] * 3
    text = draw(st.sampled_from(ways))
    if value < 0:
        text = draw(st.sampled_from(MINUS)) + text
    return draw(st.sampled_from(DRESSES)).format(draw(st.sampled_from(UNITS)).format(text))


def is_right(verifier: str, gold: str, answer: str) -> bool:
    prompt = Prompt("test", ({"role": "user", "content": "?"},), gold, verifier)
    assert get_verifier(verifier).gold_problem(prompt) is None
    return get_verifier(verifier).grade(prompt, rf"So it is \boxed{{{answer}}}").correct


@pytest.mark.parametrize("verifier", ["math", "numeric"])
@given(value=VALUES, data=st.data())
def test_an_answer_is_right_in_any_spelling(verifier: str, value: Fraction, data: st.DataObject) -> None:
    assert is_right(verifier, str(value), data.draw(spellings(value)))


@pytest.mark.parametrize("verifier", ["math", "numeric"])
@given(value=VALUES, data=st.data())
def test_a_gold_is_met_by_itself_and_by_the_bare_number(verifier: str, value: Fraction, data: st.DataObject) -> None:
    gold = data.draw(spellings(value))
    assert is_right(verifier, gold, gold)
    assert is_right(verifier, gold, str(value))


@pytest.mark.parametrize("verifier", ["math", "numeric"])
@given(value=VALUES, other=VALUES, data=st.data())
def test_another_value_is_never_right(verifier: str, value: Fraction, other: Fraction, data: st.DataObject) -> None:
    assume(abs(value - other) > Fraction(1, 10**5))  # math-verify rounds to six digits
    gold, answer = data.draw(spellings(value)), data.draw(spellings(other))
    assert not is_right(verifier, gold, answer)
