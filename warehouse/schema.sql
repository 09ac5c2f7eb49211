-- Tables of the warehouse, as a new one gets them; migrations/ brings an older one there. Append-only history: a write
-- replaces the row of the same key, so doing it again changes nothing. No index keeps the keys (see tables.py).
-- `fingerprint` is that of the step which wrote the row; run_steps says which runs use it.

CREATE TABLE IF NOT EXISTS meta (
    key VARCHAR NOT NULL,                -- schema_version, definition_sha256
    value VARCHAR NOT NULL               -- its value as text
    -- Key: key
);

CREATE TABLE IF NOT EXISTS prompts (
    prompt_id VARCHAR NOT NULL,          -- hash of data source and messages
    data_source VARCHAR NOT NULL,        -- name of the data set it came from
    messages JSON NOT NULL,              -- the chat, as [{role, content}, ...]
    gold VARCHAR NOT NULL,               -- the answer that the verifier compares with
    verifier VARCHAR NOT NULL,           -- name of the verifier that grades it
    verifier_args JSON NOT NULL,         -- settings of the verifier for this prompt
    extra JSON NOT NULL                  -- what else the data set said: kind, level, ...
    -- Key: prompt_id
);

-- One row for each row of a data set that was read: duplicates point to the prompt they were merged into.
CREATE TABLE IF NOT EXISTS prompt_sources (
    fingerprint VARCHAR NOT NULL,        -- of the ingest step
    split VARCHAR NOT NULL,              -- train, validation, evaluation
    set_name VARCHAR NOT NULL,           -- name of the set within its split
    source VARCHAR NOT NULL,             -- the file or data set that was read
    row_index BIGINT NOT NULL,           -- row in the source, from 0
    prompt_id VARCHAR NOT NULL           -- the prompt that the row became
    -- Key: fingerprint, split, set_name, source, row_index
);

-- Rows that were left out, with the reason.
CREATE TABLE IF NOT EXISTS prompt_rejects (
    fingerprint VARCHAR NOT NULL,        -- of the ingest step
    split VARCHAR NOT NULL,              -- train, validation, evaluation
    set_name VARCHAR NOT NULL,           -- name of the set within its split
    source VARCHAR NOT NULL,             -- the file or data set that was read
    row_index BIGINT NOT NULL,           -- row in the source, from 0
    reason VARCHAR NOT NULL,             -- no_prompt, no_gold, not_utf8, unparseable_gold, conflicting_gold, ...
    detail VARCHAR NOT NULL              -- what exactly was wrong with the row
    -- Key: fingerprint, split, set_name, source, row_index
);

CREATE TABLE IF NOT EXISTS policies (
    policy_id VARCHAR NOT NULL,          -- hash of the weights' bytes
    path VARCHAR NOT NULL,               -- where the weights lie: relative to the root, or elsewhere
    parent_policy_id VARCHAR,            -- the policy that it was trained from; NULL for an initial one
    fingerprint VARCHAR NOT NULL,        -- of the step that wrote the row
    n_parameters BIGINT NOT NULL         -- number of parameters
    -- Key: policy_id
);

CREATE TABLE IF NOT EXISTS runs (
    run_id VARCHAR NOT NULL,             -- name of the run
    config JSON NOT NULL,                -- the whole config, defaults filled in
    config_hash VARCHAR NOT NULL,        -- hash of the config
    stages INTEGER NOT NULL,             -- number of curriculum stages
    status VARCHAR NOT NULL,             -- running, waiting (for its next stage), completed, failed
    created_at TIMESTAMPTZ NOT NULL,     -- when the run was first recorded
    updated_at TIMESTAMPTZ NOT NULL      -- when its status last changed
    -- Key: run_id
);

CREATE TABLE IF NOT EXISTS steps (
    fingerprint VARCHAR NOT NULL,        -- hash of name, settings, inputs and contract
    name VARCHAR NOT NULL,               -- ingest, rollouts_train, score, select, train, evaluate, ...
    status VARCHAR NOT NULL,             -- running, completed, failed, imported, removed (its files)
    settings JSON NOT NULL,              -- its part of the config
    inputs JSON NOT NULL,                -- fingerprints and ids that it read
    outputs JSON,                        -- what it made; NULL until it is completed
    error VARCHAR,                       -- why the last attempt failed
    attempts INTEGER NOT NULL,           -- how often it was begun
    flow_run_id VARCHAR,                 -- Prefect's id of the flow run of the last attempt
    task_run_id VARCHAR,                 -- Prefect's id of the task run of the last attempt
    started_at TIMESTAMPTZ NOT NULL,     -- of the last attempt
    finished_at TIMESTAMPTZ,             -- of the last attempt; NULL while it runs
    contract INTEGER                     -- of the code that last worked on it; NULL where that did not say
    -- Key: fingerprint
);

-- Which step a run takes at each stage. Stage 0 is before any training.
CREATE TABLE IF NOT EXISTS run_steps (
    run_id VARCHAR NOT NULL,             -- name of the run
    stage INTEGER NOT NULL,              -- 0 is before any training
    name VARCHAR NOT NULL,               -- ingest, rollouts_train, score, select, train, evaluate, ...
    fingerprint VARCHAR NOT NULL         -- of the step that the run takes here
    -- Key: run_id, stage, name
);

CREATE TABLE IF NOT EXISTS shards (
    fingerprint VARCHAR NOT NULL,        -- of the step that wrote the row
    shard_index INTEGER NOT NULL,        -- from 0
    path VARCHAR NOT NULL,               -- relative to the root
    n_rows BIGINT NOT NULL,              -- rows in the file
    n_bytes BIGINT NOT NULL,             -- size of the file
    sha256 VARCHAR NOT NULL              -- of the file's bytes
    -- Key: fingerprint, shard_index
);

-- What one policy made of one prompt at one step: the difficulty history.
CREATE TABLE IF NOT EXISTS rollout_stats (
    fingerprint VARCHAR NOT NULL,        -- of the step that rolled the prompt out
    prompt_id VARCHAR NOT NULL,          -- the prompt
    step INTEGER NOT NULL,               -- training step; 0 offline and in evaluations
    phase VARCHAR NOT NULL,              -- offline, train, evaluation
    policy_id VARCHAR NOT NULL,          -- of the policy the stage started from
    n INTEGER NOT NULL,                  -- graded completions
    n_correct INTEGER NOT NULL,          -- of n, graded correct
    n_ungraded INTEGER NOT NULL,         -- verifier timed out or failed
    reward_mean DOUBLE,                  -- over the graded completions
    reward_std DOUBLE,                   -- sample standard deviation (n - 1)
    outcome VARCHAR NOT NULL,            -- all_right, all_wrong, mixed, ungraded
    has_signal BOOLEAN NOT NULL,         -- rewards differ
    n_truncated INTEGER NOT NULL,        -- completions cut off at the limit of tokens
    mean_length DOUBLE NOT NULL,         -- tokens a completion, over all
    max_length INTEGER NOT NULL          -- tokens of the longest completion
    -- Key: fingerprint, prompt_id, step
);

-- The view prompt_totals of finished steps, kept by the warehouse itself: a long history takes seconds to gather.
CREATE TABLE IF NOT EXISTS kept_totals (
    fingerprint VARCHAR NOT NULL,        -- of the step that rolled the prompt out
    prompt_id VARCHAR NOT NULL,          -- the prompt
    phase VARCHAR NOT NULL,              -- offline, train, evaluation
    policy_id VARCHAR NOT NULL,          -- of the policy the stage started from
    n_observations BIGINT NOT NULL,      -- rows of rollout_stats
    n BIGINT NOT NULL,                   -- graded completions
    n_correct BIGINT NOT NULL,           -- of n, graded correct
    n_ungraded BIGINT NOT NULL,          -- verifier timed out or failed
    n_without_signal BIGINT NOT NULL,    -- completions of observations whose rewards do not differ, ungraded ones too
    n_truncated BIGINT NOT NULL,         -- completions cut off at the limit of tokens
    n_tokens DOUBLE NOT NULL,            -- of all completions
    max_length INTEGER NOT NULL,         -- tokens of the longest completion
    outcomes VARCHAR NOT NULL,           -- graded observations in order: all right R, all wrong W, mixed M
    steps INTEGER[] NOT NULL,            -- training step of each of them
    pass_rates DOUBLE[] NOT NULL,        -- of each of them
    last_pass_rate DOUBLE,               -- of the last graded observation; NULL where none was graded
    last_graded_n INTEGER,               -- graded completions of that observation
    last_step INTEGER NOT NULL,          -- training step of the last observation, graded or not
    last_n INTEGER NOT NULL,             -- graded completions of the last observation
    last_n_correct INTEGER NOT NULL,     -- of last_n
    last_outcome VARCHAR NOT NULL,       -- all_right, all_wrong, mixed, ungraded
    last_has_signal BOOLEAN NOT NULL,    -- rewards of the last observation differ
    last_n_truncated INTEGER NOT NULL,   -- completions of the last observation that were cut off
    last_mean_length DOUBLE NOT NULL     -- tokens a completion of the last observation
    -- Key: fingerprint, prompt_id
);

-- The view decision_totals of finished steps.
CREATE TABLE IF NOT EXISTS kept_decisions (
    fingerprint VARCHAR NOT NULL,        -- of the train step
    prompt_id VARCHAR NOT NULL,          -- the prompt decided on
    keep BOOLEAN NOT NULL,               -- whether it was rolled out
    reason VARCHAR NOT NULL,             -- the sampler's ground for it
    n_decisions BIGINT NOT NULL          -- rows of sampler_decisions
    -- Key: fingerprint, prompt_id, keep, reason
);

CREATE TABLE IF NOT EXISTS ungathered (
    fingerprint VARCHAR NOT NULL         -- of a step whose rows kept_totals and kept_decisions have not
    -- Key: fingerprint
);

CREATE TABLE IF NOT EXISTS influence_scores (
    fingerprint VARCHAR NOT NULL,        -- of the score step
    prompt_id VARCHAR NOT NULL,          -- a prompt of the pool
    validation_set VARCHAR NOT NULL,     -- the set that the influence is on
    dot DOUBLE NOT NULL,                 -- inner product of the gradients of prompt and set
    cosine DOUBLE NOT NULL,              -- the influence: cosine of the two gradients
    norm DOUBLE NOT NULL,                -- length of the prompt's gradient
    rank INTEGER NOT NULL,               -- 1 is the highest cosine of an estimator; ties by prompt_id
    estimator VARCHAR                    -- exact, projected, or cascade: of its cheap pass alone, ranked last
    -- Key: fingerprint, prompt_id, validation_set
);

-- The whole pool, selected or not, with the reason.
CREATE TABLE IF NOT EXISTS selections (
    fingerprint VARCHAR NOT NULL,        -- of the select step
    prompt_id VARCHAR NOT NULL,          -- a prompt of the pool
    strategy VARCHAR NOT NULL,           -- influence, relevance, learnability, pass_rate, random, all
    score DOUBLE NOT NULL,               -- what the strategy ranks by
    rank INTEGER NOT NULL,               -- 1 is taken first
    selected BOOLEAN NOT NULL,           -- whether the stage practises on it
    reason VARCHAR NOT NULL,             -- why it was taken or left
    pass_rate DOUBLE                     -- the last that was known by then; NULL where none was graded
    -- Key: fingerprint, prompt_id
);

-- How far the policy of a stage has moved from the one whose rollouts it is scored with, by prompt.
CREATE TABLE IF NOT EXISTS rollout_drift (
    fingerprint VARCHAR NOT NULL,        -- of the drift or score step
    prompt_id VARCHAR NOT NULL,          -- the prompt
    split VARCHAR NOT NULL,              -- train, validation
    n_tokens BIGINT NOT NULL,            -- completion tokens that were compared
    kl DOUBLE NOT NULL,                  -- nats a token, of the behaviour policy from the policy
    ess DOUBLE NOT NULL,                 -- effective share of the tokens
    sequence_ess DOUBLE NOT NULL,        -- effective share of the trajectories
    stale BOOLEAN NOT NULL               -- by the thresholds of the run that measured it
    -- Key: fingerprint, prompt_id
);

-- What scores and selections are worth: one number a row, whichever step knows it.
CREATE TABLE IF NOT EXISTS diagnoses (
    fingerprint VARCHAR NOT NULL,        -- of the step that wrote the row
    subject VARCHAR NOT NULL,            -- a validation set; empty for the selection as a whole
    metric VARCHAR NOT NULL,             -- name of the number
    value DOUBLE,                        -- NULL where it is not defined, as a share of 0 prompts
    n BIGINT NOT NULL                    -- prompts that it was computed from
    -- Key: fingerprint, subject, metric
);

-- How near the text of each prompt of the pool is to those of a validation set.
CREATE TABLE IF NOT EXISTS similarities (
    fingerprint VARCHAR NOT NULL,        -- of the similarity step
    prompt_id VARCHAR NOT NULL,          -- a prompt of the pool
    validation_set VARCHAR NOT NULL,     -- the set that it is compared with
    cosine DOUBLE NOT NULL               -- of the embedding and the set's centroid
    -- Key: fingerprint, prompt_id, validation_set
);

-- What the policy makes of each prompt of the pool by reading it.
CREATE TABLE IF NOT EXISTS prompt_states (
    fingerprint VARCHAR NOT NULL,        -- of the relevance step
    prompt_id VARCHAR NOT NULL,          -- a prompt of the pool
    n_tokens INTEGER NOT NULL,           -- of the prompt
    state FLOAT[] NOT NULL               -- against the pool's mean, along its leading directions; like prompts are near
    -- Key: fingerprint, prompt_id
);

-- How far each prompt of the pool is of the kind that a validation set asks.
CREATE TABLE IF NOT EXISTS relevances (
    fingerprint VARCHAR NOT NULL,        -- of the relevance step
    prompt_id VARCHAR NOT NULL,          -- a prompt of the pool
    validation_set VARCHAR NOT NULL,     -- the set that it is compared with
    cosine DOUBLE NOT NULL,              -- mean over the set's prompts, of the policy's states against the pool's mean
    relevance DOUBLE NOT NULL            -- from 0 to 1, as near to the set as half of its own prompts
    -- Key: fingerprint, prompt_id, validation_set
);

CREATE TABLE IF NOT EXISTS sampler_decisions (
    fingerprint VARCHAR NOT NULL,        -- of the train step
    step INTEGER NOT NULL,               -- training step that the decision is for
    position INTEGER NOT NULL,           -- order of the decisions within the step
    prompt_id VARCHAR NOT NULL,          -- the prompt decided on
    epoch INTEGER NOT NULL,              -- pass over the selected prompts
    round INTEGER,                       -- of the step's proposals, from 0; rollouts of a round come before the next
    keep BOOLEAN NOT NULL,               -- whether it was rolled out
    keep_probability DOUBLE NOT NULL,    -- chance that it had of being kept
    reason VARCHAR NOT NULL              -- the sampler's ground for it
    -- Key: fingerprint, step, position
);

-- Named as TRL names its metrics, with _ for /.
CREATE TABLE IF NOT EXISTS train_steps (
    fingerprint VARCHAR NOT NULL,        -- of the train step
    step INTEGER NOT NULL,               -- training step of the stage, from 1
    loss DOUBLE,                         -- NULL, as grad_norm, where it was not finite and the step not applied
    reward DOUBLE,                       -- mean over the graded completions
    reward_std DOUBLE,                   -- mean over groups of the standard deviation of their rewards
    frac_reward_zero_std DOUBLE,         -- share of groups whose rewards are all one
    solved_all INTEGER NOT NULL,         -- groups with every completion correct
    solved_some INTEGER NOT NULL,        -- groups with some completions correct
    solved_none INTEGER NOT NULL,        -- groups with no completion correct
    n_ungraded INTEGER NOT NULL,         -- completions that could not be graded
    grad_norm DOUBLE,                    -- length of the gradient before clipping
    learning_rate DOUBLE NOT NULL,       -- of this step
    kl DOUBLE,                           -- nats a token, of the policy from the reference
    entropy DOUBLE,                      -- nats a token
    clip_ratio_low_mean DOUBLE,          -- share of tokens whose ratio was clipped from below
    clip_ratio_high_mean DOUBLE,         -- share of tokens whose ratio was clipped from above
    completions_mean_length DOUBLE,      -- tokens
    completions_max_length DOUBLE,       -- tokens
    completions_clipped_ratio DOUBLE,    -- share of completions cut off at the limit of tokens
    sampling_logp_difference_mean DOUBLE, -- between engine and trainer, absolute, nats a token
    sampling_logp_difference_max DOUBLE, -- between engine and trainer, absolute, nats a token
    num_tokens BIGINT NOT NULL,          -- trained on so far in this stage
    generated_tokens BIGINT NOT NULL,    -- in this step
    generation_rounds INTEGER NOT NULL,  -- how often prompts were proposed and rolled out
    prompts_proposed INTEGER NOT NULL,   -- prompts that the sampler decided on
    prompts_skipped INTEGER NOT NULL,    -- of them, not rolled out
    prompts_rolled_out INTEGER NOT NULL, -- of them, rolled out
    rollouts INTEGER NOT NULL,           -- completions generated
    groups_trained INTEGER NOT NULL,     -- groups in the update
    groups_carried INTEGER NOT NULL,     -- accepted, kept for the next step
    sampler_metrics JSON NOT NULL,       -- the sampler's own numbers
    step_time DOUBLE NOT NULL,           -- seconds
    rollout_time DOUBLE NOT NULL,        -- seconds
    verify_time DOUBLE NOT NULL,         -- seconds
    update_time DOUBLE NOT NULL,         -- seconds
    clip_ratio_region_mean DOUBLE,       -- share of tokens whose ratio was clipped
    importance_sampling_ratio_min DOUBLE, -- of engine and trainer
    importance_sampling_ratio_mean DOUBLE, -- of engine and trainer
    importance_sampling_ratio_max DOUBLE, -- of engine and trainer
    completions_min_length DOUBLE,       -- tokens
    completions_mean_terminated_length DOUBLE, -- tokens, of completions that ended by themselves
    completions_min_terminated_length DOUBLE, -- tokens, of completions that ended by themselves
    completions_max_terminated_length DOUBLE, -- tokens, of completions that ended by themselves
    n_timeout INTEGER,                   -- of n_ungraded, no verdict in time; and programs too slow, which are wrong
    n_error INTEGER,                     -- of n_ungraded, the verifier failed
    n_unparseable INTEGER,               -- graded wrong: no answer could be read from the completion
    n_masked INTEGER,                    -- graded, but cut off and left out of the loss
    non_finite BOOLEAN,                  -- whether loss or gradient was not finite and the step not applied
    logprob_time DOUBLE,                 -- seconds, of the reference's log-probs
    validation_accuracy DOUBLE           -- avg@k of the validation prompts after this step, where they were looked at
    -- Key: fingerprint, step
);

CREATE TABLE IF NOT EXISTS evaluations (
    fingerprint VARCHAR NOT NULL,        -- of the evaluate step
    evaluation_set VARCHAR NOT NULL,     -- name of the set
    metric VARCHAR NOT NULL,             -- avg (avg@k) or pass (pass@k)
    k INTEGER NOT NULL,                  -- completions a prompt that the metric takes
    policy_id VARCHAR NOT NULL,          -- the policy that was evaluated
    value DOUBLE NOT NULL,               -- from 0 to 1
    standard_error DOUBLE,               -- of value
    n_prompts INTEGER NOT NULL           -- prompts of the set
    -- Key: fingerprint, evaluation_set, metric, k
);

COMMENT ON TABLE meta IS 'Version of the tables and views.';
COMMENT ON TABLE prompts IS 'Every prompt with its gold and verifier.';
COMMENT ON TABLE prompt_sources IS 'Every row of a data set that was read, and the prompt that it became.';
COMMENT ON TABLE prompt_rejects IS 'Rows of a data set that were left out, with the reason.';
COMMENT ON TABLE policies IS 'Policies with their weights, and what each was trained from.';
COMMENT ON TABLE runs IS 'Runs with their config.';
COMMENT ON TABLE steps IS 'Steps by fingerprint, with their last attempt.';
COMMENT ON TABLE run_steps IS 'Which step a run takes at each stage.';
COMMENT ON TABLE shards IS 'The Parquet files of a step.';
COMMENT ON TABLE rollout_stats IS 'What one policy made of one prompt at one step.';
COMMENT ON TABLE kept_totals IS 'Of finished steps; see the view prompt_totals.';
COMMENT ON TABLE kept_decisions IS 'Of finished steps; see the view decision_totals.';
COMMENT ON TABLE ungathered IS 'Steps that still roll out: their totals are gathered when asked for.';
COMMENT ON TABLE influence_scores IS 'Influence of each prompt on each validation set.';
COMMENT ON TABLE rollout_drift IS 'How far the policy has moved from the rollouts that it is scored with.';
COMMENT ON TABLE selections IS 'The whole pool of a stage, selected or not, with the reason.';
COMMENT ON TABLE diagnoses IS 'What scores and selections are worth; see the view stage_diagnosis.';
COMMENT ON TABLE prompt_states IS 'What the policy makes of each prompt of the pool by reading it.';
COMMENT ON TABLE relevances IS 'How far each prompt of the pool is of the kind that a validation set asks.';
COMMENT ON TABLE similarities IS 'Likeness in text of each prompt to each validation set.';
COMMENT ON TABLE sampler_decisions IS 'What the sampler decided on each prompt before its rollout.';
COMMENT ON TABLE train_steps IS 'Metrics of each training step.';
COMMENT ON TABLE evaluations IS 'avg@k and pass@k of each evaluation set.';
