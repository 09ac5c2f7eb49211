-- Version 4: what was known of each prompt stands with its selection.
CREATE TABLE meta("key" VARCHAR NOT NULL, "value" VARCHAR NOT NULL);
INSERT INTO meta VALUES ('schema_version', '4'), ('definition_sha256', 'of its own code');
CREATE TABLE prompts(prompt_id VARCHAR NOT NULL, data_source VARCHAR NOT NULL, messages JSON NOT NULL, gold VARCHAR NOT NULL, verifier VARCHAR NOT NULL, verifier_args JSON NOT NULL, extra JSON NOT NULL);
INSERT INTO prompts VALUES
    ('a', 'data_source 0', '{"i": 0}', 'gold 0', 'verifier 0', '{"i": 0}', '{"i": 0}'),
    ('b', 'data_source 1', '{"i": 1}', 'gold 1', 'verifier 1', '{"i": 1}', '{"i": 1}'),
    ('c', 'data_source 2', '{"i": 2}', 'gold 2', 'verifier 2', '{"i": 2}', '{"i": 2}'),
    ('d', 'data_source 3', '{"i": 3}', 'gold 3', 'verifier 3', '{"i": 3}', '{"i": 3}');
CREATE TABLE prompt_sources(fingerprint VARCHAR NOT NULL, split VARCHAR NOT NULL, set_name VARCHAR NOT NULL, "source" VARCHAR NOT NULL, row_index BIGINT NOT NULL, prompt_id VARCHAR NOT NULL);
INSERT INTO prompt_sources VALUES
    ('done', 'split 0', 'set_name 0', 'source 0', 0, 'a'),
    ('done', 'split 1', 'set_name 1', 'source 1', 1, 'b'),
    ('going', 'split 2', 'set_name 2', 'source 2', 2, 'c'),
    ('going', 'split 3', 'set_name 3', 'source 3', 3, 'd');
CREATE TABLE prompt_rejects(fingerprint VARCHAR NOT NULL, split VARCHAR NOT NULL, set_name VARCHAR NOT NULL, "source" VARCHAR NOT NULL, row_index BIGINT NOT NULL, reason VARCHAR NOT NULL, detail VARCHAR NOT NULL);
INSERT INTO prompt_rejects VALUES
    ('done', 'split 0', 'set_name 0', 'source 0', 0, 'it''s easy', 'detail 0'),
    ('done', 'split 1', 'set_name 1', 'source 1', 1, 'it''s easy', 'detail 1'),
    ('going', 'split 2', 'set_name 2', 'source 2', 2, 'it''s easy', 'detail 2'),
    ('going', 'split 3', 'set_name 3', 'source 3', 3, 'it''s easy', 'detail 3');
CREATE TABLE policies(policy_id VARCHAR NOT NULL, path VARCHAR NOT NULL, parent_policy_id VARCHAR, fingerprint VARCHAR NOT NULL, n_parameters BIGINT NOT NULL);
INSERT INTO policies VALUES
    ('p0', 'path 0', 'parent_policy_id 0', 'done', 0),
    ('p1', 'path 1', 'parent_policy_id 1', 'done', 1),
    ('p2', 'path 2', 'parent_policy_id 2', 'going', 2),
    ('p3', 'path 3', NULL, 'going', 3);
CREATE TABLE runs(run_id VARCHAR NOT NULL, config JSON NOT NULL, config_hash VARCHAR NOT NULL, stages INTEGER NOT NULL, status VARCHAR NOT NULL, created_at TIMESTAMP WITH TIME ZONE NOT NULL, updated_at TIMESTAMP WITH TIME ZONE NOT NULL);
INSERT INTO runs VALUES
    ('run_id 0', '{"i": 0}', 'config_hash 0', 2, 'completed', '2026-01-01 12:00:00+00', '2026-01-01 12:00:00+00'),
    ('run_id 1', '{"i": 1}', 'config_hash 1', 2, 'running', '2026-01-02 12:00:00+00', '2026-01-02 12:00:00+00'),
    ('run_id 2', '{"i": 2}', 'config_hash 2', 2, 'running', '2026-01-03 12:00:00+00', '2026-01-03 12:00:00+00'),
    ('run_id 3', '{"i": 3}', 'config_hash 3', 2, 'running', '2026-01-04 12:00:00+00', '2026-01-04 12:00:00+00');
CREATE TABLE steps(fingerprint VARCHAR NOT NULL, "name" VARCHAR NOT NULL, status VARCHAR NOT NULL, settings JSON NOT NULL, inputs JSON NOT NULL, outputs JSON, "error" VARCHAR, attempts INTEGER NOT NULL, flow_run_id VARCHAR, task_run_id VARCHAR, started_at TIMESTAMP WITH TIME ZONE NOT NULL, finished_at TIMESTAMP WITH TIME ZONE, contract INTEGER);
INSERT INTO steps VALUES
    ('done', 'train', 'completed', '{"i": 0}', '{"i": 0}', '{"i": 0}', 'error 0', 0, 'flow_run_id 0', 'task_run_id 0', '2026-01-01 12:00:00+00', '2026-01-01 12:00:00+00', 0),
    ('going', 'train', 'running', '{"i": 1}', '{"i": 1}', '{"i": 1}', 'error 1', 1, 'flow_run_id 1', 'task_run_id 1', '2026-01-02 12:00:00+00', '2026-01-02 12:00:00+00', 1),
    ('failed', 'score', 'running', '{"i": 2}', '{"i": 2}', '{"i": 2}', 'error 2', 2, 'flow_run_id 2', 'task_run_id 2', '2026-01-03 12:00:00+00', '2026-01-03 12:00:00+00', 2),
    ('other', 'select', 'running', '{"i": 3}', '{"i": 3}', NULL, NULL, 3, NULL, NULL, '2026-01-04 12:00:00+00', NULL, NULL);
CREATE TABLE run_steps(run_id VARCHAR NOT NULL, stage INTEGER NOT NULL, "name" VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL);
INSERT INTO run_steps VALUES
    ('run_id 0', 0, 'name 0', 'done'),
    ('run_id 1', 1, 'name 1', 'done'),
    ('run_id 2', 2, 'name 2', 'going'),
    ('run_id 3', 3, 'name 3', 'going');
CREATE TABLE shards(fingerprint VARCHAR NOT NULL, shard_index INTEGER NOT NULL, path VARCHAR NOT NULL, n_rows BIGINT NOT NULL, n_bytes BIGINT NOT NULL, sha256 VARCHAR NOT NULL);
INSERT INTO shards VALUES
    ('done', 0, 'path 0', 0, 0, 'sha256 0'),
    ('done', 1, 'path 1', 1, 1, 'sha256 1'),
    ('going', 2, 'path 2', 2, 2, 'sha256 2'),
    ('going', 3, 'path 3', 3, 3, 'sha256 3');
CREATE TABLE rollout_stats(fingerprint VARCHAR NOT NULL, prompt_id VARCHAR NOT NULL, step INTEGER NOT NULL, phase VARCHAR NOT NULL, policy_id VARCHAR NOT NULL, n INTEGER NOT NULL, n_correct INTEGER NOT NULL, n_ungraded INTEGER NOT NULL, reward_mean DOUBLE, reward_std DOUBLE, outcome VARCHAR NOT NULL, has_signal BOOLEAN NOT NULL, n_truncated INTEGER NOT NULL, mean_length DOUBLE NOT NULL, max_length INTEGER NOT NULL);
INSERT INTO rollout_stats VALUES
    ('done', 'a', 1, 'train', 'p0', 4, 2, 0, 0.0, 0.0, 'mixed', true, 0, 0.0, 0),
    ('done', 'a', 2, 'train', 'p0', 4, 0, 0, 0.25, 0.25, 'all_wrong', false, 1, 0.25, 1),
    ('going', 'b', 1, 'train', 'p0', 4, 4, 0, 0.5, 0.5, 'all_right', false, 2, 0.5, 2),
    ('going', 'a', 2, 'train', 'p0', 0, 0, 4, NULL, NULL, 'ungraded', false, 3, 0.75, 3);
CREATE TABLE kept_totals(fingerprint VARCHAR NOT NULL, prompt_id VARCHAR NOT NULL, phase VARCHAR NOT NULL, policy_id VARCHAR NOT NULL, n_observations BIGINT NOT NULL, n BIGINT NOT NULL, n_correct BIGINT NOT NULL, n_ungraded BIGINT NOT NULL, n_without_signal BIGINT NOT NULL, n_truncated BIGINT NOT NULL, n_tokens DOUBLE NOT NULL, max_length INTEGER NOT NULL, outcomes VARCHAR NOT NULL, steps INTEGER[] NOT NULL, pass_rates DOUBLE[] NOT NULL, last_pass_rate DOUBLE, last_graded_n INTEGER, last_step INTEGER NOT NULL, last_n INTEGER NOT NULL, last_n_correct INTEGER NOT NULL, last_outcome VARCHAR NOT NULL, last_has_signal BOOLEAN NOT NULL, last_n_truncated INTEGER NOT NULL, last_mean_length DOUBLE NOT NULL);
INSERT INTO kept_totals VALUES
    ('done', 'a', 'train', 'p0', 2, 8, 2, 0, 4, 1, 1.0, 1, 'MW', [1, 2], [0.5, 0.0], 0.0, 4, 2, 4, 0, 'all_wrong', false, 1, 0.25);
CREATE TABLE kept_decisions(fingerprint VARCHAR NOT NULL, prompt_id VARCHAR NOT NULL, keep BOOLEAN NOT NULL, reason VARCHAR NOT NULL, n_decisions BIGINT NOT NULL);
INSERT INTO kept_decisions VALUES
    ('done', 'a', true, 'it''s easy', 1),
    ('done', 'b', false, 'it''s easy', 1);
CREATE TABLE ungathered(fingerprint VARCHAR NOT NULL);
INSERT INTO ungathered VALUES ('going');
CREATE TABLE influence_scores(fingerprint VARCHAR NOT NULL, prompt_id VARCHAR NOT NULL, validation_set VARCHAR NOT NULL, dot DOUBLE NOT NULL, cosine DOUBLE NOT NULL, norm DOUBLE NOT NULL, rank INTEGER NOT NULL, estimator VARCHAR);
INSERT INTO influence_scores VALUES
    ('done', 'a', 'validation_set 0', 0.0, 0.0, 0.0, 0, 'estimator 0'),
    ('done', 'b', 'validation_set 1', 0.25, 0.25, 0.25, 1, 'estimator 1'),
    ('going', 'c', 'validation_set 2', 0.5, 0.5, 0.5, 2, 'estimator 2'),
    ('going', 'd', 'validation_set 3', 0.75, 0.75, 0.75, 3, NULL);
CREATE TABLE selections(fingerprint VARCHAR NOT NULL, prompt_id VARCHAR NOT NULL, strategy VARCHAR NOT NULL, score DOUBLE NOT NULL, rank INTEGER NOT NULL, selected BOOLEAN NOT NULL, reason VARCHAR NOT NULL, pass_rate DOUBLE);
INSERT INTO selections VALUES
    ('done', 'a', 'strategy 0', 0.0, 0, false, 'it''s easy', 0.0),
    ('done', 'b', 'strategy 1', 0.25, 1, true, 'it''s easy', 0.25),
    ('going', 'c', 'strategy 2', 0.5, 2, false, 'it''s easy', NULL),
    ('going', 'd', 'strategy 3', 0.75, 3, false, 'it''s easy', 0.75);
CREATE TABLE rollout_drift(fingerprint VARCHAR NOT NULL, prompt_id VARCHAR NOT NULL, split VARCHAR NOT NULL, n_tokens BIGINT NOT NULL, kl DOUBLE NOT NULL, ess DOUBLE NOT NULL, sequence_ess DOUBLE NOT NULL, stale BOOLEAN NOT NULL);
INSERT INTO rollout_drift VALUES
    ('done', 'a', 'split 0', 0, 0.0, 0.0, 0.0, false),
    ('done', 'b', 'split 1', 1, 0.25, 0.25, 0.25, true),
    ('going', 'c', 'split 2', 2, 0.5, 0.5, 0.5, false),
    ('going', 'd', 'split 3', 3, 0.75, 0.75, 0.75, false);
CREATE TABLE diagnoses(fingerprint VARCHAR NOT NULL, subject VARCHAR NOT NULL, metric VARCHAR NOT NULL, "value" DOUBLE, n BIGINT NOT NULL);
INSERT INTO diagnoses VALUES
    ('done', 'set 0', 'metric 0', 0.0, 4),
    ('done', 'set 1', 'metric 1', 0.25, 4),
    ('going', 'set 2', 'metric 2', 0.5, 4),
    ('going', 'set 3', 'metric 3', NULL, 0);
CREATE TABLE similarities(fingerprint VARCHAR NOT NULL, prompt_id VARCHAR NOT NULL, validation_set VARCHAR NOT NULL, cosine DOUBLE NOT NULL);
INSERT INTO similarities VALUES
    ('done', 'a', 'validation_set 0', 0.0),
    ('done', 'b', 'validation_set 1', 0.25),
    ('going', 'c', 'validation_set 2', 0.5),
    ('going', 'd', 'validation_set 3', 0.75);
CREATE TABLE prompt_states(fingerprint VARCHAR NOT NULL, prompt_id VARCHAR NOT NULL, n_tokens INTEGER NOT NULL, state FLOAT[] NOT NULL);
INSERT INTO prompt_states VALUES
    ('done', 'a', 0, [0.0, 0.5]),
    ('done', 'b', 1, [0.25, 0.5]);
CREATE TABLE relevances(fingerprint VARCHAR NOT NULL, prompt_id VARCHAR NOT NULL, validation_set VARCHAR NOT NULL, cosine DOUBLE NOT NULL, relevance DOUBLE NOT NULL);
INSERT INTO relevances VALUES
    ('done', 'a', 'validation_set 0', 0.0, 0.0),
    ('done', 'b', 'validation_set 1', 0.25, 0.25),
    ('going', 'c', 'validation_set 2', 0.5, 0.5),
    ('going', 'd', 'validation_set 3', 0.75, 0.75);
CREATE TABLE sampler_decisions(fingerprint VARCHAR NOT NULL, step INTEGER NOT NULL, "position" INTEGER NOT NULL, prompt_id VARCHAR NOT NULL, epoch INTEGER NOT NULL, round INTEGER, keep BOOLEAN NOT NULL, keep_probability DOUBLE NOT NULL, reason VARCHAR NOT NULL);
INSERT INTO sampler_decisions VALUES
    ('done', 1, 0, 'a', 0, 0, true, 0.0, 'it''s easy'),
    ('done', 2, 1, 'b', 1, 1, false, 0.25, 'it''s easy'),
    ('going', 3, 2, 'c', 2, 2, true, 0.5, 'it''s easy'),
    ('going', 4, 3, 'd', 3, NULL, false, 0.75, 'it''s easy');
CREATE TABLE train_steps(fingerprint VARCHAR NOT NULL, step INTEGER NOT NULL, loss DOUBLE, reward DOUBLE, reward_std DOUBLE, frac_reward_zero_std DOUBLE, solved_all INTEGER NOT NULL, solved_some INTEGER NOT NULL, solved_none INTEGER NOT NULL, n_ungraded INTEGER NOT NULL, grad_norm DOUBLE, learning_rate DOUBLE NOT NULL, kl DOUBLE, entropy DOUBLE, clip_ratio_low_mean DOUBLE, clip_ratio_high_mean DOUBLE, completions_mean_length DOUBLE, completions_max_length DOUBLE, completions_clipped_ratio DOUBLE, sampling_logp_difference_mean DOUBLE, sampling_logp_difference_max DOUBLE, num_tokens BIGINT NOT NULL, generated_tokens BIGINT NOT NULL, generation_rounds INTEGER NOT NULL, prompts_proposed INTEGER NOT NULL, prompts_skipped INTEGER NOT NULL, prompts_rolled_out INTEGER NOT NULL, rollouts INTEGER NOT NULL, groups_trained INTEGER NOT NULL, groups_carried INTEGER NOT NULL, sampler_metrics JSON NOT NULL, step_time DOUBLE NOT NULL, rollout_time DOUBLE NOT NULL, verify_time DOUBLE NOT NULL, update_time DOUBLE NOT NULL, clip_ratio_region_mean DOUBLE, importance_sampling_ratio_min DOUBLE, importance_sampling_ratio_mean DOUBLE, importance_sampling_ratio_max DOUBLE, completions_min_length DOUBLE, completions_mean_terminated_length DOUBLE, completions_min_terminated_length DOUBLE, completions_max_terminated_length DOUBLE, n_timeout INTEGER, n_error INTEGER, n_unparseable INTEGER, n_masked INTEGER, non_finite BOOLEAN, logprob_time DOUBLE, validation_accuracy DOUBLE);
INSERT INTO train_steps VALUES
    ('done', 1, 0.0, 0.0, 0.0, 0.0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{"i": 0}', 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0, 0, false, 0.0, 0.0),
    ('done', 2, 0.25, 0.25, 0.25, 0.25, 1, 1, 1, 0, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 1, 1, 1, 1, 1, 1, 1, 1, 1, '{"i": 1}', 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 1, 1, 1, 1, true, 0.25, 0.25),
    ('going', 3, 0.5, 0.5, 0.5, 0.5, 2, 2, 2, 0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 2, 2, 2, 2, 2, 2, 2, 2, 2, '{"i": 2}', 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 2, 2, 2, 2, false, 0.5, 0.5),
    ('going', 4, NULL, NULL, NULL, NULL, 3, 3, 3, 4, NULL, 0.75, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 3, 3, 3, 3, 3, 3, 3, 3, 3, '{"i": 3}', 0.75, 0.75, 0.75, 0.75, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE TABLE evaluations(fingerprint VARCHAR NOT NULL, evaluation_set VARCHAR NOT NULL, metric VARCHAR NOT NULL, k INTEGER NOT NULL, policy_id VARCHAR NOT NULL, "value" DOUBLE NOT NULL, standard_error DOUBLE, n_prompts INTEGER NOT NULL);
INSERT INTO evaluations VALUES
    ('done', 'evaluation_set 0', 'metric 0', 4, 'p0', 0.0, 0.0, 0),
    ('done', 'evaluation_set 1', 'metric 1', 4, 'p0', 0.25, 0.25, 1),
    ('going', 'evaluation_set 2', 'metric 2', 4, 'p0', 0.5, 0.5, 2),
    ('going', 'evaluation_set 3', 'metric 3', 4, 'p0', 0.75, NULL, 3);
