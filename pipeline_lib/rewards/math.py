r"""Math: the last \boxed{}, else the line after the last `####`, else the last `Answer:` line; nothing else.

Equal strings, plain numbers and words are settled at once; math-verify, which may hang, is asked for the rest.
"""

from __future__ import annotations

import re

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards.extract import after_marker, answer_line, boxed, first_line, fold
from pipeline_lib.rewards.numbers import plain_number
from pipeline_lib.rewards.verifier import RIGHT, UNPARSEABLE, WRONG, Verifier

# GSM8K's `#### 18 dollars`: the unit is not part of the answer.
_UNIT_WORDS = re.compile(r"(?<=[0-9])\s+[A-Za-z][A-Za-z ]*\.?$")
_IN_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf)\s*\{([^{}]*)\}")
_WORDS = re.compile(r"(?=.*[^\W\d_]{3})[^\W\d_]+(?:[ '’-][^\W\d_]+)*")


def _words(text: str) -> str | None:
    """Words in one case and without their spaces; None where the text is more, or may be a product of two variables."""
    folded = fold(text).removesuffix(".")
    inside = _IN_TEXT.fullmatch(folded)
    plain = inside[1].strip().removesuffix(".") if inside else folded
    return plain.replace(" ", "").casefold() if _WORDS.fullmatch(plain) else None


class Math(Verifier):
    isolated = True

    def gold_problem(self, prompt: Prompt) -> str | None:
        if plain_number(prompt.gold) is not None:
            return None
        from pipeline_lib.rewards import symbolic

        return None if symbolic.parse(prompt.gold) else f"math-verify finds no expression in {prompt.gold!r}"

    def normal_gold(self, gold: str) -> str:
        number = plain_number(gold)
        return fold(gold) if number is None else str(number)

    def extract(self, prompt: Prompt, completion: str) -> str | None:
        answer = boxed(completion)
        if answer is None and (rest := after_marker(completion, "####")) is not None:
            answer = _UNIT_WORDS.sub("", first_line(rest.removeprefix(":")))
        if answer is None:
            answer = answer_line(completion)
        return answer or None

    def settle(self, prompt: Prompt, answer: str) -> Verdict | None:
        if fold(answer) == fold(prompt.gold):
            return RIGHT
        # To math-verify Paris is a product of five variables, and Sirap the same one.
        if (gold_words := _words(prompt.gold)) is not None and (words := _words(answer)) is not None:
            return RIGHT if words == gold_words else WRONG
        gold_number, number = plain_number(prompt.gold), plain_number(answer)
        if gold_number is None or number is None:
            return None
        if gold_number == number:
            return RIGHT
        # Unequal decimals are left to math-verify, which knows 0.333333 for 1/3.
        return WRONG if gold_number.denominator == number.denominator == 1 else None

    def judge(self, prompt: Prompt, answer: str) -> Verdict:
        from pipeline_lib.rewards import symbolic

        expressions = symbolic.parse(answer)
        if not expressions:
            return UNPARSEABLE
        return RIGHT if symbolic.equal(symbolic.parse(prompt.gold), expressions) else WRONG

    def warm_up(self) -> None:
        from pipeline_lib.rewards import symbolic

        # Whatever it cannot read is no expression to it: broken, it would find every answer wrong.
        if not symbolic.equal(symbolic.parse("x+1"), symbolic.parse(r"\frac{2x+2}{2}")):
            raise RuntimeError(r"math-verify cannot tell that \frac{2x+2}{2} is x+1; install it and what it needs anew")
