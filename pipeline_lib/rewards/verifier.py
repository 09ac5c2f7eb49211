"""The base class of verifiers: extract one answer from a completion, then judge it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards.extract import fold

RIGHT = Verdict(reward=1.0, correct=True)
WRONG = Verdict(reward=0.0, correct=False)
UNPARSEABLE = Verdict(reward=0.0, correct=False, status="unparseable_answer")
TIMEOUT = Verdict(reward=None, correct=False, status="timeout")
TOO_SLOW = Verdict(reward=0.0, correct=False, status="timeout")
"""Of an answer that is itself a program: it was judged, and is wrong."""
ERROR = Verdict(reward=None, correct=False, status="error")


class Verifier(ABC):
    isolated = False
    """Whether `judge` may hang or eat memory, and so must run in a process that can be killed."""

    time_limit: float | None = None
    """Seconds that `judge` may take, where it keeps limits of its own; None leaves them to the grader."""

    @abstractmethod
    def gold_problem(self, prompt: Prompt) -> str | None:
        """Why this prompt's gold answer cannot be graded against; None when it can."""

    @abstractmethod
    def extract(self, prompt: Prompt, completion: str) -> str | None:
        """The answer a completion gives; None when it gives none. Must be cheap and safe."""

    @abstractmethod
    def judge(self, prompt: Prompt, answer: str) -> Verdict:
        """The verdict on an extracted answer."""

    def settle(self, prompt: Prompt, answer: str) -> Verdict | None:
        """The verdict where it takes no isolated work; None when only `judge` can tell."""
        return None if self.isolated else self.judge(prompt, answer)

    def normal_gold(self, gold: str) -> str:
        """Two golds of one prompt are the same when this is the same."""
        return fold(gold)

    def warm_up(self) -> None:  # noqa: B027
        """Import what `judge` needs; called once in a worker, outside the answers' time limit."""

    def grade(self, prompt: Prompt, completion: str) -> Verdict:
        """Extract and judge in this process; `Grader` does the same with limits on time and memory."""
        answer = self.extract(prompt, completion)
        if answer is None:
            return UNPARSEABLE
        return self.settle(prompt, answer) or self.judge(prompt, answer)
