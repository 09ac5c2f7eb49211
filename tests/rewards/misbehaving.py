"""Verifiers that hang, eat memory, crash and raise, for the tests of the grader."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards.verifier import RIGHT, WRONG, Verifier


class Misbehaving(Verifier):
    """Does what the answer says; else compares it with the gold."""

    isolated = True

    def gold_problem(self, prompt: Prompt) -> str | None:
        return None

    def extract(self, prompt: Prompt, completion: str) -> str | None:
        return completion or None

    def judge(self, prompt: Prompt, answer: str) -> Verdict:
        if answer.startswith("tell "):
            _, told, _, answer = answer.split(" ", 3)
            with Path(told).open("a") as file:
                file.write("judged\n")
        if answer.startswith("hang in Python"):
            while True:
                time.sleep(0.01)
        if answer.startswith("hang in C"):
            # One call of the interpreter's long-integer code, which looks at no signal before it is done.
            int("9" * 4000) ** (10**7)
        if answer.startswith("eat"):
            hoard = []
            while True:
                hoard.append(bytearray(2**24))
        if answer.startswith("crash"):
            os.abort()
        if answer.startswith("raise"):
            raise KeyError(answer)
        if answer.startswith("nan"):
            return Verdict(reward=float(answer), correct=False)
        return RIGHT if answer == prompt.gold else WRONG


class Gentle(Misbehaving):
    isolated = False


class Unstartable(Misbehaving):
    def warm_up(self) -> None:
        raise ImportError("a library is missing")
