r"""MATH and its kin: `problem`, and the gold in `answer`, else in the last \boxed{} of `solution`.

MATH has no `answer`; MATH-500, DeepScaleR and OpenR1-Math have one.
"""

from __future__ import annotations

from collections.abc import Collection

from pipeline_lib.prompts.rows import BadRow, Draft, Format, Row, blank, json_safe, messages_of, short, source_of
from pipeline_lib.rewards.extract import boxed

EXTRA_COLUMNS = ("level", "type", "subject", "unique_id", "uuid")


def _matches(columns: Collection[str]) -> bool:
    return "problem" in columns and ("answer" in columns or "solution" in columns)


def _draft(row: Row, stem: str) -> Draft:
    messages = messages_of(row.get("problem"))
    answer = row.get("answer")
    gold = _last_box(row.get("solution")) if blank(answer) else answer
    extra = {name: json_safe(row[name]) for name in EXTRA_COLUMNS if row.get(name) is not None}
    return Draft(source_of(row, stem), messages, gold, extra)


def _last_box(solution: object) -> str:
    if not isinstance(solution, str) or not solution.strip():
        raise BadRow("no_gold", f"there is no answer, and the solution must be text, found {short(solution)}")
    gold = boxed(solution)
    if gold is None:
        raise BadRow("no_gold", rf"there is no answer, and no \boxed{{}} in the solution {short(solution[-60:])}")
    if not gold:
        raise BadRow(
            "unparseable_gold", rf"the last \boxed{{ of the solution is empty or never closed: {short(solution[-60:])}"
        )
    return gold


FORMAT = Format(
    name="math",
    wants=r"problem, and answer or solution (with \boxed{})",
    matches=_matches,
    draft=_draft,
)
