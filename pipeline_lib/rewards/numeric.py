"""Numeric: the first number after the last `marker`, else the number that the last box is, else the last in the text.

A box that is more than one number with its name and unit, such as a list, a root or a power, is no answer.
`tolerance` in verifier_args is the greatest difference still right; 0, the default, compares exactly.
"""

from __future__ import annotations

from fractions import Fraction

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards.extract import after_marker, boxed, fold
from pipeline_lib.rewards.numbers import first_number, last_number
from pipeline_lib.rewards.quantities import amount
from pipeline_lib.rewards.verifier import RIGHT, WRONG, Verifier


class Numeric(Verifier):
    def gold_problem(self, prompt: Prompt) -> str | None:
        return None if amount(prompt.gold) is not None else f"{prompt.gold!r} is not a number"

    def normal_gold(self, gold: str) -> str:
        number = amount(gold)
        return fold(gold) if number is None else str(number)

    def extract(self, prompt: Prompt, completion: str) -> str | None:
        number = self._number(prompt.verifier_args.get("marker"), completion)
        return None if number is None else str(number)

    def judge(self, prompt: Prompt, answer: str) -> Verdict:
        gold = amount(prompt.gold)
        if gold is None:
            raise ValueError(f"{prompt.gold!r} is not a number")
        tolerance = Fraction(str(prompt.verifier_args.get("tolerance", 0)))
        return RIGHT if abs(Fraction(answer) - gold) <= tolerance else WRONG

    def _number(self, marker: str | None, completion: str) -> Fraction | None:
        if marker and (rest := after_marker(completion, marker)) is not None:
            return first_number(rest)
        box = boxed(completion)
        return last_number(completion) if box is None else amount(box)
