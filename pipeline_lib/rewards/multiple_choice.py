r"""Multiple choice: the letter in the last \boxed{}, else on the last `Answer:` line, else the whole completion.

A letter may stand in brackets, and its choice's text may follow: B, (B), [b], B) Paris, B - Paris, **B**, \text{B},
option B. A text that names a second letter the same way is no answer.
With `choices` (texts, in the order of their letters) in verifier_args, a choice's text alone is an answer too.
"""

from __future__ import annotations

import re
import string

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards.extract import answer_line, bare, boxed, fold
from pipeline_lib.rewards.verifier import RIGHT, UNPARSEABLE, WRONG, Verifier

_WRAPPERS = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_SPACES = re.compile(r"\\(?:[ ,;:!]|q?quad(?![A-Za-z]))|~")
_LETTER = re.compile(
    r"(?:(?:the\s+)?(?:option|choice|answer)\s+(?:is\s+)?)?"
    r"(?:[(\[{](?P<bracketed>[A-Z])[)\]}](?:[\s.:,].*)?|(?P<marked>[A-Z])[).:](?:\s.*)?"
    r"|(?P<bare>[A-Z])(?:\s+[-–—]\s.*|\s+\([^()]*\)\.?)?)",
    re.IGNORECASE | re.DOTALL,
)
_NAMED = re.compile(
    r"(?<![A-Z])[(\[]([A-Z])[)\]]|(?<![A-Z(\[])([A-Z])(?:\)|:(?=\s))|(?:\A|[,;\n]\s*)([A-E])\.\s", re.IGNORECASE
)
# B. or C., A, B, and B - C; but B. C may be vitamin C.
_ANOTHER = re.compile(
    r"\W*[A-Z](?:\W*(?:,|/|&|\bor\b|\band\b)\s*(?:option\s+|choice\s+)?|\s+[-–—]\s+)\W?[A-Z]\W*",
    re.IGNORECASE,
)


class MultipleChoice(Verifier):
    def gold_problem(self, prompt: Prompt) -> str | None:
        if _letter(prompt, prompt.gold) is None:
            return f"{prompt.gold!r} is neither a letter nor one of the choices"
        return None

    def normal_gold(self, gold: str) -> str:
        return letter(gold) or fold(gold)

    def extract(self, prompt: Prompt, completion: str) -> str | None:
        answer = boxed(completion)
        if answer is None:
            answer = answer_line(completion)
        return (completion if answer is None else answer).strip() or None

    def judge(self, prompt: Prompt, answer: str) -> Verdict:
        found = _letter(prompt, answer)
        if found is None:
            return UNPARSEABLE
        return RIGHT if found == _letter(prompt, prompt.gold) else WRONG


def letter(text: str) -> str | None:
    """The letter that an answer gives, upper case; None where it is no letter, or another one follows."""
    shown = _SPACES.sub(" ", _WRAPPERS.sub(r"\1", bare(text))).replace("*", "").replace("$", "")
    plain = "\n".join(line for line in map(fold, shown.splitlines()) if line)
    named = {name.upper() for names in _NAMED.findall(plain) for name in names if name}
    if len(named) > 1 or _ANOTHER.fullmatch(plain):
        return None
    match = _LETTER.fullmatch(plain)
    return next((group.upper() for group in match.groups() if group), None) if match else None


def _letter(prompt: Prompt, text: str) -> str | None:
    choices = {
        fold(choice).lower(): name for name, choice in zip(string.ascii_uppercase, _choices(prompt), strict=False)
    }
    return choices.get(fold(text).lower()) or letter(text)


def _choices(prompt: Prompt) -> list[str]:
    return [str(choice) for choice in prompt.verifier_args.get("choices", [])]
