"""A small curriculum through the real flow, and what the warehouse and the command line say of it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from flow_cases import in_this_process, rlsift, rows, write_config

from flows.chain import finish, walk
from flows.runs import record_run
from pipeline_lib.config_file import load_config
from tasks.step import perform

STEPS = {
    0: ["policy", "ingest", "rollouts_train", "rollouts_validation", "evaluate"],
    1: ["score", "select", "diagnose", "train", "evaluate"],
    2: ["score", "select", "diagnose", "train", "evaluate", "report"],
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def first(config: Path) -> CompletedProcess[str]:
    return rlsift("run", config)


@pytest.fixture(scope="module")
def root(config: Path, first: CompletedProcess[str]) -> Path:
    """The root of a run that has ended well."""
    assert first.returncode == 0, first.stderr
    return config.parent / "root"


def fingerprint(root: Path, stage: int, name: str) -> str:
    sql = "SELECT fingerprint FROM run_steps WHERE run_id = 'tiny' AND stage = $1 AND name = $2"
    return rows(root, sql, [stage, name])[0]["fingerprint"]


def members(root: Path, split: str) -> dict[str, set[str]]:
    sets: dict[str, set[str]] = defaultdict(set)
    for row in rows(root, "SELECT set_name, prompt_id FROM prompt_sources WHERE split = $1", [split]):
        sets[row["set_name"]].add(row["prompt_id"])
    return sets


def attempts(root: Path) -> dict[str, int]:
    return {row["fingerprint"]: row["attempts"] for row in rows(root, "SELECT fingerprint, attempts FROM steps")}


# --- what the warehouse holds ---------------------------------------------------------------------------


def test_every_step_of_every_stage_is_recorded_complete(root: Path) -> None:
    found = rows(root, "SELECT * FROM run_progress WHERE run_id = 'tiny' ORDER BY stage, started_at")
    by_stage: dict[int, list[str]] = defaultdict(list)
    for row in found:
        by_stage[row["stage"]].append(row["name"])
        assert (row["status"], row["attempts"], row["error"]) == ("completed", 1, None)
    assert by_stage == STEPS
    assert rows(root, "SELECT status, stages FROM runs") == [{"status": "completed", "stages": 2}]
    assert rows(root, "SELECT count(*) AS n FROM steps WHERE flow_run_id IS NULL OR task_run_id IS NULL")[0]["n"] == 0


def test_held_out_prompts_are_not_in_the_pool(root: Path) -> None:
    pool = members(root, "train")["train"]
    validation, evaluation = members(root, "validation"), members(root, "evaluation")
    held_out = set().union(*validation.values(), *evaluation.values())
    assert set(validation) == {"minus", "shared"} and set(evaluation) == {"targeted", "untargeted"}
    assert pool and not pool & held_out
    left_out = rows(root, "SELECT reason, count(*) AS n FROM prompt_rejects WHERE split = 'train' GROUP BY ALL")
    assert sum(row["n"] for row in left_out) == 40 - len(pool) > 0
    for stage in (1, 2):
        sql = "SELECT prompt_id FROM sampler_decisions WHERE fingerprint = $1"
        assert {row["prompt_id"] for row in rows(root, sql, [fingerprint(root, stage, "train")])} <= pool


def test_influence_is_scored_for_the_whole_pool_on_every_validation_set(root: Path) -> None:
    pool = members(root, "train")["train"]
    sql = "SELECT prompt_id, validation_set, cosine, norm, rank FROM influence_scores WHERE fingerprint = $1"
    for stage in (1, 2):
        scores = rows(root, sql, [fingerprint(root, stage, "score")])
        keys = {(row["prompt_id"], row["validation_set"]) for row in scores}
        assert keys == {(p, v) for p in pool for v in ("minus", "shared")}
        assert len(scores) == len(keys)
        assert all(abs(row["cosine"]) <= 1 + 1e-6 for row in scores)
        assert any(row["cosine"] != 0 for row in scores)
    no_signal = rows(
        root,
        "SELECT cosine, norm FROM influence_scores s JOIN rollout_stats r USING (prompt_id) "
        "WHERE r.fingerprint = $1 AND NOT r.has_signal",
        [fingerprint(root, 0, "rollouts_train")],
    )
    assert no_signal and all((row["cosine"], row["norm"]) == (0, 0) for row in no_signal)


def test_each_stage_selects_exactly_its_share_and_gives_every_prompt_a_reason(root: Path) -> None:
    pool = members(root, "train")["train"]
    for stage in (1, 2):
        chosen = rows(root, "SELECT * FROM selections WHERE fingerprint = $1", [fingerprint(root, stage, "select")])
        assert {row["prompt_id"] for row in chosen} == pool and len(chosen) == len(pool)
        assert sum(row["selected"] for row in chosen) == round(0.4 * len(pool))
        assert all(row["reason"] and row["strategy"] == "influence" for row in chosen)
        assert sorted(row["rank"] for row in chosen) == list(range(1, len(pool) + 1))
        assert max(r["rank"] for r in chosen if r["selected"]) < min(r["rank"] for r in chosen if not r["selected"])


def test_each_stage_tells_what_its_scores_and_selection_are_worth(root: Path) -> None:
    pool = len(members(root, "train")["train"])
    told = rows(root, "FROM stage_diagnosis WHERE run_id = 'tiny'")
    found = {(row["stage"], row["subject"], row["metric"]): row for row in told}
    assert len(found) == len(told)
    for stage in (1, 2):
        recorded = rows(
            root,
            "SELECT validation_set, avg((cosine = 0)::INTEGER) AS share FROM influence_scores "
            "WHERE fingerprint = $1 GROUP BY ALL",
            [fingerprint(root, stage, "score")],
        )
        assert {row["validation_set"] for row in recorded} == {"minus", "shared"}
        for row in recorded:
            fact = found[stage, row["validation_set"], "share_zero"]
            assert (fact["value"], fact["n"]) == (pytest.approx(row["share"]), pool)
            effective = found[stage, row["validation_set"], "effective_prompts"]
            assert effective["value"] is None or 1 - 1e-9 <= effective["value"] <= effective["n"] + 1e-9
        assert found[stage, "", "pass_rate_offline_pool"]["n"] == pool
        assert found[stage, "", "pass_rate_offline_selected"]["n"] == round(0.4 * pool)
        assert 0 < found[stage, "", "pass_rate_online_selected"]["n"] <= round(0.4 * pool)
        assert found[stage, "", "ties_broken_at_cut"]["value"] != 1
    assert {stage for stage, _, metric in found if metric == "jaccard_previous"} == {2}


def test_training_steps_decisions_and_rollouts_agree(root: Path) -> None:
    for stage in (1, 2):
        train, select = fingerprint(root, stage, "train"), fingerprint(root, stage, "select")
        steps = rows(root, "SELECT * FROM train_steps WHERE fingerprint = $1 ORDER BY step", [train])
        assert [row["step"] for row in steps] == [1, 2, 3]
        decisions = rows(root, "SELECT * FROM sampler_decisions WHERE fingerprint = $1", [train])
        stats = rows(root, "SELECT * FROM rollout_stats WHERE fingerprint = $1", [train])
        kept = sorted((row["step"], row["prompt_id"]) for row in decisions if row["keep"])
        assert kept == sorted((row["step"], row["prompt_id"]) for row in stats)
        assert len(set(kept)) == len(kept)
        selected = {
            row["prompt_id"]
            for row in rows(root, "SELECT prompt_id FROM selections WHERE fingerprint = $1 AND selected", [select])
        }
        assert {row["prompt_id"] for row in decisions} <= selected
        assert all(row["reason"] and 0 < row["keep_probability"] <= 1 for row in decisions)
        assert all(row["n"] + row["n_ungraded"] == 4 for row in stats)
        for row in steps:
            of_step = [d for d in decisions if d["step"] == row["step"]]
            rolled_out = [s for s in stats if s["step"] == row["step"]]
            assert sorted(d["position"] for d in of_step) == list(range(len(of_step)))
            assert row["prompts_proposed"] == len(of_step)
            assert row["prompts_skipped"] == sum(not d["keep"] for d in of_step)
            assert row["prompts_rolled_out"] == len(rolled_out) and row["rollouts"] == 4 * len(rolled_out)
            assert row["solved_some"] == sum(s["outcome"] == "mixed" for s in rolled_out)
        carried = 0
        for row in steps:
            accepted = sum(s["has_signal"] for s in stats if s["step"] == row["step"])
            assert row["groups_trained"] + row["groups_carried"] == accepted + carried
            carried = row["groups_carried"]


def test_each_stage_is_evaluated_on_each_set_with_its_own_policy(root: Path) -> None:
    policy = {
        stage: json.loads(row["outputs"])["policy_id"]
        for stage, name in ((0, "policy"), (1, "train"), (2, "train"))
        for row in rows(root, "SELECT outputs FROM steps WHERE fingerprint = $1", [fingerprint(root, stage, name)])
    }
    assert len(set(policy.values())) == 3
    for stage in (0, 1, 2):
        evaluated = rows(
            root,
            "SELECT * FROM evaluations WHERE fingerprint = $1 ORDER BY evaluation_set, metric, k",
            [fingerprint(root, stage, "evaluate")],
        )
        keys = [(row["evaluation_set"], row["metric"], row["k"]) for row in evaluated]
        assert keys == [
            (s, m, k) for s in ("targeted", "untargeted") for m, k in (("avg", 2), ("pass", 1), ("pass", 2))
        ]
        assert {row["policy_id"] for row in evaluated} == {policy[stage]}
        assert all(0 <= row["value"] <= 1 for row in evaluated)
        assert {row["evaluation_set"]: row["n_prompts"] for row in evaluated} == {"targeted": 8, "untargeted": 6}
    parents = {r["policy_id"]: r["parent_policy_id"] for r in rows(root, "SELECT * FROM policies")}
    assert parents == {policy[0]: None, policy[1]: policy[0], policy[2]: policy[1]}
    assert all((root / r["path"]).is_dir() for r in rows(root, "SELECT path FROM policies"))


# --- the three questions --------------------------------------------------------------------------------


def test_how_a_prompts_pass_rate_changed_over_the_stages(root: Path) -> None:
    seen = rows(
        root,
        "SELECT prompt_id FROM prompt_difficulty_history WHERE phase = 'train' "
        "GROUP BY ALL ORDER BY count(DISTINCT stage) DESC, 1 LIMIT 1",
    )
    prompt_id = seen[0]["prompt_id"]
    history = rows(
        root,
        "SELECT stage, step, phase, n, n_correct, pass_rate FROM prompt_difficulty_history "
        "WHERE run_id = 'tiny' AND prompt_id = $1 ORDER BY observation",
        [prompt_id],
    )
    expected = rows(
        root,
        "SELECT stage, step, phase, n, n_correct, n_correct / n AS pass_rate FROM rollout_stats "
        "JOIN run_steps USING (fingerprint) WHERE run_id = 'tiny' AND prompt_id = $1 ORDER BY stage, step",
        [prompt_id],
    )
    assert history == expected and len(history) >= 2
    assert (history[0]["stage"], history[0]["phase"], history[0]["n"]) == (0, "offline", 4)
    latest = rows(root, "SELECT pass_rate FROM prompt_difficulty WHERE prompt_id = $1", [prompt_id])
    assert latest == [{"pass_rate": history[-1]["pass_rate"]}]


def test_which_prompts_were_zero_variance_and_came_back(root: Path) -> None:
    observations = rows(
        root,
        "SELECT prompt_id, stage, step, outcome FROM prompt_difficulty_history "
        "WHERE phase IN ('offline', 'train') ORDER BY prompt_id, observation",
    )
    series: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for row in observations:
        series[row["prompt_id"]].append((row["stage"], row["step"], row["outcome"]))
    expected = {
        (prompt_id, earlier[2], later[0], later[1])
        for prompt_id, seen in series.items()
        for earlier, later in pairwise(seen)
        if earlier[2] in ("all_right", "all_wrong") and later[2] == "mixed"
    }
    found = rows(root, "SELECT prompt_id, from_outcome, to_stage, to_step FROM zero_variance_revivals")
    assert {tuple(row.values()) for row in found} == expected
    assert expected, "the small run should see a prompt come back, else this test shows nothing"


def test_what_each_stage_selected_and_skipped_and_why(root: Path) -> None:
    history = rows(root, "SELECT * FROM selection_history WHERE run_id = 'tiny'")
    n_pool = len(members(root, "train")["train"])
    for stage in (1, 2):
        of_stage = [row for row in history if row["stage"] == stage]
        assert len(of_stage) == n_pool
        assert all(row["reason"].startswith(f"rank {row['rank']} of {n_pool}") for row in of_stage if row["selected"])
    graded = rows(
        root,
        "SELECT prompt_id, stage, n_correct / n AS pass_rate FROM rollout_stats JOIN run_steps USING (fingerprint) "
        "WHERE run_id = 'tiny' AND phase <> 'evaluation' AND n > 0 ORDER BY stage, step",
    )
    for row in history:
        known = [g["pass_rate"] for g in graded if g["prompt_id"] == row["prompt_id"] and g["stage"] < row["stage"]]
        assert row["pass_rate"] == known[-1]
    skipped = rows(
        root,
        "SELECT stage, prompt_id, reason, keep_probability FROM sampler_decisions "
        "JOIN run_steps USING (fingerprint) WHERE NOT keep",
    )
    assert skipped, "the small run should skip a prompt, else this test shows nothing"
    assert all(re.fullmatch(r"all_(right|wrong) × \d+", row["reason"]) for row in skipped)
    assert all(row["keep_probability"] < 1 for row in skipped)


# --- the command line -----------------------------------------------------------------------------------


def test_the_first_run_shows_what_came_of_it(first: CompletedProcess[str], root: Path) -> None:
    assert "targeted" in first.stdout and "avg@2" in first.stdout
    assert str(root / "reports" / "tiny.html") in first.stdout.replace("\n", "")
    assert "stage 2/2 · train is done" in first.stderr
    assert "Traceback" not in first.stderr


def test_a_second_run_does_nothing_and_says_so(root: Path, config: Path) -> None:
    before = attempts(root)
    server = {path: path.stat().st_mtime_ns for path in (root / "prefect").rglob("*.db*")}
    assert server
    again = rlsift("run", config)
    assert again.returncode == 0, again.stderr
    assert "every step is recorded, nothing was done" in again.stdout
    assert attempts(root) == before
    assert {path: path.stat().st_mtime_ns for path in (root / "prefect").rglob("*.db*")} == server


def test_status(root: Path) -> None:
    everything = rlsift("status", "--root", root)
    assert everything.returncode == 0 and "tiny" in everything.stdout and "completed" in everything.stdout
    one = rlsift("status", "tiny", RLSIFT_ROOT=str(root))
    assert one.returncode == 0
    assert all(fingerprint(root, stage, name) in one.stdout for stage, names in STEPS.items() for name in names)


def test_sql_in_each_format(root: Path) -> None:
    statement = "SELECT prompt_id, gold, 'a[/b],c' AS odd, 'nan'::DOUBLE AS nothing FROM prompts ORDER BY 1"
    expected = rows(root, statement)
    table, as_csv, as_json = (
        rlsift("sql", statement, "--root", root, "--format", form) for form in ("table", "csv", "json")
    )
    assert (table.returncode, as_csv.returncode, as_json.returncode) == (0, 0, 0)
    assert all(row["prompt_id"] in table.stdout for row in expected) and "a[/b],c" in table.stdout
    read = list(csv.DictReader(io.StringIO(as_csv.stdout)))
    assert [(r["prompt_id"], r["gold"], r["odd"]) for r in read] == [
        (r["prompt_id"], r["gold"], r["odd"]) for r in expected
    ]
    objects = [
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        for line in as_json.stdout.splitlines()
    ]
    assert objects == [row | {"nothing": None} for row in expected]


def test_csv_keeps_columns_of_one_name(root: Path) -> None:
    answer = rlsift("sql", "SELECT 1 AS a, 2 AS a", "--root", root, "--format", "csv")
    assert answer.stdout.split() == ["a,a", "1,2"]


def test_report(root: Path) -> None:
    path = root / "reports" / "tiny.html"
    path.unlink()
    answer = rlsift("report", "--root", root)  # the only run there is
    assert answer.returncode == 0 and answer.stdout.strip() == str(path)
    assert "<html" in path.read_text()[:2000]


ERRORS: dict[str, tuple[Sequence[str], str]] = {
    "unknown run": (["status", "nobody", "--root", "{root}"], "no run is named 'nobody'"),
    "unknown run, report": (["report", "nobody", "--root", "{root}"], "no run is named 'nobody'"),
    "unknown root": (["status", "--root", "{elsewhere}"], "holds no warehouse"),
    "bad --map": (["ingest", "a.jsonl", "--map", "prompt=a"], "must have the form prompt=COLUMN,gold=COLUMN"),
    "--map with --format": (["ingest", "a.csv", "--map", "prompt=a,gold=b", "--format", "trl"], "give either --format"),
    "unpinned hub id": (["ingest", "openai/gsm8k", "--root", "{elsewhere}"], "openai/gsm8k"),
    "bad SQL": (["sql", "SELEC 1", "--root", "{root}"], "syntax error"),
    "bad SQL with brackets": (["sql", "SELECT [/a]", "--root", "{root}"], "[/a]"),
    "unknown table": (["sql", "SELECT * FROM nothing", "--root", "{root}"], "nothing"),
    "empty SQL": (["sql", " ", "--root", "{root}"], "empty"),
    "writing SQL": (["sql", "DELETE FROM prompts", "--root", "{root}"], "DELETE is refused. Queries only read"),
    "bad config": (["run", "{config}", "--set", "train.steps=none"], "train.steps"),
    "unknown key": (["run", "{config}", "--set", "train.stepz=1"], "train.stepz"),
    "bad override": (["run", "{config}", "--set", "train.steps"], "key.path=value"),
    "value with brackets": (["run", "{config}", "--set", "seed='[/x]'"], "[/x]"),
    "no config": (["run", "{elsewhere}/none.yaml"], "no such config file"),
    "no data set": (["ingest", "{elsewhere}/none.jsonl", "--root", "{elsewhere}/root"], "none.jsonl"),
}


@pytest.mark.parametrize(("args", "words"), ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_told_in_words(
    capsys: pytest.CaptureFixture[str], root: Path, config: Path, tmp_path: Path, args: Sequence[str], words: str
) -> None:
    code, out, err = in_this_process(
        capsys, *(arg.format(root=root, config=config, elsewhere=tmp_path) for arg in args)
    )
    assert code == 2
    assert words in err.replace("\n", " ")
    assert out == ""


def test_an_error_leaves_no_traceback_behind(root: Path) -> None:
    answer = rlsift("sql", "SELECT [/a]", "--root", root)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: ") and "Traceback" not in answer.stderr


# --- more to know of the same run ------------------------------------------------------------------------


def test_likeness_in_text_is_one_step_more_and_repeats_none(
    root: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unit_vectors(texts: list[str], model: str, device: object) -> np.ndarray:
        counts = np.array([[text.count(operator) for operator in "+-*"] for text in texts]) + 0.1
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)

    monkeypatch.setattr("pipeline_lib.similarity.embed", unit_vectors)
    run = load_config(config, ["name=alike", "diagnosis.embedding_model=some/model"])
    before = attempts(root)
    record_run(run, "running")
    finish(run, *walk(run, perform, stages=2), perform)
    after = attempts(root)
    assert {fingerprint: after[fingerprint] for fingerprint in before} == before
    new = rows(root, "SELECT name FROM steps WHERE NOT list_contains($1, fingerprint) ORDER BY name", [list(before)])
    assert [row["name"] for row in new] == ["report", "similarity"]
    pool = len(members(root, "train")["train"])
    alike = rows(root, "FROM stage_diagnosis WHERE run_id = 'alike' AND metric LIKE 'similarity%'")
    assert {(row["stage"], row["subject"], row["metric"]): row["n"] for row in alike} == {
        (stage, subject, f"similarity_{of}"): n
        for stage in (1, 2)
        for subject in ("minus", "shared")
        for of, n in (("pool", pool), ("selected", round(0.4 * pool)))
    }
    assert "Likeness of the selected in text" in (root / "reports" / "alike.html").read_text()


# --- other methods, on the same rollouts ----------------------------------------------------------------

METHODS: dict[str, list[str]] = {
    "projected": ["influence={type: projected, keep_ratio: 0.5, dimension: 64}"],
    "relevance": ["selection={type: relevance, alpha: 0.4}"],
    "learnability": ["selection={type: learnability, alpha: 0.4}"],
    "random": ["selection={type: random, alpha: 0.4}"],
    "all, uniform": ["selection={type: all}", "train.sampler={type: uniform}", "train.loss.kl_coefficient=0.1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("overrides", METHODS.values(), ids=METHODS.keys())
def test_each_method_runs_a_stage_on_the_rollouts_that_are_there(
    root: Path, config: Path, overrides: list[str]
) -> None:
    run = load_config(config, [*overrides, "name=other", "stages=1", "train.steps=1"])
    before = attempts(root)
    _, stages = walk(run, perform, stages=1)
    after = attempts(root)
    assert {fingerprint: after[fingerprint] for fingerprint in before} == before
    names = rows(
        root,
        "SELECT name FROM steps WHERE NOT list_contains($1, fingerprint)",
        [list(before)],
    )
    new = {row["name"] for row in names}
    measured = {"projected": {"score"}, "relevance": {"relevance"}}.get(
        overrides[0].split("type: ")[1].split(",")[0], set()
    )
    assert new == measured | {"select", "diagnose", "train", "evaluate"}
    chosen = rows(
        root, "SELECT selected, reason FROM selections WHERE fingerprint = $1", [stages[0].selection.fingerprint]
    )
    alpha = run.selection.alpha
    assert sum(row["selected"] for row in chosen) == round(alpha * len(chosen))
    assert all(row["reason"] for row in chosen)
    assert stages[0].train.outputs["steps"] == 1
