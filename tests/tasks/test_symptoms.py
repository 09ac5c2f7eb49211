"""Each symptom is told with its numbers, its cause and a key that exists; a run in order has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kept_root import NOW
from warehouse_rows import decision, evaluation, fact, prompt, run, selection, stats, table, train_step

from pipeline_lib.config import RunConfig
from tasks.keeping.symptoms import Symptom, examine_run
from warehouse import Warehouse
from warehouse import warehouse as module

STEPS = {"ingest": 0, "rollouts_train": 0, "evaluate0": 0, "score": 1, "select": 1, "train": 1, "evaluate1": 1}
SAMPLER = {"type": "greso", "p_max": 0.95}


def healthy() -> dict[str, list[dict[str, Any]]]:
    """Four selected prompts, met four times; half of what was proposed was skipped."""
    prompts = [f"p{i}" for i in range(4)]
    step = {"prompts_proposed": 4, "prompts_skipped": 2, "prompts_rolled_out": 2, "rollouts": 16, "step_time": 1.0}
    step |= {"solved_some": 2, "generation_rounds": 1, "kl": 0.01, "completions_clipped_ratio": 0.0}
    return {
        "prompts": [prompt(name) for name in prompts],
        "rollout_stats": [stats("rollouts_train", name, 2) for name in prompts],
        "selections": [
            selection("select", name, i + 1, selected=True, pass_rate=0.5) for i, name in enumerate(prompts)
        ],
        "sampler_decisions": [
            decision("train", number, prompts[0], keep=number % 2 == 0, reason="r") for number in range(1, 5)
        ],
        "train_steps": [train_step("train", number, **step) for number in range(1, 5)],
        "evaluations": [evaluation(f"evaluate{m}", "avg", 0.5) | {"standard_error": 0.01} for m in (0, 1)],
        "diagnoses": [
            fact("score", "gsm", "split_half_spearman", 0.8, 40),
            fact("select", "gsm", "share_zero", 0.3, 100),
            fact("select", "", "effective_prompts", 30.0, 50),
        ],
    }


def symptoms(
    tmp_path: Path,
    rows: dict[str, list[dict[str, Any]]],
    sampler: dict[str, Any] = SAMPLER,
    rolled_out: int | None = None,
) -> list[Symptom]:
    warehouse = Warehouse(tmp_path)
    config = json.dumps({"train": {"sampler": sampler}, "offline": {"prompts": rolled_out}})
    step = {"status": "completed", "settings": "{}", "inputs": "{}", "attempts": 1, "started_at": NOW}
    names = {name: name.rstrip("01") for name in STEPS}
    warehouse.write(
        {
            "runs": table(run("demo", config=config)),
            "steps": table(
                *({"fingerprint": f, "name": name, "finished_at": NOW, **step} for f, name in names.items())
            ),
            "run_steps": table(
                *({"run_id": "demo", "stage": STEPS[f], "name": n, "fingerprint": f} for f, n in names.items())
            ),
            **{name: table(*of_table) for name, of_table in rows.items()},
        }
    )
    warehouse.publish()
    return list(examine_run(warehouse, "demo"))


def set_all(rows: list[dict[str, Any]], **values: Any) -> None:
    for row in rows:
        row.update(values)


def test_a_run_in_order_has_no_symptoms(tmp_path: Path) -> None:
    assert symptoms(tmp_path, healthy()) == []


def test_a_fall_within_chance_is_none(tmp_path: Path) -> None:
    rows = healthy()
    rows["evaluations"][1]["value"] = 0.48  # 2 points; the standard error of the difference is 1.4
    assert symptoms(tmp_path, rows) == []


def test_a_fall_is_told_with_every_cause_that_shows(tmp_path: Path) -> None:
    rows = healthy()
    rows["evaluations"][1]["value"] = 0.40
    set_all(rows["selections"], pass_rate=0.0)
    rows["train_steps"][2]["kl"] = 0.09
    rows["diagnoses"][0]["value"] = 0.1
    found = symptoms(tmp_path, rows)
    assert {symptom.what for symptom in found} == {"avg@4 on gsm fell by 10.0% to 40.0%, 7.1 standard errors"}
    causes = [symptom.cause for symptom in found]
    assert causes[0] == (
        "the sampler left the hard prompts out: 100% of the skipped had a pass rate below 0.25, of the kept 100%"
    )
    assert causes[1] == "the policy jumped at step 3: KL 0.09 against a median of 0.01"
    assert "the ranking for gsm is mostly noise: two halves of the rollouts agree by 0.10" in causes[2]


def test_a_fall_that_nothing_explains_says_so(tmp_path: Path) -> None:
    rows = healthy()
    rows["evaluations"][1]["value"] = 0.40
    [symptom] = symptoms(tmp_path, rows)
    assert "nothing here explains it" in symptom.cause and "train.validation" in symptom.remedy


FEW_SKIPS = {"prompts_skipped": 0, "prompts_rolled_out": 4, "frac_reward_zero_std": 0.75}


@pytest.mark.parametrize(
    ("sampler", "metrics", "cause"),
    [
        ({"type": "uniform"}, {}, "the sampler uniform skips nothing"),
        (SAMPLER, {"p_right": 0.95, "p_wrong": 0.5}, "p_right is at its upper bound, 0.95"),
        (SAMPLER, {"p_right": 0.5, "p_wrong": 0.5}, "the predictor is not calibrated"),
    ],
)
def test_a_low_skip_rate_beside_much_zero_variance_is_explained(
    tmp_path: Path, sampler: dict[str, Any], metrics: dict[str, float], cause: str
) -> None:
    rows = healthy()
    set_all(rows["train_steps"], **FEW_SKIPS, sampler_metrics=json.dumps(metrics))
    [symptom] = symptoms(tmp_path, rows, sampler)
    assert symptom.what == "0% of the prompts were skipped while 75% of the groups had no signal"
    assert symptom.cause.startswith(cause)


def test_groups_that_differ_by_partial_credit_have_signal_though_none_is_correct(tmp_path: Path) -> None:
    rows = healthy()
    set_all(rows["train_steps"], **FEW_SKIPS | {"frac_reward_zero_std": 0.0, "solved_some": 0, "solved_none": 4})
    assert symptoms(tmp_path, rows, {"type": "uniform"}) == []


def test_a_history_that_was_not_joined_and_too_few_epochs_are_causes(tmp_path: Path) -> None:
    rows = healthy()
    set_all(rows["selections"], pass_rate=None)
    set_all(rows["train_steps"], **FEW_SKIPS | {"prompts_proposed": 1})
    causes = [symptom.cause for symptom in symptoms(tmp_path, rows)]
    assert causes[0].startswith("the history was not joined: of 0% of the selected")
    assert causes[1] == "too few epochs: each of 4 selected prompts was met 1.0 times"


def test_few_offline_rollouts_are_a_cause_of_few_skips(tmp_path: Path) -> None:
    rows = healthy()
    set_all(rows["selections"], pass_rate=None)
    set_all(rows["train_steps"], **FEW_SKIPS)
    [symptom] = symptoms(tmp_path, rows, rolled_out=2)
    assert symptom.cause.startswith("only 2 prompts were rolled out: of 0% of the selected a pass rate was known")
    assert "offline.prompts" in symptom.remedy


@pytest.mark.parametrize(
    ("metric", "subject", "value", "said"),
    [
        ("share_zero", "gsm", 0.9, "90% of 100 prompts score exactly 0 for gsm"),
        ("share_tied", "gsm", 0.5, "50% of 100 prompts with a gradient share their score for gsm with another"),
        ("effective_prompts", "gsm", 2.0, "2.0 prompts carry the influence for gsm of 100"),
        ("projection_inner_product_mean", "", 0.2, "the projection changes inner products by 0.200 of the lengths"),
        ("identical_samples", "shard 3", 8, "each of the 100 prompts of 1 shards got the same completion 8 times"),
    ],
)
def test_scores_that_tell_little_are_told_of(
    tmp_path: Path, metric: str, subject: str, value: float, said: str
) -> None:
    rows = healthy()
    rows["diagnoses"] = [fact("select", subject, metric, value, 100), fact("select", "", "share_tied", 0.5, 100)]
    [symptom] = symptoms(tmp_path, rows)
    assert symptom.what.startswith(said)


def test_swings_ungraded_and_cut_off_completions_are_told_of(tmp_path: Path) -> None:
    rows = healthy()
    rows["train_steps"][3] |= {"step_time": 9.0, "generation_rounds": 6, "prompts_rolled_out": 12}
    rows["train_steps"][0] |= {"n_ungraded": 4, "n_timeout": 3, "n_error": 1}
    set_all(rows["train_steps"], completions_clipped_ratio=0.4)
    found = {symptom.what: symptom.cause for symptom in symptoms(tmp_path, rows)}
    assert found == {
        "steps took 1.0 to 9.0 s": "1 to 6 generation rounds a step, and 2 to 12 prompts",
        "4 of 64 completions could not be graded": "the verifier ran out of time 3 times and failed 1 times",
        "40% of the completions were cut off": "they reached the longest that is allowed before they stopped",
    }


def test_every_remedy_names_keys_that_the_config_has() -> None:
    source = (Path(__file__).parents[2] / "tasks" / "keeping" / "symptoms.py").read_text()
    schema = json.dumps(RunConfig.model_json_schema())
    for key in (
        "exploration",
        "target_wrong",
        "target_right",
        "learning_rate",
        "max_grad_norm",
        "stage_kl_limit",
        "samples",
        "validation_samples",
        "steps",
        "alpha",
        "p_max",
        "min_prompts",
        "max_rounds",
        "rrf_k",
        "on_stale",
        "dimension",
        "keep_ratio",
        "max_tokens",
        "mask_truncated",
        "take_best",
        "engine",
    ):
        assert key in source and f'"{key}"' in schema


def test_a_run_is_looked_at_in_one_snapshot_whatever_is_published_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert symptoms(tmp_path, healthy()) == []
    warehouse = Warehouse(tmp_path)
    fetch = module._fetch

    def beside_a_run(*arguments: Any) -> pa.Table:
        answer = fetch(*arguments)
        monkeypatch.setattr(module, "_fetch", fetch)
        warehouse.write({"diagnoses": table(fact("select", "gsm", "share_zero", 0.99, 100))})
        warehouse.publish()
        return answer

    monkeypatch.setattr(module, "_fetch", beside_a_run)
    assert list(examine_run(warehouse, "demo")) == []
    assert [symptom.what[:3] for symptom in examine_run(warehouse, "demo")] == ["99%"]
