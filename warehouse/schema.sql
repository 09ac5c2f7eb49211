-- Tables of the warehouse. Append-only history: every write is INSERT OR REPLACE by primary key, so doing it
-- again changes nothing. `fingerprint` is that of the step which wrote the row; run_steps says which runs use it.

CREATE TABLE IF NOT EXISTS meta (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL);

CREATE TABLE IF NOT EXISTS prompts (
    prompt_id VARCHAR PRIMARY KEY,
    data_source VARCHAR NOT NULL,
    messages JSON NOT NULL,
    gold VARCHAR NOT NULL,
    verifier VARCHAR NOT NULL,
    verifier_args JSON NOT NULL,
    extra JSON NOT NULL
);

-- One row for each row of a data set that was read: duplicates point to the prompt they were merged into.
CREATE TABLE IF NOT EXISTS prompt_sources (
    fingerprint VARCHAR NOT NULL,
    split VARCHAR NOT NULL,              -- train, validation, evaluation
    set_name VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    row_index BIGINT NOT NULL,
    prompt_id VARCHAR NOT NULL,
    PRIMARY KEY (fingerprint, split, set_name, source, row_index)
);

-- Rows that were left out, with the reason.
CREATE TABLE IF NOT EXISTS prompt_rejects (
    fingerprint VARCHAR NOT NULL,
    split VARCHAR NOT NULL,
    set_name VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    row_index BIGINT NOT NULL,
    reason VARCHAR NOT NULL,             -- no_prompt, no_gold, not_utf8, unparseable_gold, conflicting_gold, ...
    detail VARCHAR NOT NULL,
    PRIMARY KEY (fingerprint, split, set_name, source, row_index)
);

CREATE TABLE IF NOT EXISTS policies (
    policy_id VARCHAR PRIMARY KEY,       -- of the weights' bytes
    path VARCHAR NOT NULL,
    parent_policy_id VARCHAR,
    fingerprint VARCHAR NOT NULL,
    n_parameters BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS runs (
    run_id VARCHAR PRIMARY KEY,
    config JSON NOT NULL,
    config_hash VARCHAR NOT NULL,
    stages INTEGER NOT NULL,
    status VARCHAR NOT NULL,             -- running, waiting (for its next stage), completed, failed
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE IF NOT EXISTS steps (
    fingerprint VARCHAR PRIMARY KEY,
    name VARCHAR NOT NULL,
    status VARCHAR NOT NULL,             -- running, completed, failed
    settings JSON NOT NULL,
    inputs JSON NOT NULL,
    outputs JSON,
    error VARCHAR,
    attempts INTEGER NOT NULL,
    flow_run_id VARCHAR,
    task_run_id VARCHAR,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ
);

-- Of the code that last worked on it; NULL where that did not say.
ALTER TABLE steps ADD COLUMN IF NOT EXISTS contract INTEGER;

-- Which step a run takes at each stage. Stage 0 is before any training.
CREATE TABLE IF NOT EXISTS run_steps (
    run_id VARCHAR NOT NULL,
    stage INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    fingerprint VARCHAR NOT NULL,
    PRIMARY KEY (run_id, stage, name)
);

CREATE TABLE IF NOT EXISTS shards (
    fingerprint VARCHAR NOT NULL,
    shard_index INTEGER NOT NULL,
    path VARCHAR NOT NULL,               -- relative to the root
    n_rows BIGINT NOT NULL,
    n_bytes BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,
    PRIMARY KEY (fingerprint, shard_index)
);

-- What one policy made of one prompt at one step: the difficulty history.
CREATE TABLE IF NOT EXISTS rollout_stats (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    step INTEGER NOT NULL,               -- training step; 0 offline and in evaluations
    phase VARCHAR NOT NULL,              -- offline, train, evaluation
    policy_id VARCHAR NOT NULL,          -- of the policy the stage started from
    n INTEGER NOT NULL,                  -- graded completions
    n_correct INTEGER NOT NULL,
    n_ungraded INTEGER NOT NULL,         -- verifier timed out or failed
    reward_mean DOUBLE,
    reward_std DOUBLE,                   -- sample standard deviation (n - 1)
    outcome VARCHAR NOT NULL,            -- all_right, all_wrong, mixed, ungraded
    has_signal BOOLEAN NOT NULL,         -- rewards differ
    n_truncated INTEGER NOT NULL,
    mean_length DOUBLE NOT NULL,
    max_length INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, prompt_id, step)
);

CREATE TABLE IF NOT EXISTS influence_scores (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    validation_set VARCHAR NOT NULL,
    dot DOUBLE NOT NULL,
    cosine DOUBLE NOT NULL,
    norm DOUBLE NOT NULL,
    rank INTEGER NOT NULL,               -- 1 is the highest cosine of an estimator; ties by prompt_id
    estimator VARCHAR,                   -- exact, projected, or cascade: of its cheap pass alone, ranked after all others
    PRIMARY KEY (fingerprint, prompt_id, validation_set)
);

-- The whole pool, selected or not, with the reason.
CREATE TABLE IF NOT EXISTS selections (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    strategy VARCHAR NOT NULL,
    score DOUBLE NOT NULL,
    rank INTEGER NOT NULL,
    selected BOOLEAN NOT NULL,
    reason VARCHAR NOT NULL,
    PRIMARY KEY (fingerprint, prompt_id)
);

-- Of warehouses that are older than the column.
ALTER TABLE influence_scores ADD COLUMN IF NOT EXISTS estimator VARCHAR;

-- How far the policy of a stage has moved from the one whose rollouts it is scored with, by prompt.
CREATE TABLE IF NOT EXISTS rollout_drift (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    split VARCHAR NOT NULL,              -- train, validation
    n_tokens BIGINT NOT NULL,
    kl DOUBLE NOT NULL,                  -- nats a token, of the behaviour policy from the policy
    ess DOUBLE NOT NULL,                 -- effective share of the tokens
    sequence_ess DOUBLE NOT NULL,        -- effective share of the trajectories
    stale BOOLEAN NOT NULL,              -- by the thresholds of the run that measured it
    PRIMARY KEY (fingerprint, prompt_id)
);

-- What scores and selections are worth: one number a row, whichever step knows it.
CREATE TABLE IF NOT EXISTS diagnoses (
    fingerprint VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,            -- a validation set; empty for the selection as a whole
    metric VARCHAR NOT NULL,
    value DOUBLE,                        -- NULL where it is not defined, as a share of 0 prompts
    n BIGINT NOT NULL,                   -- prompts that it was computed from
    PRIMARY KEY (fingerprint, subject, metric)
);

-- How near the text of each prompt of the pool is to those of a validation set.
CREATE TABLE IF NOT EXISTS similarities (
    fingerprint VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    validation_set VARCHAR NOT NULL,
    cosine DOUBLE NOT NULL,              -- of the embedding and the set's centroid
    PRIMARY KEY (fingerprint, prompt_id, validation_set)
);

CREATE TABLE IF NOT EXISTS sampler_decisions (
    fingerprint VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    position INTEGER NOT NULL,           -- order of the decisions within the step
    prompt_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    round INTEGER,                       -- of the step's proposals, from 0; rollouts of a round come before the next
    keep BOOLEAN NOT NULL,
    keep_probability DOUBLE NOT NULL,
    reason VARCHAR NOT NULL,
    PRIMARY KEY (fingerprint, step, position)
);

-- Of warehouses that are older than the column.
ALTER TABLE sampler_decisions ADD COLUMN IF NOT EXISTS round INTEGER;

-- Named as TRL names its metrics, with _ for /.
CREATE TABLE IF NOT EXISTS train_steps (
    fingerprint VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    loss DOUBLE,                         -- NULL, as grad_norm, where it was not finite and the step not applied
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
    num_tokens BIGINT NOT NULL,          -- trained on so far in this stage
    generated_tokens BIGINT NOT NULL,    -- in this step
    generation_rounds INTEGER NOT NULL,
    prompts_proposed INTEGER NOT NULL,
    prompts_skipped INTEGER NOT NULL,
    prompts_rolled_out INTEGER NOT NULL,
    rollouts INTEGER NOT NULL,
    groups_trained INTEGER NOT NULL,
    groups_carried INTEGER NOT NULL,     -- accepted, kept for the next step
    sampler_metrics JSON NOT NULL,
    step_time DOUBLE NOT NULL,           -- seconds
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
    n_timeout INTEGER,                   -- of n_ungraded, by what the verifier said; and programs too slow, which are wrong
    n_error INTEGER,
    n_unparseable INTEGER,               -- graded wrong: no answer could be read from the completion
    n_masked INTEGER,                    -- graded, but cut off and left out of the loss
    non_finite BOOLEAN,
    logprob_time DOUBLE,                 -- of the reference's log-probs
    validation_accuracy DOUBLE,          -- avg@k of the validation prompts after this step, where they were looked at
    PRIMARY KEY (fingerprint, step)
);

-- Of warehouses that are older than the columns.
ALTER TABLE train_steps ALTER COLUMN loss DROP NOT NULL;
ALTER TABLE train_steps ALTER COLUMN grad_norm DROP NOT NULL;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS clip_ratio_region_mean DOUBLE;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS importance_sampling_ratio_min DOUBLE;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS importance_sampling_ratio_mean DOUBLE;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS importance_sampling_ratio_max DOUBLE;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS completions_min_length DOUBLE;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS completions_mean_terminated_length DOUBLE;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS completions_min_terminated_length DOUBLE;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS completions_max_terminated_length DOUBLE;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS n_timeout INTEGER;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS n_error INTEGER;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS n_unparseable INTEGER;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS n_masked INTEGER;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS non_finite BOOLEAN;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS logprob_time DOUBLE;
ALTER TABLE train_steps ADD COLUMN IF NOT EXISTS validation_accuracy DOUBLE;

CREATE TABLE IF NOT EXISTS evaluations (
    fingerprint VARCHAR NOT NULL,
    evaluation_set VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,             -- avg, pass
    k INTEGER NOT NULL,
    policy_id VARCHAR NOT NULL,
    value DOUBLE NOT NULL,
    standard_error DOUBLE,
    n_prompts INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, evaluation_set, metric, k)
);

COMMENT ON TABLE prompts IS 'Every prompt with its gold and verifier.';
COMMENT ON TABLE prompt_sources IS 'Every row of a data set that was read, and the prompt that it became.';
COMMENT ON TABLE prompt_rejects IS 'Rows of a data set that were left out, with the reason.';
COMMENT ON TABLE policies IS 'Policies with their weights, and what each was trained from.';
COMMENT ON TABLE runs IS 'Runs with their config.';
COMMENT ON TABLE steps IS 'Steps by fingerprint, with their last attempt.';
COMMENT ON TABLE run_steps IS 'Which step a run takes at each stage.';
COMMENT ON TABLE shards IS 'The Parquet files of a step.';
COMMENT ON TABLE rollout_stats IS 'What one policy made of one prompt at one step.';
COMMENT ON TABLE influence_scores IS 'Influence of each prompt on each validation set.';
COMMENT ON TABLE rollout_drift IS 'How far the policy has moved from the rollouts that it is scored with.';
COMMENT ON TABLE selections IS 'The whole pool of a stage, selected or not, with the reason.';
COMMENT ON TABLE diagnoses IS 'What scores and selections are worth; see the view stage_diagnosis.';
COMMENT ON TABLE similarities IS 'Likeness in text of each prompt to each validation set.';
COMMENT ON TABLE sampler_decisions IS 'What the sampler decided on each prompt before its rollout.';
COMMENT ON TABLE train_steps IS 'Metrics of each training step.';
COMMENT ON TABLE evaluations IS 'avg@k and pass@k of each evaluation set.';
