r"""Math: the last \boxed{}, else the line after the last `####`, else the last `Answer:` line; nothing else.

Equal strings, numbers with their units, words and dates are settled at once; math-verify, which may hang, is asked
for the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards.extract import after_marker, answer_line, bare, boxed, first_line, fold
from pipeline_lib.rewards.numbers import join_thousands, plain_number
from pipeline_lib.rewards.quantities import NAME, Quantity, contradict, quantity, sides
from pipeline_lib.rewards.verifier import RIGHT, UNPARSEABLE, WRONG, Verifier
from pipeline_lib.rewards.words import same_date_or_time, words

MAX_DEPTH = 20
"""Brackets in brackets of a gold; math-verify takes seconds for more, then minutes."""
NO_VALUES = {"nan", "null"}

# To math-verify cos is a product of three variables.
_NAMES = re.compile(
    r"(?<![\\A-Za-z])(?:(pi|theta)(?![A-Za-z])"
    r"|((?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|log|ln)(?![A-Za-z])(?=\s*[\\({^A-Za-z0-9]))"
)


class Math(Verifier):
    isolated = True

    def gold_problem(self, prompt: Prompt) -> str | None:
        if plain_number(prompt.gold) is not None:
            return None
        gold = _read(prompt.gold)
        if gold.text.lower() in NO_VALUES:
            return f"{prompt.gold!r} stands for a missing answer"
        if gold.words or same_date_or_time(gold.text, gold.text) or (gold.quantity and gold.quantity.certain):
            return None
        if (depth := _depth(gold.text)) > MAX_DEPTH:
            return f"its brackets are {depth} deep, and math-verify is asked for at most {MAX_DEPTH}"
        from pipeline_lib.rewards import symbolic

        expressions = symbolic.parse(gold.expression)
        if not expressions:
            return f"math-verify finds no expression in {prompt.gold!r}"
        return (
            None if symbolic.sound(expressions) else f"{prompt.gold!r} is no answer that math-verify finds equal to it"
        )

    def normal_gold(self, gold: str) -> str:
        number = plain_number(gold)
        if number is not None:
            return str(number)
        found = quantity(gold)
        return f"{found.number} {found.unit}".strip() if found and found.certain else fold(gold)

    def extract(self, prompt: Prompt, completion: str) -> str | None:
        answer = boxed(completion)
        if answer is None and (rest := after_marker(completion, "####")) is not None:
            answer = first_line(rest.removeprefix(":"))
        if answer is None:
            answer = answer_line(completion)
        return (bare(answer) or None) if answer is not None else None

    def settle(self, prompt: Prompt, answer: str) -> Verdict | None:
        if fold(answer) == fold(prompt.gold):
            return RIGHT
        gold_number, number = plain_number(prompt.gold), plain_number(answer)
        if gold_number is not None and number is not None:
            if gold_number == number:
                return RIGHT
            # Unequal decimals are left to math-verify, which knows 0.333333 for 1/3.
            return WRONG if gold_number.denominator == number.denominator == 1 else None
        return _settle(_read(prompt.gold), _read(answer))

    def judge(self, prompt: Prompt, answer: str) -> Verdict:
        from pipeline_lib.rewards import symbolic

        expressions = symbolic.parse(_read(answer).expression)
        if not expressions:
            return UNPARSEABLE
        gold = symbolic.parse(_read(prompt.gold).expression)
        try:
            return RIGHT if symbolic.equal(gold, expressions) else WRONG
        except MemoryError:
            raise
        except Exception:  # of a sound gold and an answer that cannot be compared with it, such as 1/0
            if not symbolic.sound(gold):
                raise
            return UNPARSEABLE

    def warm_up(self) -> None:
        from pipeline_lib.rewards import symbolic

        # Whatever it cannot read is no expression to it: broken, it would find every answer wrong.
        if not symbolic.equal(symbolic.parse("x+1"), symbolic.parse(r"\frac{2x+2}{2}")):
            raise RuntimeError(r"math-verify cannot tell that \frac{2x+2}{2} is x+1; install it and what it needs anew")


@dataclass(frozen=True, slots=True)
class _Reading:
    text: str
    words: str | None
    short_words: str | None
    name: str
    """Of the quantity, as in x = 5; "" where it has none."""

    quantity: Quantity | None

    @property
    def expression(self) -> str:
        """What math-verify shall read."""
        if self.quantity is not None and (self.quantity.known or not self.quantity.unit):
            return f"{self.name} = {self.quantity.written}" if self.name else self.quantity.written
        return join_thousands(self.text)


@lru_cache(maxsize=1024)
def _read(text: str) -> _Reading:
    named = _NAMES.sub(r"\\\1\2 ", bare(text))
    name, _, value = named.rpartition("=")
    if not NAME.fullmatch(name):
        name, value = "", named
    found = quantity(value)
    return _Reading(named, words(named), words(named, short=True), fold(name), found)


def _settle(gold: _Reading, given: _Reading) -> Verdict | None:
    if (same := same_date_or_time(gold.text, given.text)) is not None:
        return RIGHT if same else WRONG
    if (gold.words or given.words) and gold.short_words and given.short_words:
        return RIGHT if gold.short_words == given.short_words else WRONG
    if fold(gold.text) == fold(given.text):
        return RIGHT
    numbers = sides(given.text) if "=" in given.text else []
    if any(contradict(number, numbers[-1]) for number in numbers):
        return WRONG
    if gold.quantity is None or given.quantity is None or (gold.name and given.name and gold.name != given.name):
        return None
    return _settle_quantities(gold.quantity, given.quantity)


def _settle_quantities(gold: Quantity, given: Quantity) -> Verdict | None:
    if gold.unit != given.unit:
        both = bool(gold.unit and given.unit)
        if both and ((gold.known and given.known) or len(gold.unit) == len(given.unit) == 1):
            return WRONG
        if not (gold.certain and given.certain) or (both and not gold.known and not given.known):
            return None  # as 2xy and 2yx
    if gold.number == given.number:
        return RIGHT
    return WRONG if gold.number.denominator == given.number.denominator == 1 else None


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        deepest = max(deepest, depth)
    return deepest
