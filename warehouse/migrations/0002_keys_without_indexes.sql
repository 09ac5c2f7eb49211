-- Version 2: no table has an index of its key any more. Warehouses of version 1 differ in their columns, which came by
-- ADD COLUMN IF NOT EXISTS: rows are copied by name, and what they lack is NULL. Totals are gathered anew.

DROP TABLE IF EXISTS kept_totals;
DROP TABLE IF EXISTS kept_decisions;
DROP TABLE IF EXISTS ungathered;

-- Tables that came while the version was 1.
CREATE TABLE IF NOT EXISTS rollout_drift (fingerprint VARCHAR);
CREATE TABLE IF NOT EXISTS diagnoses (fingerprint VARCHAR);
CREATE TABLE IF NOT EXISTS similarities (fingerprint VARCHAR);

CREATE TABLE meta_2 (
    key VARCHAR NOT NULL,
    value VARCHAR NOT NULL
);
INSERT INTO meta_2 BY NAME FROM meta;
DROP TABLE meta;
ALTER TABLE meta_2 RENAME TO meta;

CREATE TABLE prompts_2 (
    prompt_id VARCHAR NOT NULL,
    data_source VARCHAR NOT NULL,
    messages JSON NOT NULL,
    gold VARCHAR NOT NULL,
    verifier VARCHAR NOT NULL,
    verifier_args JSON NOT NULL,
    extra JSON NOT NULL
);
INSERT INTO prompts_2 BY NAME FROM prompts;
DROP TABLE prompts;
ALTER TABLE prompts_2 RENAME TO prompts;

CREATE TABLE prompt_sources_2 (
    fingerprint VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    set_name VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    row_index BIGINT NOT NULL,
    prompt_id VARCHAR NOT NULL
);
INSERT INTO prompt_sources_2 BY NAME FROM prompt_sources;
DROP TABLE prompt_sources;
ALTER TABLE prompt_sources_2 RENAME TO prompt_sources;

CREATE TABLE prompt_rejects_2 (
    fingerprint VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    set_name VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    row_index BIGINT NOT NULL,
    reason VARCHAR NOT NULL,
    detail VARCHAR NOT NULL
);
INSERT INTO prompt_rejects_2 BY NAME FROM prompt_rejects;
DROP TABLE prompt_rejects;
ALTER TABLE prompt_rejects_2 RENAME TO prompt_rejects;

CREATE TABLE policies_2 (
    policy_id VARCHAR NOT NULL,
    path VARCHAR NOT NULL,
    parent_policy_id VARCHAR,
    fingerprint VARCHAR NOT NULL,
    n_parameters BIGINT NOT NULL
);
INSERT INTO policies_2 BY NAME FROM policies;
DROP TABLE policies;
ALTER TABLE policies_2 RENAME TO policies;

CREATE TABLE runs_2 (
    run_id VARCHAR NOT NULL,
    config JSON NOT NULL,
    config_hash VARCHAR NOT NULL,
    stages INTEGER NOT NULL,
    status VARCHAR NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);
INSERT INTO runs_2 BY NAME FROM runs;
DROP TABLE runs;
ALTER TABLE runs_2 RENAME TO runs;

CREATE TABLE steps_2 (
    fingerprint VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    settings JSON NOT NULL,
    inputs JSON NOT NULL,
    outputs JSON,
    error VARCHAR,
    attempts INTEGER NOT NULL,
    flow_run_id VARCHAR,
    task_run_id VARCHAR,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ,
    contract INTEGER
);
INSERT INTO steps_2 BY NAME FROM steps;
DROP TABLE steps;
ALTER TABLE steps_2 RENAME TO steps;

CREATE TABLE run_steps_2 (
    run_id VARCHAR NOT NULL,
    stage INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    fingerprint VARCHAR NOT NULL
);
INSERT INTO run_steps_2 BY NAME FROM run_steps;
DROP TABLE run_steps;
ALTER TABLE run_steps_2 RENAME TO run_steps;

CREATE TABLE shards_2 (
    fingerprint VARCHAR NOT NULL,
    shard_index INTEGER NOT NULL,
    path VARCHAR NOT NULL,
    n_rows BIGINT NOT NULL,
    n_bytes BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL
);
INSERT INTO shards_2 BY NAME FROM shards;
DROP TABLE shards;
ALTER TABLE shards_2 RENAME TO shards;

CREATE TABLE rollout_stats_2 (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    phase VARCHAR NOT NULL,
    policy_id VARCHAR NOT NULL,
    n INTEGER NOT NULL,
    n_correct INTEGER NOT NULL,
    n_ungraded INTEGER NOT NULL,
    reward_mean DOUBLE,
    reward_std DOUBLE,
    outcome VARCHAR NOT NULL,
    has_signal BOOLEAN NOT NULL,
    n_truncated INTEGER NOT NULL,
    mean_length DOUBLE NOT NULL,
    max_length INTEGER NOT NULL
);
INSERT INTO rollout_stats_2 BY NAME FROM rollout_stats;
DROP TABLE rollout_stats;
ALTER TABLE rollout_stats_2 RENAME TO rollout_stats;

CREATE TABLE influence_scores_2 (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    validation_set VARCHAR NOT NULL,
    dot DOUBLE NOT NULL,
    cosine DOUBLE NOT NULL,
    norm DOUBLE NOT NULL,
    rank INTEGER NOT NULL,
    estimator VARCHAR
);
INSERT INTO influence_scores_2 BY NAME FROM influence_scores;
DROP TABLE influence_scores;
ALTER TABLE influence_scores_2 RENAME TO influence_scores;

CREATE TABLE selections_2 (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    strategy VARCHAR NOT NULL,
    score DOUBLE NOT NULL,
    rank INTEGER NOT NULL,
    selected BOOLEAN NOT NULL,
    reason VARCHAR NOT NULL
);
INSERT INTO selections_2 BY NAME FROM selections;
DROP TABLE selections;
ALTER TABLE selections_2 RENAME TO selections;

CREATE TABLE rollout_drift_2 (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    n_tokens BIGINT NOT NULL,
    kl DOUBLE NOT NULL,
    ess DOUBLE NOT NULL,
    sequence_ess DOUBLE NOT NULL,
    stale BOOLEAN NOT NULL
);
INSERT INTO rollout_drift_2 BY NAME FROM rollout_drift;
DROP TABLE rollout_drift;
ALTER TABLE rollout_drift_2 RENAME TO rollout_drift;

CREATE TABLE diagnoses_2 (
    fingerprint VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    value DOUBLE,
    n BIGINT NOT NULL
);
INSERT INTO diagnoses_2 BY NAME FROM diagnoses;
DROP TABLE diagnoses;
ALTER TABLE diagnoses_2 RENAME TO diagnoses;

CREATE TABLE similarities_2 (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    validation_set VARCHAR NOT NULL,
    cosine DOUBLE NOT NULL
);
INSERT INTO similarities_2 BY NAME FROM similarities;
DROP TABLE similarities;
ALTER TABLE similarities_2 RENAME TO similarities;

CREATE TABLE sampler_decisions_2 (
    fingerprint VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    position INTEGER NOT NULL,
    prompt_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    round INTEGER,
    keep BOOLEAN NOT NULL,
    keep_probability DOUBLE NOT NULL,
    reason VARCHAR NOT NULL
);
INSERT INTO sampler_decisions_2 BY NAME FROM sampler_decisions;
DROP TABLE sampler_decisions;
ALTER TABLE sampler_decisions_2 RENAME TO sampler_decisions;

CREATE TABLE train_steps_2 (
    fingerprint VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    loss DOUBLE,
    reward DOUBLE,
    reward_std DOUBLE,
    frac_reward_zero_std DOUBLE,
    solved_all INTEGER NOT NULL,
    solved_some INTEGER NOT NULL,
    solved_none INTEGER NOT NULL,
    n_ungraded INTEGER NOT NULL,
    grad_norm DOUBLE,
    learning_rate DOUBLE NOT NULL,
    kl DOUBLE,
    entropy DOUBLE,
    clip_ratio_low_mean DOUBLE,
    clip_ratio_high_mean DOUBLE,
    completions_mean_length DOUBLE,
    completions_max_length DOUBLE,
    completions_clipped_ratio DOUBLE,
    sampling_logp_difference_mean DOUBLE,
    sampling_logp_difference_max DOUBLE,
    num_tokens BIGINT NOT NULL,
    generated_tokens BIGINT NOT NULL,
    generation_rounds INTEGER NOT NULL,
    prompts_proposed INTEGER NOT NULL,
    prompts_skipped INTEGER NOT NULL,
    prompts_rolled_out INTEGER NOT NULL,
    rollouts INTEGER NOT NULL,
    groups_trained INTEGER NOT NULL,
    groups_carried INTEGER NOT NULL,
    sampler_metrics JSON NOT NULL,
    step_time DOUBLE NOT NULL,
    rollout_time DOUBLE NOT NULL,
    verify_time DOUBLE NOT NULL,
    update_time DOUBLE NOT NULL,
    clip_ratio_region_mean DOUBLE,
    importance_sampling_ratio_min DOUBLE,
    importance_sampling_ratio_mean DOUBLE,
    importance_sampling_ratio_max DOUBLE,
    completions_min_length DOUBLE,
    completions_mean_terminated_length DOUBLE,
    completions_min_terminated_length DOUBLE,
    completions_max_terminated_length DOUBLE,
    n_timeout INTEGER,
    n_error INTEGER,
    n_unparseable INTEGER,
    n_masked INTEGER,
    non_finite BOOLEAN,
    logprob_time DOUBLE,
    validation_accuracy DOUBLE
);
INSERT INTO train_steps_2 BY NAME FROM train_steps;
DROP TABLE train_steps;
ALTER TABLE train_steps_2 RENAME TO train_steps;

CREATE TABLE evaluations_2 (
    fingerprint VARCHAR NOT NULL,
    evaluation_set VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    k INTEGER NOT NULL,
    policy_id VARCHAR NOT NULL,
    value DOUBLE NOT NULL,
    standard_error DOUBLE,
    n_prompts INTEGER NOT NULL
);
INSERT INTO evaluations_2 BY NAME FROM evaluations;
DROP TABLE evaluations;
ALTER TABLE evaluations_2 RENAME TO evaluations;

CREATE TABLE ungathered (
    fingerprint VARCHAR NOT NULL
);
INSERT INTO ungathered
SELECT fingerprint FROM rollout_stats
UNION
SELECT fingerprint FROM sampler_decisions;
