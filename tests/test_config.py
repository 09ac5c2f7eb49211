"""A config is right or is refused in words that name file, key, value and rule."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from rich.console import Console

from flows.commands.run import run_curriculum
from pipeline_lib.config import ConfigError, RunConfig, config_hash, extras
from pipeline_lib.config_file import load_config

CONFIGS = Path(__file__).parent.parent / "configs"

MINIMAL = {
    "name": "tiny",
    "root": "out",
    "prompts": {
        "train": [{"type": "chains", "kinds": ["plus"], "lengths": [1], "count": 4}],
        "validation": {"v": [{"type": "file", "path": "data/v.jsonl"}]},
        "evaluation": {"e": [{"type": "chains", "kinds": ["plus"], "lengths": [1], "count": 4}]},
    },
}


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "conf" / "run.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(MINIMAL))
    return path


@pytest.mark.parametrize("name", sorted(p.name for p in CONFIGS.glob("*.yaml")))
def test_every_shipped_config_is_valid(name: str) -> None:
    config = load_config(CONFIGS / name)
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_paths_are_relative_to_the_config_file(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    config = load_config(config_file)
    assert config.root == str(tmp_path / "conf" / "out")
    assert config.prompts.validation["v"][0].path == str(tmp_path / "conf" / "data" / "v.jsonl")  # type: ignore[union-attr]


@pytest.mark.parametrize("key", ["policy={type: pretrained, path: MODEL}", "diagnosis.embedding_model=MODEL"])
def test_a_model_beside_the_config_is_a_directory_and_any_other_a_hub_id(config_file: Path, key: str) -> None:
    (config_file.parent / "models" / "mini").mkdir(parents=True)

    def model(value: str) -> str | None:
        config = load_config(config_file, [key.replace("MODEL", value)])
        return config.policy.path if key.startswith("policy") else config.diagnosis.embedding_model  # type: ignore[union-attr]

    assert model("models/mini") == model("./models/mini") == str(config_file.parent / "models" / "mini")
    assert model("someone/mini") == "someone/mini"
    assert load_config(config_file).diagnosis.embedding_model is None


def test_a_tracker_s_directory_is_relative_to_the_config_file(config_file: Path, tmp_path: Path) -> None:
    config = load_config(config_file, ["tracking=[{type: tensorboard, directory: boards}, {type: wandb}]"])
    assert config.tracking[0].directory == str(tmp_path / "conf" / "boards")  # type: ignore[union-attr]
    assert config.tracking[1].mode == "offline"  # type: ignore[union-attr]
    assert load_config(config_file).tracking == []


def test_root_from_the_command_line_is_relative_to_the_working_directory(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config(config_file, root=Path("elsewhere")).root == str(tmp_path / "elsewhere")


def test_overrides(config_file: Path) -> None:
    config = load_config(
        config_file,
        [
            "train.steps=3",
            "train.sampler.type=uniform",
            "selection={type: random, alpha: .5}",
            "prompts.train.0.count=9",
        ],
    )
    assert config.train.steps == 3
    assert config.train.sampler.type == "uniform"
    assert config.selection.alpha == 0.5
    assert config.prompts.train[0].count == 9  # type: ignore[union-attr]


def test_a_section_that_leaves_out_its_type_is_of_the_default_one(config_file: Path) -> None:
    config = load_config(config_file, ["train.loss.clip_high=0.3", "selection.alpha=0.5"])
    assert (config.train.loss.type, config.train.loss.clip_high) == ("dapo", 0.3)
    assert (config.selection.type, config.selection.alpha) == ("relevance", 0.5)
    other = load_config(config_file, ["selection={type: random, alpha: 0.5}", "selection.alpha=0.25"])
    assert (other.selection.type, other.selection.alpha) == ("random", 0.25)


def test_a_cascade_leaves_prompts_out(config_file: Path) -> None:
    cascade = "influence={type: exact, cascade: {blocks: 1, trajectories: 4, keep: 3}}"
    with pytest.raises(
        ConfigError, match=r"influence.cascade.keep=3.0 times selection.alpha=0.4 .*scored twice; lower"
    ):
        load_config(config_file, ["selection={type: influence, alpha: 0.4}", cascade])
    assert load_config(config_file, ["selection={type: influence, alpha: 0.3}", cascade])
    assert load_config(config_file, ["selection={type: all}", cascade]), "which is not scored"


def test_influence_that_nothing_selects_by_is_refused(config_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"influence is set and selection is not.*add selection: \{type: influence\}"):
        load_config(config_file, ["influence={type: exact, on_stale: recollect}"])


@pytest.mark.parametrize("kind", ["influence", "learnability", "pass_rate"])
def test_what_ranks_by_rollouts_wants_them_of_the_whole_pool(config_file: Path, kind: str) -> None:
    words = rf"offline.prompts=64: selection.type={kind} ranks prompts by their rollouts.*select by relevance"
    with pytest.raises(ConfigError, match=words):
        load_config(config_file, [f"selection={{type: {kind}}}", "offline.prompts=64"])
    assert load_config(config_file, ["selection={type: random}", "offline.prompts=64"]).offline.prompts == 64


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.stepz=3", ["run.yaml", "train.stepz = 3", "no such key"]),
        ("train.group_size=1", ["train.group_size = 1", "greater than or equal to 2"]),
        ("offline.samples=1", ["offline.samples = 1", "greater than or equal to 2"]),
        ("train.sampler.exploration=0", ["train.sampler.exploration = 0", "greater than 0"]),
        ("selection.alpha=0", ["selection.alpha = 0", "greater than 0"]),
        ("influence.dimension=64", ["influence = {'dimension': 64}", "`type` is missing"]),
        ("selection={type: influence, alpha: 0}", ["selection.alpha = 0", "greater than 0"]),
        ("prompts.train.0.count=0", ["prompts.train.0.count = 0", "greater than 0"]),
        ("generation.top_p=0.9", ["top_p=0.9", "off-policy"]),
        ("evaluation.samples=2", ["pass@8 needs samples >= 8"]),
        ("diagnosis.embedding_model=''", ["diagnosis.embedding_model = ''", "at least 1 character"]),
        ("name=a/b", ["name = 'a/b'", "pattern"]),
        ("train.sampler.type=best", ["train.sampler", "'best'", "greso"]),
        ("train.steps", ["--set train.steps", "key.path=value"]),
        ("name.x=1", ["--set name.x=1", "`name` is a value"]),
        ("prompts.train.7.count=1", ["prompts.train.7.count=1", "7"]),
        ("tracking=[{type: board}]", ["tracking", "'board'", "tensorboard"]),
        ("tracking=[{type: wandb, mode: shared}]", ["tracking.0.mode = 'shared'", "'offline' or 'online'"]),
        ("task_runner={type: dask}", ["address=None and workers=None", "give the address of a scheduler, or how many"]),
        ("task_runner={type: dask, address: 'tcp://a:1', workers: 2}", ["workers=2", "and not both"]),
        ("task_runner={type: ray, num_cpus: 0}", ["task_runner.num_cpus = 0", "greater than 0"]),
        ("task_runner={type: spark}", ["task_runner", "'spark'", "'local', 'dask', 'ray'"]),
        ("influence={type: exact, max_kl: .inf}", ["influence.max_kl = inf", "finite"]),
        (
            "influence={type: projected, kind: sparse, dimension: 4}",
            ["nonzeros=8", "lower nonzeros or raise dimension"],
        ),
    ],
)
def test_a_wrong_value_is_refused_in_words(config_file: Path, override: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(config_file, [override])
    for word in words:
        assert word in str(refused.value)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.yaml: no such config file"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ConfigError, match="must be a mapping"):
        load_config(tmp_path / "list.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    with pytest.raises(ConfigError, match="not readable as YAML"):
        load_config(tmp_path / "bad.yaml")


def test_the_hash_changes_with_any_value_but_the_root(config_file: Path) -> None:
    one, two = load_config(config_file), load_config(config_file, ["train.warmup_steps=1"])
    assert config_hash(one) == config_hash(load_config(config_file, ["root=elsewhere"])) != config_hash(two)


@pytest.mark.parametrize(
    ("override", "package", "extra"),
    [
        ("prompts.train=[{type: dataset, path: org/name, revision: v1}]", "datasets", "datasets"),
        ("train.lora={rank: 4}", "peft", "lora"),
        ("train.backend={type: deepspeed}", "deepspeed", "deepspeed"),
        ("train.sampler={type: posterior, prior: {type: clusters}}", "sklearn", "difficulty"),
        ("tracking=[{type: wandb}]", "wandb", "wandb"),
        ("diagnosis.embedding_model=some/model", "sentence_transformers", "embeddings"),
        ("task_runner={type: dask, workers: 2}", "prefect_dask", "dask"),
        ("task_runner={type: ray}", "prefect_ray", "ray"),
    ],
)
def test_a_package_that_is_missing_is_told_before_anything_runs(
    config_file: Path, monkeypatch: pytest.MonkeyPatch, override: str, package: str, extra: str
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == package else True)
    assert extras.missing_extras(load_config(config_file)) == []
    (problem,) = extras.missing_extras(load_config(config_file, [override]))
    assert package in problem and f'pip install -e ".[{extra}]"' in problem
    with pytest.raises(ConfigError, match=package):
        run_curriculum(load_config(config_file, [override]), Console(), Console())
