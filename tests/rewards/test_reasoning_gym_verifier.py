"""reasoning-gym's scorers work on entries that have been through JSON."""

from __future__ import annotations

import json

import pytest

from pipeline_lib.config import ReasoningGymSource, ReasoningGymTask
from pipeline_lib.prompts.reasoning_gym import read_reasoning_gym
from pipeline_lib.records import Prompt
from pipeline_lib.rewards import get_verifier
from pipeline_lib.rewards.grader import Grader
from pipeline_lib.rewards.verifier import RIGHT, UNPARSEABLE

TASKS = [
    "chain_sum", "letter_counting", "gcd", "number_format", "products", "count_bits", "basic_arithmetic",
    "simple_equations", "lcm", "syllogism", "knights_knaves", "zebra_puzzles", "aiw", "leg_counting",
    "spell_backward", "base_conversion",
]  # fmt: skip


def through_json(prompt: Prompt) -> Prompt:
    """As the warehouse gives it back."""
    return Prompt(
        prompt.data_source,
        prompt.messages,
        prompt.gold,
        prompt.verifier,
        json.loads(json.dumps(prompt.verifier_args)),
        json.loads(json.dumps(prompt.extra)),
    )


@pytest.fixture(scope="module")
def prompts() -> dict[str, list[Prompt]]:
    source = ReasoningGymSource(tasks=[ReasoningGymTask(name=name, count=3) for name in TASKS])
    found: dict[str, list[Prompt]] = {}
    for _, prompt in read_reasoning_gym(source):
        assert isinstance(prompt, Prompt)
        found.setdefault(prompt.extra["kind"], []).append(through_json(prompt))
    return found


@pytest.mark.parametrize("name", TASKS)
def test_scorers(prompts: dict[str, list[Prompt]], name: str) -> None:
    verifier = get_verifier("reasoning_gym")
    for prompt in prompts[name]:
        assert verifier.gold_problem(prompt) is None
        assert verifier.grade(prompt, prompt.gold) == RIGHT
        assert verifier.grade(prompt, f"I see <answer>1</answer> <answer>\n{prompt.gold}</answer>.") == RIGHT
        assert verifier.grade(prompt, f"{prompt.gold}\nQuestion: and what is 5?") == RIGHT
        assert verifier.grade(prompt, f"<answer>{prompt.gold}") == UNPARSEABLE
        assert verifier.grade(prompt, "") == UNPARSEABLE
        assert not verifier.grade(prompt, "zzz 9 nonsense").correct


def test_partial_credit_is_not_correct(prompts: dict[str, list[Prompt]]) -> None:
    prompt = prompts["chain_sum"][0]
    verdict = get_verifier("reasoning_gym").grade(prompt, f"the answer is {prompt.gold}")
    assert verdict.reward is not None and 0 < verdict.reward < 1
    assert not verdict.correct


def test_an_answer_the_scorer_cannot_read_is_wrong() -> None:
    source = ReasoningGymSource(tasks=[ReasoningGymTask(name="prime_factorization", count=1)])
    [(_, prompt)] = read_reasoning_gym(source)
    assert isinstance(prompt, Prompt)
    assert get_verifier("reasoning_gym").grade(prompt, "nonsense") == UNPARSEABLE


def test_several_lines_are_one_answer() -> None:
    entry = {"question": "?", "answer": "1 2\n3 4", "metadata": {}}
    messages = ({"role": "user", "content": "?"},)
    args = {"dataset": "chain_sum"}
    prompt = Prompt("test", messages, entry["answer"], "reasoning_gym", args, {"entry": entry})
    assert get_verifier("reasoning_gym").grade(prompt, "1 2\n3 4\n\nQuestion: more?") == RIGHT


def test_an_entry_that_its_scorer_cannot_grade_is_a_bad_gold() -> None:
    verifier = get_verifier("reasoning_gym")
    messages = ({"role": "user", "content": "?"},)
    args = {"dataset": "prime_factorization"}
    entry = {"question": "?", "answer": "5", "metadata": {}}
    without = Prompt("test", messages, "5", "reasoning_gym", args)
    assert "entry" in (verifier.gold_problem(without) or "")
    broken = Prompt("test", messages, "x", "reasoning_gym", args, {"entry": entry})
    assert "fails on its own answer" in (verifier.gold_problem(broken) or "")


def test_in_processes(prompts: dict[str, list[Prompt]]) -> None:
    with Grader(workers=1) as grader:
        items = [(p, p.gold) for name in ("gcd", "lcm") for p in prompts[name]]
        assert grader.grade(items) == [RIGHT] * len(items)


def test_two_entries_with_one_question_and_one_gold_are_graded_each_by_its_own() -> None:
    def prompt(numbers: list[int], target: int) -> Prompt:
        entry = {"question": "?", "answer": "2 + 3", "metadata": {"numbers": numbers, "target": target}}
        messages = ({"role": "user", "content": "?"},)
        return Prompt("test", messages, "2 + 3", "reasoning_gym", {"dataset": "countdown"}, {"entry": entry})

    with Grader(workers=1) as grader:
        one, other = grader.grade([(prompt([2, 3], 5), "3 + 2"), (prompt([2, 3, 4], 9), "3 + 2")])
    assert one == RIGHT
    assert not other.correct
