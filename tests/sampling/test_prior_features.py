"""What is known before a rollout: counts by hand, neighbours by brute force, and no outcome in its own features."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra `difficulty`)")

from prior_cases import answered, rates_of, sums

from pipeline_lib.sampling.priors.features import Features, text_counts
from pipeline_lib.sampling.priors.neighbours import neighbour_features
from pipeline_lib.sampling.priors.rows import Row, Text, one_row_a_prompt
from pipeline_lib.sampling.priors.vectors import hashed_ngrams


def test_counts_by_hand() -> None:
    # 15 characters; "Add", "12+3", "and" , "4." ; 12, 3, 4; 1 2 3 4; +; A; a line's end; + and .
    assert text_counts(["Add 12+3\nand 4."]) == pytest.approx(np.log1p([[15, 4, 3, 4, 1, 1, 1, 2]]))
    assert text_counts([]).shape == (0, 8)


def test_the_nearest_are_weighted_by_their_cosine() -> None:
    known_MD = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    n_M, n_correct_M = np.array([4.0, 5.0, 8.0]), np.array([4.0, 0.0, 8.0])
    asked_ND = np.array([[1.0, 0.0]])
    near_N2 = neighbour_features(asked_ND, known_MD, n_M, n_correct_M, neighbours=2, leave_one_out=False)
    # Right: 1 + 1.0 * 4 + 0.6 * 0; wrong: 1 + 1.0 * 0 + 0.6 * 5.
    assert near_N2 == pytest.approx(np.array([[np.log(5 / 4), 0.8]]))
    near_N2 = neighbour_features(known_MD, known_MD, n_M, n_correct_M, neighbours=2, leave_one_out=True)
    # The first has 0.6 of the second and, at a right angle, nothing of the third.
    assert near_N2[0] == pytest.approx([np.log(1 / 4), 0.3])


def test_a_lone_text_has_no_neighbour() -> None:
    one = np.ones(1)
    assert neighbour_features(one[:, None], one[:, None], one, one, neighbours=3, leave_one_out=True).tolist() == [
        [0.0, 0.0]
    ]


@given(st.integers(2, 40), st.integers(0, 2**31), st.data())
def test_a_prompts_own_outcome_never_enters_its_features(count: int, seed: int, data: st.DataObject) -> None:
    texts = sums(count, seed=1)
    rows = answered(texts, rates_of(texts), n=8, seed=seed)
    vectorise = hashed_ngrams([text.text for text in texts])
    i = data.draw(st.integers(0, count - 1))
    other_outcome = Row(rows[i].text, data.draw(st.integers(1, 99)), 0)
    before = Features(rows, vectorise).of_history()
    after = Features([*rows[:i], other_outcome, *rows[i + 1 :]], vectorise).of_history()
    assert np.array_equal(before[i], after[i])
    assert not np.array_equal(before, after) or rows[i].n_correct == 0  # the others do see it


def test_left_out_is_what_the_rest_alone_would_say() -> None:
    texts = sums(30, seed=2)
    rows = answered(texts, rates_of(texts), n=8, seed=0)
    vectorise = hashed_ngrams([text.text for text in texts])
    whole = Features(rows, vectorise).of_history()
    for i in range(len(rows)):
        alone = Features([*rows[:i], *rows[i + 1 :]], vectorise).of([rows[i].text])
        assert whole[i] == pytest.approx(alone[0])


def test_many_rows_go_in_blocks_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = sums(50, seed=3)
    rows = answered(texts, rates_of(texts), n=8, seed=0)
    vectorise = hashed_ngrams([text.text for text in texts])
    at_once = Features(rows, vectorise).of_history()
    monkeypatch.setattr("pipeline_lib.sampling.priors.neighbours.ROWS_AT_ONCE", 7)
    assert Features(rows, vectorise).of_history() == pytest.approx(at_once)


def test_features_say_the_source_but_not_the_prompt_id() -> None:
    rows = [Row(Text(f"{i}", source, "1+1=?"), 8, 4) for i, source in enumerate(["a", "b"])]
    features = Features(rows, hashed_ngrams(["1+1=?"]))
    asked = [Text(name, source, "1+2=?") for name, source in (("x", "a"), ("y", "a"), ("z", "b"), ("w", "unseen"))]
    x, y, z, w = features.of(asked)
    assert np.array_equal(x, y)
    assert [row[-4:-2].tolist() for row in (x, z, w)] == [[1, 0], [0, 1], [0, 0]]


def test_texts_that_differ_in_digits_alone_are_one_place() -> None:
    vectors = hashed_ngrams(["1+2", "3*4"])(["7+8", "1+2", "1*2"]).toarray()
    assert np.array_equal(vectors[0], vectors[1])
    assert vectors[0] @ vectors[2] < 0.9
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)


def test_counts_of_a_prompt_are_added_up() -> None:
    a, b = Text("a", "s", "x"), Text("b", "s", "y")
    assert one_row_a_prompt([Row(a, 8, 3), Row(b, 0, 0), Row(a, 4, 4)]) == [Row(a, 12, 7)]


def test_without_scikit_learn_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ValueError, match=r'"rlsift\[difficulty\]".*prior.type=none'):
        hashed_ngrams(["1+1"])
