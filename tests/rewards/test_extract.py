"""The last sign decides: markers, boxes, answer lines, tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.rewards.extract import after_marker, answer_line, answer_tag, boxed

balanced = st.recursive(
    st.text(alphabet="ab1 +\n", max_size=5) | st.sampled_from([r"\{", r"\}", r"\\", r"\frac"]),
    lambda inner: st.lists(inner | inner.map(lambda text: f"{{{text}}}"), max_size=4).map("".join),
    max_leaves=12,
)


@given(before=st.text(max_size=20), content=balanced, after=st.text(alphabet="ab1 {}$.\n", max_size=300))
def test_a_balanced_box_gives_its_content(before: str, content: str, after: str) -> None:
    assert boxed(f"{before} \\boxed{{{content}}}{after}") == content.strip()
    assert boxed(f"\\boxed{{earlier}} {before} \\fbox {{{content}}}{after}") == content.strip()


@given(content=balanced)
def test_an_unterminated_last_box_is_no_answer(content: str) -> None:
    assert boxed(f"\\boxed{{34}} and \\boxed{{{content}") == ""


@given(text=st.text(alphabet="\\boxedf{} 1", max_size=60))
def test_any_text_is_safe(text: str) -> None:
    box = boxed(text)
    assert box is None or box in text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("34", None),
        (r"\boxed{}", ""),
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{4}" + " waffle" * 200, "4"),
        (r"boxed{4}", None),
    ],
)
def test_boxes(text: str, answer: str | None) -> None:
    assert boxed(text) == answer


def test_markers() -> None:
    assert after_marker("3+58;8-26|6", "|") == "6"
    assert after_marker("1|2|", "|") == ""
    assert after_marker("12", "|") is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: 5\nAnswer: 6", "6"),
        ("**Answer:** 7**", "7"),
        ("the answer : $x$ .\nbye", "$x$ ."),
        ("Answer:\n8", "8"),
        ("Answer: 8\nAnswer:", ""),
        ("8", None),
        ("reanswer: 8", None),
    ],
)
def test_answer_lines(text: str, answer: str | None) -> None:
    assert answer_line(text) == answer


def test_answer_tags() -> None:
    assert answer_tag("<answer>1</answer> <Answer>\n2 3\n</Answer> more") == "2 3"
    assert answer_tag("<answer>1</answer> <answer>2") == ""
    assert answer_tag("1") is None
