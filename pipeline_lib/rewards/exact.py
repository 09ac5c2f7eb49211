"""Exact: the answer must be the gold text, white space folded.

With `marker` in verifier_args the answer is the text after the last marker, else the whole completion.
"""

from __future__ import annotations

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards.extract import after_marker, fold
from pipeline_lib.rewards.verifier import RIGHT, WRONG, Verifier


class Exact(Verifier):
    def gold_problem(self, prompt: Prompt) -> str | None:
        return None if fold(prompt.gold) else "the gold answer is empty"

    def extract(self, prompt: Prompt, completion: str) -> str | None:
        marker = prompt.verifier_args.get("marker")
        answer = after_marker(completion, marker) if marker else completion
        return (fold(answer) or None) if answer is not None else None

    def judge(self, prompt: Prompt, answer: str) -> Verdict:
        return RIGHT if answer == fold(prompt.gold) else WRONG
