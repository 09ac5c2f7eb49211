"""verl: data_source, prompt (messages), reward_model.ground_truth, extra_info; DAPO-Math-17k is one."""

from __future__ import annotations

from collections.abc import Collection

from pipeline_lib.prompts.rows import BadRow, Draft, Format, Row, json_safe, messages_of, object_in, short, utf8


def _matches(columns: Collection[str]) -> bool:
    return {"data_source", "prompt", "reward_model"} <= set(columns)


def _draft(row: Row, stem: str) -> Draft:
    data_source = row.get("data_source")
    if not isinstance(data_source, str) or not data_source:
        raise BadRow("no_data_source", f"data_source must be text, not empty, found {short(data_source)}")
    messages = messages_of(row.get("prompt"))
    reward_model = object_in(row.get("reward_model"))
    if reward_model is None:
        raise BadRow("no_gold", f"reward_model must hold ground_truth, found {short(row.get('reward_model'))}")
    return Draft(
        data_source=utf8(data_source),
        messages=messages,
        gold=reward_model.get("ground_truth"),
        extra=json_safe(object_in(row.get("extra_info")) or {}),
        verifier="math" if _is_math(row, reward_model) else None,
    )


def _is_math(row: Row, reward_model: Row) -> bool:
    """Rule-graded, and not code: the other styles need a reward model or a sandbox."""
    style = str(reward_model.get("style") or "rule")
    return style.startswith("rule") and str(row.get("ability")).lower() not in {"code", "coding"}


FORMAT = Format(
    name="verl",
    wants="data_source, prompt, reward_model (with ground_truth)",
    matches=_matches,
    draft=_draft,
    unmistakable=True,
)
