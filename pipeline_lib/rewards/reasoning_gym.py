"""reasoning-gym's own scorers: partial credit between 0 and 1, correct at 1.

verifier_args names the `dataset` and, where it is not the default, its `config`; the prompt's extra["entry"]
holds question, answer and metadata.

The answer is the content of the last <answer>...</answer>. Without the tags it is the first line, or the
first paragraph where the gold answer has several lines: small models that were shown examples ramble on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pipeline_lib.records import Prompt, Verdict
from pipeline_lib.rewards.extract import answer_tag, first_line
from pipeline_lib.rewards.verifier import UNPARSEABLE, Verifier

CORRECT_FROM = 1 - 1e-9

Scorer = Callable[[str, dict[str, Any]], float]


class ReasoningGym(Verifier):
    isolated = True

    def gold_problem(self, prompt: Prompt) -> str | None:
        """The scorer must give its own answer full marks, else it cannot work on this entry."""
        entry = prompt.extra.get("entry")
        if not isinstance(entry, Mapping) or not {"question", "answer", "metadata"} <= entry.keys():
            return 'extra["entry"] must hold question, answer and metadata'
        try:
            score = _score(prompt, prompt.gold)
        except Exception as error:
            return f"its scorer fails on its own answer {prompt.gold!r}: {type(error).__name__}: {error}"
        return None if score >= CORRECT_FROM else f"its scorer gives its own answer {prompt.gold!r} only {score}"

    def extract(self, prompt: Prompt, completion: str) -> str | None:
        answer = answer_tag(completion)
        if answer is None:
            several_lines = "\n" in prompt.gold.strip()
            answer = completion.strip().partition("\n\n")[0] if several_lines else first_line(completion)
        return answer or None

    def judge(self, prompt: Prompt, answer: str) -> Verdict:
        try:
            score = _score(prompt, answer)
        except MemoryError:
            raise
        except Exception:  # the scorer was shown to work on this entry, so it is the answer that it cannot read
            return UNPARSEABLE
        return Verdict(reward=score, correct=score >= CORRECT_FROM)

    def warm_up(self) -> None:
        import reasoning_gym  # noqa: F401


def _score(prompt: Prompt, answer: str) -> float:
    args = prompt.verifier_args
    scorer = _scorer(args["dataset"], json.dumps(args.get("config", {}), sort_keys=True))
    return min(max(float(scorer(answer, dict(prompt.extra["entry"]))), 0.0), 1.0)


@lru_cache(maxsize=64)
def _scorer(name: str, config: str) -> Scorer:
    import reasoning_gym

    scorer: Scorer = reasoning_gym.create_dataset(name, **json.loads(config)).score_answer
    return scorer
