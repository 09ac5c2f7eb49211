"""The rows that other projects write, by hand and in a few rows of their real shape, become the prompts they mean."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_cases import one, read, write

from flows import cli
from pipeline_lib.config import Columns, DataFormat, FileSource
from pipeline_lib.prompts import FORMATS
from pipeline_lib.prompts.files import open_rows
from pipeline_lib.prompts.rows import BadRow
from pipeline_lib.records import Prompt, prompt_id_of

QUESTION = "What is 12 · 15?"
USER = {"role": "user", "content": QUESTION}
CHAT = [
    {"role": "system", "content": "Reason step by step."},
    {"role": "user", "content": "What is 12 · 10?"},
    {"role": "assistant", "content": "120"},
    USER,
]
ANSWER = {"role": "assistant", "content": "180"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"name": "python"}]}
DAPO_TEXT = f"Solve the problem. The last line is Answer: $Answer.\n\n{QUESTION}\n\nRemember the last line."

# format -> a row, and the (data source, messages, gold, verifier) that it means
ROWS: dict[str, tuple[str, dict[str, Any], tuple[str, list[dict[str, str]], str]]] = {
    "trl prompt-only": ("trl", {"prompt": QUESTION, "solution": r"It is $\boxed{180}$."}, ("train", [USER], "180")),
    "trl conversational": ("trl", {"prompt": CHAT, "ground_truth": "180"}, ("train", CHAT, "180")),
    "verl gsm8k": (
        "verl",
        {
            "data_source": "openai/gsm8k",
            "prompt": [USER],
            "ability": "math",
            "reward_model": {"ground_truth": "180", "style": "rule"},
            "extra_info": {"answer": "#### 180", "index": 3, "question": QUESTION, "split": "train"},
        },
        ("openai/gsm8k", [USER], "180"),
    ),
    "DAPO-Math-17k": (
        "verl",
        {
            "data_source": "math_dapo",
            "prompt": [{"content": DAPO_TEXT, "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": "180", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"},
        },
        ("math_dapo", [{"role": "user", "content": DAPO_TEXT}], "180"),
    ),
    "DAPO-Math-17k-Processed": (
        "verl",
        {
            "prompt": QUESTION,
            "solution": "180",
            "data_source": "math_dapo",
            "source_prompt": [{"content": DAPO_TEXT, "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": "180", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "9a9b6eb4"},
        },
        ("math_dapo", [USER], "180"),
    ),
    "OpenRLHF": (
        "openrlhf",
        {"input": QUESTION, "label": "180", "datasource": "gsm"},
        ("gsm", [USER], "180"),
    ),
    "OpenRLHF recipes": ("openrlhf", {"prompt": CHAT, "label": 180}, ("train", CHAT, "180")),
    "open-instruct": (
        "open_instruct",
        {"messages": [USER], "ground_truth": "180", "dataset": "gsm8k"},
        ("gsm8k", [USER], "180"),
    ),
    "open-instruct, lists of one": (
        "open_instruct",
        {"messages": [USER], "ground_truth": ["180"], "dataset": ["math"]},
        ("math", [USER], "180"),
    ),
    "messages as JSON text": (
        "open_instruct",
        {"messages": json.dumps(CHAT), "ground_truth": "180", "source": "deepmath"},
        ("deepmath", CHAT, "180"),
    ),
    "GSM8K": (
        "gsm8k",
        {"question": QUESTION, "answer": "12 · 15 = <<12*15=180>>180\n#### 180"},
        ("gsm8k", [USER], "180"),
    ),
    "MATH": (
        "math",
        {
            "problem": QUESTION,
            "level": "Level 1",
            "solution": r"First \boxed{120}, then $\boxed{\dfrac{360}{2}}$.",
            "type": "Prealgebra",
        },
        ("train", [USER], r"\dfrac{360}{2}"),
    ),
    "MATH-500": (
        "math",
        {
            "problem": QUESTION,
            "solution": r"$\boxed{180^\circ}$",
            "answer": "180",
            "subject": "Prealgebra",
            "level": 1,
            "unique_id": "test/prealgebra/1.json",
        },
        ("train", [USER], "180"),
    ),
    "DeepScaleR": ("math", {"problem": QUESTION, "answer": "180", "solution": ""}, ("train", [USER], "180")),
    "OpenR1-Math": (
        "math",
        {
            "problem": QUESTION,
            "solution": "Long.",
            "answer": "180",
            "source": "olympiads",
            "uuid": "u",
            "messages": CHAT,
        },
        ("olympiads", [USER], "180"),
    ),
    "HumanEval": (
        "human_eval",
        {
            "task_id": "HumanEval/0",
            "prompt": QUESTION,
            "canonical_solution": "    return 180\n",
            "test": "def check(candidate):\n    assert candidate() == 180\n",
            "entry_point": "f",
        },
        (
            "train",
            [USER],
            json.dumps({"test": "def check(candidate):\n    assert candidate() == 180\n", "entry_point": "f"}),
        ),
    ),
    "question/answer": ("question_answer", {"question": QUESTION, "answer": 180}, ("train", [USER], "180")),
}


@pytest.mark.parametrize("case", ROWS)
def test_a_row_of_each_format(tmp_path: Path, case: str) -> None:
    form, row, (data_source, messages, gold) = ROWS[case]
    path = write(tmp_path / "train.jsonl", [row])
    opened = open_rows(FileSource(path=str(path)))
    assert opened.read_as == f"{form} ({FORMATS[form].wants})"
    [(index, prompt)] = opened.prompts
    assert index == 0 and isinstance(prompt, Prompt), prompt
    assert (prompt.data_source, list(prompt.messages), prompt.gold) == (data_source, messages, gold)
    assert prompt.verifier == ("code" if form == "human_eval" else "math")


def test_each_format_can_be_named_and_has_a_row_here() -> None:
    assert set(get_args(DataFormat)) == {"auto", *FORMATS} == {form.value for form in cli.DataFormat}
    assert {form for form, _, _ in ROWS.values()} == set(FORMATS)


def test_the_extra_columns_of_math_are_kept(tmp_path: Path) -> None:
    prompt = one(write(tmp_path / "a.jsonl", [ROWS["MATH-500"][1]]))
    assert prompt.extra == {"level": 1, "subject": "Prealgebra", "unique_id": "test/prealgebra/1.json"}


def in_format(form: str, conversation: Any) -> dict[str, Any]:
    """A row whose question is this conversation."""
    case = next(case for case, (name, _, _) in ROWS.items() if name == form)
    row = ROWS[case][1]
    [column] = {"prompt", "input", "messages", "problem", "question"} & row.keys()
    return {**row, column: conversation}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("answer", [[ANSWER], [CALL, {"role": "tool", "content": "180"}, ANSWER], []])
@pytest.mark.parametrize("written", [list, json.dumps])
def test_what_the_assistant_answers_is_no_part_of_a_prompt(
    tmp_path: Path, form: str, answer: list[dict[str, Any]], written: Callable[[Any], Any]
) -> None:
    row = in_format(form, written([*CHAT, *answer]))
    assert list(one(write(tmp_path / "a.jsonl", [row])).messages) == CHAT


def test_an_answer_is_no_part_of_a_prompt_in_a_named_column(tmp_path: Path) -> None:
    [prompt] = mapped(write(tmp_path / "a.jsonl", [{"q": [*CHAT, ANSWER], "a": 180}]), prompt="q", gold="a")
    assert isinstance(prompt, Prompt) and list(prompt.messages) == CHAT


@pytest.mark.parametrize("text", ["[1, 2] has how many entries?", "[1, 2]", '[{"a": 1}]', "[" * 100_000, "[{"])
def test_a_text_that_is_no_conversation_stays_a_text(tmp_path: Path, text: str) -> None:
    prompt = one(write(tmp_path / "a.jsonl", [{"prompt": text, "answer": "2"}]))
    assert prompt.messages == ({"role": "user", "content": text},)


def test_objects_as_json_text(tmp_path: Path) -> None:
    row = ROWS["verl gsm8k"][1]
    texts = {name: json.dumps(value) if name != "data_source" else value for name, value in row.items()}
    assert one(write(tmp_path / "texts.jsonl", [texts])) == one(write(tmp_path / "values.jsonl", [row]))
    [bad] = read(write(tmp_path / "a.jsonl", [{**row, "reward_model": "[1]"}]))
    assert isinstance(bad, BadRow) and "reward_model must hold ground_truth, found '[1]'" in bad.detail


def test_the_parts_of_a_message_are_one_text(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "What is ", "image": None}, {"type": "text", "text": "12 · 15?"}]
    row = {"prompt": [{"role": "user", "content": parts, "tool_calls": None}], "answer": "180"}
    assert list(one(write(tmp_path / "a.jsonl", [row])).messages) == [USER]


@pytest.mark.parametrize("index", [7, "9a-b", None])
def test_verl_rows_of_any_index_are_told_apart_by_content(tmp_path: Path, index: int | str | None) -> None:
    row = ROWS["verl gsm8k"][1]
    info = {"extra_info": {} if index is None else {"index": index}}
    rows = [row | info, row | info | {"prompt": CHAT}]
    first, second = read(write(tmp_path / "a.jsonl", rows))
    assert isinstance(first, Prompt) and isinstance(second, Prompt)
    assert first.prompt_id != second.prompt_id
    assert first.extra == ({} if index is None else {"index": index})


@pytest.mark.parametrize(
    ("row", "reason", "said"),
    [
        ({"problem": "?", "solution": "It is 5."}, "no_gold", r"no \boxed{} in the solution 'It is 5.'"),
        ({"problem": "?", "solution": r"\boxed{5"}, "unparseable_gold", "never closed"),
        ({"problem": "?", "solution": r"\boxed{5} or \boxed{}"}, "unparseable_gold", "empty"),
        ({"problem": "?", "solution": None}, "no_gold", "found None"),
        ({"problem": " ", "answer": "5"}, "no_prompt", "must not be empty, found ' '"),
        ({"input": "?", "label": True}, "no_gold", "found True"),
        ({"input": "?", "label": ""}, "no_gold", "not empty, found ''"),
        ({"messages": [USER], "ground_truth": ["1", "2"]}, "no_gold", "found ['1', '2']"),
        ({"messages": [USER], "ground_truth": "{}", "dataset": "ifeval"}, "no_verifier", "ifeval"),
        ({"messages": "[{", "ground_truth": "1"}, "no_prompt", "messages must be a list, or one as JSON"),
        ({"messages": [{"role": "system", "content": "x"}], "ground_truth": "1"}, "no_prompt", "found ['system']"),
        ({"question": "?", "answer": None}, "no_gold", "found None"),
        ({"prompt": [USER, CALL, USER], "answer": 1}, "no_prompt", "without tool calls, found {'role': 'assistant'"),
        ({"prompt": [{"role": "human", "content": "?"}, USER], "answer": 1}, "no_prompt", "found 'human'"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}], "answer": 1}, "no_prompt", "{'type': 'image'}"),
        ({"prompt": str([USER]), "answer": 1}, "no_prompt", "which Python's str() is not"),
    ],
)
def test_a_bad_row_says_value_and_rule(tmp_path: Path, row: dict[str, Any], reason: str, said: str) -> None:
    [bad] = read(write(tmp_path / "a.jsonl", [row]))
    assert isinstance(bad, BadRow) and bad.reason == reason
    assert said.replace("\\", "\\\\") in bad.detail or said in bad.detail


@pytest.mark.parametrize(
    ("row", "formats"),
    [
        ({"prompt": "?", "answer": "1", "label": "2"}, ("trl", "openrlhf")),
        ({"problem": "?", "question": "?", "answer": "1"}, ("math", "question_answer")),
        ({"messages": [USER], "prompt": "?", "ground_truth": "1"}, ("trl", "open_instruct")),
    ],
)
def test_columns_of_two_formats_are_refused(tmp_path: Path, row: dict[str, Any], formats: tuple[str, str]) -> None:
    path = write(tmp_path / "a.jsonl", [row])
    with pytest.raises(ValueError, match="More than one format has them") as caught:
        read(path)
    for text in (str(path), ", ".join(sorted(row)), *(FORMATS[name].wants for name in formats), "--format", "--map"):
        assert text in str(caught.value)
    for name in formats:
        assert isinstance(read(path, format=name)[0], Prompt)


def test_question_and_answer_are_gsm8k_by_their_marker(tmp_path: Path) -> None:
    plain = [{"question": "a?", "answer": "1"}] * 3
    marked = [*plain, {"question": "b?", "answer": "so\n#### 2"}]
    assert [p.data_source for p in read(write(tmp_path / "plain.jsonl", plain))] == ["plain"] * 3  # type: ignore[union-attr]
    rows = read(write(tmp_path / "marked.jsonl", marked))
    assert [isinstance(row, Prompt) for row in rows] == [False, False, False, True]


def mapped(path: Path, **columns: str) -> list[Prompt | BadRow]:
    return read(path, columns=Columns(**columns))


def test_named_columns_lead_into_nested_values(tmp_path: Path) -> None:
    row = {"chat": {"turns": CHAT}, "reward": {"answers": ["180", "181"]}, "from.where": "x/y", "level": 2}
    path = write(tmp_path / "a.jsonl", [row])
    [prompt] = mapped(path, prompt="chat.turns", gold="reward.answers.0", source="from.where")
    assert prompt == Prompt("x/y", tuple(CHAT), "180", "math")


def test_named_columns_that_are_not_there_are_refused_and_values_that_are_not_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"q": "1+1?", "a": {"x": 2}}, {"q": "1+2?", "a": {}}, {"q": {}, "a": {"x": 2}}])
    with pytest.raises(ValueError, match=r"columns found: a, q\.\n.*wants query, a\.x"):
        mapped(path, prompt="query", gold="a.x")
    good, no_gold, no_prompt = mapped(path, prompt="q", gold="a.x")
    assert isinstance(good, Prompt)
    assert isinstance(no_gold, BadRow) and no_gold.reason == "no_gold"
    assert isinstance(no_prompt, BadRow) and no_prompt.reason == "no_prompt"


def test_either_format_or_columns() -> None:
    with pytest.raises(ValueError, match="either `format` or `columns`"):
        FileSource(path="a.jsonl", format="gsm8k", columns=Columns(prompt="a", gold="b"))


# --- identity -------------------------------------------------------------------------------------------

TEXT = st.text('a"\\/\n\r\t\x00\x1f\x7fé中😀\u2028', max_size=12)


@given(source=TEXT, turns=st.lists(st.tuples(TEXT, TEXT), max_size=4))
def test_a_prompts_id_is_that_of_its_json(source: str, turns: list[tuple[str, str]]) -> None:

    content = json.dumps([source, [list(turn) for turn in turns]], ensure_ascii=False)
    messages: Any = [{"role": role, "content": text} for role, text in turns]
    assert prompt_id_of(source, messages) == hashlib.sha256(content.encode()).hexdigest()[:16]


def test_a_known_id_has_not_changed() -> None:
    assert prompt_id_of("gsm8k", ({"role": "user", "content": 'Wie "viel" ist 1+1?\n'},)) == "f33ad258998c3fe8"
