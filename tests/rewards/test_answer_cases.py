"""One table of what each verifier says of an answer: right, wrong, or no answer that it can read."""

from __future__ import annotations

import pytest
from grading import grade, prompt

from pipeline_lib.records import Verdict
from pipeline_lib.rewards import get_verifier
from pipeline_lib.rewards.verifier import RIGHT, UNPARSEABLE, WRONG

Case = tuple[str, str, Verdict]


NUMBERS: list[Case] = [
    ("10000", r"\boxed{10\,000}", RIGHT),
    ("0", r"\boxed{10\,000}", WRONG),
    ("10000", r"\boxed{10\;000}", RIGHT),
    ("10000", r"\boxed{10 000}", RIGHT),
    ("10000", r"\boxed{10{,}000}", RIGHT),
    ("10000", r"\boxed{10,\!000}", RIGHT),
    (r"10\,000", r"\boxed{10000}", RIGHT),
    ("5/2", r"\boxed{2 1/2}", RIGHT),
    (r"2\frac{1}{2}", r"\boxed{2.5}", RIGHT),
    ("1", r"\boxed{2\frac12}", WRONG),
    ("5", r"so $\boxed 5$.", RIGHT),
    ("12", r"so \boxed12", RIGHT),
    ("5", r"\boxed{x = 5}", RIGHT),
    ("5", r"\boxed{2 + 3 = 5}", RIGHT),
    ("1/3", r"\boxed{0.33 = \frac13}", RIGHT),
    ("-5", r"\boxed{x = - 5}", RIGHT),
    ("5", r"\boxed{x = - 5}", WRONG),
    ("-5", r"\boxed{–5}", RIGHT),
    ("-5", r"\boxed{−5}", RIGHT),
    ("-1/2", r"\boxed{-\frac12}", RIGHT),
    ("5", r"\boxed{5 dollars}", RIGHT),
    ("5", r"\boxed{€5}", RIGHT),
    ("5", r"\boxed{\$5}", RIGHT),
    ("5", r"\boxed{5\text{ cm}}", RIGHT),
    ("5", r"\boxed{5\,\mathrm{cm}^2}", RIGHT),
    ("5", r"\boxed{5 cm^2}", RIGHT),
    ("90", r"\boxed{90^\circ}", RIGHT),
    ("50", r"\boxed{50\%}", RIGHT),
    ("5", r"\boxed{5\text{ million}}", WRONG),
    ("5000000", r"\boxed{5\text{ million dollars}}", RIGHT),
    ("18 dollars", r"\boxed{18}", RIGHT),
    ("18 dollars", r"\boxed{18 dollars}", RIGHT),
    ("18 dollars", r"\boxed{\$18}", RIGHT),
    ("18 dollars", r"\boxed{19}", WRONG),
    ("5", r"\boxed{**5**}", RIGHT),
    ("5", r"\boxed{`5`}", RIGHT),
    ("4", r"\boxed{4\ }", RIGHT),
    ("5", r"\boxed{\color{red}{5}}", RIGHT),
    ("5", r"\boxed{\textcolor{red}{5}}", RIGHT),
    ("5", r"\boxed{{\color{red} 5}}", RIGHT),
    ("6", r"\boxed{\textcolor{red}{5}}", WRONG),
]
"""Of plain numbers in boxes, the same for math and numeric."""


@pytest.mark.parametrize("verifier", ["math", "numeric"])
@pytest.mark.parametrize(("gold", "completion", "verdict"), NUMBERS)
def test_numbers_in_boxes(verifier: str, gold: str, completion: str, verdict: Verdict) -> None:
    assert grade(gold, completion, verifier) == verdict


@pytest.mark.parametrize(
    ("gold", "completion", "verdict"),
    [
        ("5", r"\boxed{1,2,3,4,5}", UNPARSEABLE),
        ("5", r"\boxed{\sqrt{5}}", UNPARSEABLE),
        ("3", r"\boxed{10^3}", UNPARSEABLE),
        ("2", r"\boxed{x^2}", UNPARSEABLE),
        ("56", r"\boxed{$5$$6$}", UNPARSEABLE),
        ("5", r"\boxed{5x}", UNPARSEABLE),
        ("5", r"\boxed{x + 1 = 5}", UNPARSEABLE),
        ("5", r"\boxed{3 = 5}", UNPARSEABLE),
        ("5", r"\boxed{1=2=5}", UNPARSEABLE),
        ("6", r"\boxed{5 or 6}", UNPARSEABLE),
        ("1080", r"\boxed{\text{Total} = 1{,}080}", RIGHT),
        ("5", r"\boxed{x_1 = 5}", RIGHT),
        ("5", r"\boxed{x \approx 5}", RIGHT),
        ("0", "it is 10 000", WRONG),
        ("10000", r"it is $10\,000$", RIGHT),
        ("5", "so x = - 5", WRONG),
        ("-5", "so x = - 5", RIGHT),
        ("6", "first $5$ then $6$", RIGHT),
        ("50%", "so 50", RIGHT),
    ],
)
def test_numeric(gold: str, completion: str, verdict: Verdict) -> None:
    assert grade(gold, completion, "numeric") == verdict


@pytest.mark.parametrize(
    ("gold", "completion", "verdict"),
    [
        # where the answer stands
        ("34", r"\boxed{34}" + " and so on" * 100, RIGHT),
        ("34", r"\boxed{34}, no, \boxed{35}", WRONG),
        ("34", r"\boxed{34}, no, \boxed{35", UNPARSEABLE),
        ("34", "34", UNPARSEABLE),
        ("34", "", UNPARSEABLE),
        ("34", r"#### 35, that is \boxed{34.0}", RIGHT),
        ("34", "#### 34 dollars.\nQuestion: 5?", RIGHT),
        ("34", "#### 34\n" + "and so on" * 100, RIGHT),
        ("180", r"\boxed{180}", RIGHT),
        ("1080", "####: $1,080", RIGHT),
        ("34", "#### 34\nAnswer: 35", RIGHT),
        ("34", "Answer: 35\nAnswer: $34$", RIGHT),
        ("0.5", r"\boxed{\frac{1}{2}}", RIGHT),
        ("-1", r"\boxed{−1}", RIGHT),
        (r"2\sqrt{3}", r"\fbox{\sqrt{12}}", RIGHT),
        ("x^2+2x+1", r"\boxed{(x+1)^2}", RIGHT),
        ("x^2+2x+1", r"\boxed{(x-1)^2}", WRONG),
        (r"\{1,2\}", r"\boxed{\{2, 1\}}", RIGHT),
        ("34", r"\boxed{\frac{}{)(}}", UNPARSEABLE),
        ("Paris", r"\boxed{Sirap}", WRONG),
        ("Paris", r"\boxed{\text{paris.}}", RIGHT),
        (r"\text{New York}", "Answer: new york.", RIGHT),
        ("east", r"\boxed{\text{seat}}", WRONG),
        ("ab", r"\boxed{ba}", RIGHT),
        ("x-y-z", r"\boxed{-z+x-y}", RIGHT),
        ("4", "**Answer**: 4", RIGHT),
        ("4", "**Answer:** `4`", RIGHT),
        ("4", "Answer：4", RIGHT),
        ("4", "Answer:\n$$\n4\n$$\nbye", RIGHT),
        ("4", "Answer:\n\\[\n4\n\\]", RIGHT),
        ("4", "Answer: $$4$$ or $$5$$", WRONG),
        ("4", "Answer:\n$$\n4", UNPARSEABLE),
        ("4", "#### **4**", RIGHT),
        ("4", "#### `4`.", RIGHT),
        # equations
        ("5", r"\boxed{3 = 5}", WRONG),
        ("5", r"\boxed{1=2=5}", WRONG),
        ("56", r"\boxed{$5$$6$}", WRONG),
        ("x=5", r"\boxed{5}", RIGHT),
        ("x=5", r"\boxed{y=5}", WRONG),
        # units
        ("18 dollars", "#### 18 dollars", RIGHT),
        ("18 dollars", "#### 18", RIGHT),
        ("18", "#### 18 dollars", RIGHT),
        ("18", "#### 18 apples and pears", RIGHT),
        ("18", "#### 18 x", WRONG),
        ("5 cm", r"\boxed{5 m}", WRONG),
        ("5 cm", r"\boxed{5\text{ cm}}", RIGHT),
        ("5 cm", r"\boxed{5 cm^2}", WRONG),
        (r"120\text{ square inches}", r"\boxed{120\text{ in}^2}", RIGHT),
        ("5 feet", r"\boxed{5 ft}", RIGHT),
        ("5 feet", r"\boxed{5 square feet}", WRONG),
        ("18 dollars", r"\boxed{18 dollars in total}", RIGHT),
        ("18 dollars", r"\boxed{18 cents}", WRONG),
        ("2 xyz", r"\boxed{2 xyw}", WRONG),
        ("1 mile", r"\boxed{1 miles}", RIGHT),
        (r"5\text{ cm}", r"\boxed{5\text{ m}}", WRONG),
        (r"\sqrt{5}\text{ cm}", r"\boxed{\sqrt 5}", RIGHT),
        ("1/3", r"\boxed{0.333333 dollars}", RIGHT),
        ("2t", r"\boxed{2s}", WRONG),
        ("2xy", r"\boxed{2yx}", RIGHT),
        ("2x^2", r"\boxed{2xx}", RIGHT),
        ("5", r"\boxed{5x}", WRONG),
        ("5", r"\boxed{5 or 6}", WRONG),
        ("5%", r"\boxed{0.05}", RIGHT),
        ("5%", r"\boxed{5}", RIGHT),
        ("11_2", r"\boxed{11_3}", WRONG),
        ("11_2", r"\boxed{11_{2}}", RIGHT),
        ("11_2", r"\boxed{11}", RIGHT),
        ("11_2", r"\boxed{3}", WRONG),
        ("10000\\sqrt{2}", r"\boxed{10\,000\sqrt{2}}", RIGHT),
        # answers that cannot be compared with the gold
        (r"x\ne 2", r"\boxed{x\ne 3}", UNPARSEABLE),
        (r"x\ne 2", r"\boxed{x\neq 2}", RIGHT),
        ("5", r"\boxed{1/0}", WRONG),
        # words
        ("true", r"\boxed{\text{True}}", RIGHT),
        ("true", r"\boxed{false}", WRONG),
        ("twenty-one", r"\boxed{twenty one}", RIGHT),
        ("O'Neil", r"\boxed{O’Neil}", RIGHT),
        ("New York", r"\boxed{\text{New\ York}}", RIGHT),
        ("cafe\u0301", "\\boxed{caf\u00e9}", RIGHT),
        ("no", r"\boxed{on}", WRONG),
        ("no", r"\boxed{\text{No.}}", RIGHT),
        ("Paris, Rome", r"\boxed{Sirap, Rome}", WRONG),
        ("Paris, Rome", r"\boxed{Rome, Paris}", RIGHT),
        ("Paris 2024", r"\boxed{Sirap 2024}", WRONG),
        ("abc", r"\boxed{bca}", WRONG),
        ("abc", r"\boxed{c \cdot a \cdot b}", RIGHT),
        ("AC", r"\boxed{CA}", RIGHT),
        # dates and times
        ("2017", r"\boxed{2020-01-02}", WRONG),
        ("2020-01-02", r"\boxed{2017}", WRONG),
        ("2020-01-02", r"\boxed{2020-01-02}", RIGHT),
        ("12:00", r"\boxed{12:01}", WRONG),
        ("12:00", r"\boxed{12:00}", RIGHT),
        ("3:30 pm", r"\boxed{3:30\text{ p.m.}}", RIGHT),
        ("3:30 pm", r"\boxed{3:30 am}", WRONG),
        ("11:30", r"\boxed{11:30 \text{ a.m.}}", RIGHT),
        ("11:30 pm", r"\boxed{11:30}", RIGHT),
        ("3:4", r"\boxed{6:8}", RIGHT),
        # names of functions
        ("cos x", r"\boxed{\cos x}", RIGHT),
        (r"\sin(2x)", r"\boxed{sin(2x)}", RIGHT),
        ("cos x", r"\boxed{\sin x}", WRONG),
        ("pi", r"\boxed{\pi}", RIGHT),
        (r"5\pi", r"\boxed{5 pi}", RIGHT),
        ("5", r"\boxed{5 pi}", WRONG),
        # lists
        ("1,2,3", r"\boxed{3,2,1}", RIGHT),
        ("(1,2)", r"\boxed{(2,1)}", WRONG),
        ("(1,2)", r"\boxed{\left(1,2\right)}", RIGHT),
    ],
)
def test_math(gold: str, completion: str, verdict: Verdict) -> None:
    assert grade(gold, completion, "math") == verdict


@pytest.mark.parametrize(
    ("gold", "completion", "verdict"),
    [
        ("A", r"\boxed{A) no, B) yes}", UNPARSEABLE),
        ("B", r"\boxed{B) or C)}", UNPARSEABLE),
        ("A", "Answer: A. no, B. yes", UNPARSEABLE),
        ("B", "Answer: B. or C.", UNPARSEABLE),
        ("B", "Answer: B - C", UNPARSEABLE),
        ("B", r"\boxed{\textbf{(B)}\ 12}", RIGHT),
        ("B", r"\boxed{(B)\qquad 12}", RIGHT),
        ("B", "Answer: B - Paris", RIGHT),
        ("B", "Answer: B – Paris", RIGHT),
        ("B", "Answer: B (Paris)", RIGHT),
        ("B", "**Answer**: B", RIGHT),
        ("B", "Answer: `B`", RIGHT),
        ("B", r"\boxed{\color{red}{B}}", RIGHT),
        ("B", "Answer: B. C", RIGHT),
        ("B", "Answer: B) f(a) = 2", RIGHT),
        ("A", "Answer: A cat (x)", UNPARSEABLE),
    ],
)
def test_multiple_choice(gold: str, completion: str, verdict: Verdict) -> None:
    assert grade(gold, completion, "multiple_choice") == verdict


@pytest.mark.parametrize("gold", ["1/0", r"\frac{0}{0}", "nan", "NaN", "null", ")(", "(" * 300 + "1" + ")" * 300])
def test_a_gold_that_no_answer_can_meet_is_refused(gold: str) -> None:
    assert get_verifier("math").gold_problem(prompt(gold, "math")) is not None


@pytest.mark.parametrize(
    "gold", ["true", "no solution", "12:00", "18 dollars", "2t", r"x \ne 2", r"\infty", r"\emptyset", "cos x", "ab"]
)
def test_a_gold_that_is_its_own_answer_is_taken(gold: str) -> None:
    assert get_verifier("math").gold_problem(prompt(gold, "math")) is None
    assert grade(gold, rf"\boxed{{{gold}}}", "math") == RIGHT


@pytest.mark.parametrize("verifier", ["math", "numeric"])
@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0.5", r"\frac12", True),
        ("1,000", r"1\,000", True),
        ("2.5", r"2\frac{1}{2}", True),
        ("18 dollars", "18 dollar", True),
        ("1000", "1001", False),
    ],
)
def test_one_gold_in_two_spellings(verifier: str, one: str, other: str, same: bool) -> None:
    normal = get_verifier(verifier).normal_gold
    assert (normal(one) == normal(other)) == same
