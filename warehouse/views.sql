-- Views over the tables: the questions that are asked of a prompt's history. A row belongs to a run through
-- run_steps, so a step that several runs share shows up under each of them. A column's comment stands at the end of
-- its line, and only there.

-- How was each step's policy sampled? What pass rates of two steps must share to be compared.
CREATE OR REPLACE VIEW rollout_settings AS
SELECT
    fingerprint,                                     -- of the step that rolled out
    name,                                            -- of the step
    settings->>'$.generation.engine' AS engine,      -- transformers, vllm, ...
    (settings->>'$.generation.temperature')::DOUBLE AS temperature, -- of the sampling
    (settings->>'$.generation.max_tokens')::BIGINT AS max_tokens, -- limit of a completion
    settings->>'$.dtype' AS dtype,                   -- of the policy's weights
    coalesce(settings->>'$.samples', settings->>'$.train.group_size')::BIGINT AS samples, -- completions a prompt
    settings->>'$.generation' AS generation          -- all that a rollout depends on, as JSON
FROM steps
WHERE settings->>'$.generation' IS NOT NULL;
COMMENT ON VIEW rollout_settings IS 'Engine and sampling of every step that rolled prompts out.';

-- In which order did the steps of a run see its prompts?
CREATE OR REPLACE VIEW steps_in_order AS
SELECT
    run_id,                                          -- name of the run
    stage,                                           -- 0 is before any training
    name,                                            -- of the step
    fingerprint,                                     -- of the step
    row_number() OVER (
        PARTITION BY run_id
        ORDER BY stage, CASE name WHEN 'train' THEN 1 WHEN 'evaluate' THEN 2 ELSE 0 END, name
    ) AS place                                       -- in the order, from 1
FROM run_steps;
COMMENT ON VIEW steps_in_order IS 'The steps of a run in the order in which they saw its prompts.';

-- What did each observation of a prompt say, in the order in which a run made them?
CREATE OR REPLACE VIEW prompt_difficulty_history AS
SELECT
    steps.run_id,                                -- name of the run
    stats.prompt_id,                                 -- the prompt
    prompts.data_source,                             -- of the prompt
    prompts.extra->>'kind' AS kind,                  -- of the prompt, where its data set says
    steps.stage,                                 -- 0 is before any training
    stats.step,                                      -- training step; 0 offline and in evaluations
    stats.phase,                                     -- offline, train, evaluation
    stats.policy_id,                                 -- of the policy the stage started from
    stats.n,                                         -- graded completions
    stats.n_correct,                                 -- of n
    stats.n_correct / nullif(stats.n, 0) AS pass_rate, -- n_correct of n; NULL where none was graded
    stats.outcome,                                   -- all_right, all_wrong, mixed, ungraded
    stats.has_signal,                                -- rewards differ
    stats.n_truncated,                               -- completions cut off at the limit of tokens
    stats.mean_length,                               -- tokens a completion
    settings.engine,                                 -- that sampled it: transformers, vllm, ...
    settings.temperature,                            -- of the sampling
    row_number() OVER (
        PARTITION BY steps.run_id, stats.prompt_id
        ORDER BY steps.place, stats.step
    ) AS observation                                 -- of the prompt in the run, from 1
FROM rollout_stats AS stats
JOIN steps_in_order AS steps USING (fingerprint)
LEFT JOIN prompts USING (prompt_id)
LEFT JOIN rollout_settings AS settings USING (fingerprint);
COMMENT ON VIEW prompt_difficulty_history IS 'Every observation of every prompt of a run, in order.';

-- What did one step make of one prompt, all its observations together?
CREATE OR REPLACE VIEW prompt_totals AS
WITH gathered AS (
    SELECT
        fingerprint,
        prompt_id,
        any_value(phase) AS phase,
        any_value(policy_id) AS policy_id,
        count(*) AS n_observations,
        sum(n)::BIGINT AS n,
        sum(n_correct)::BIGINT AS n_correct,
        sum(n_ungraded)::BIGINT AS n_ungraded,
        coalesce(sum(n + n_ungraded) FILTER (NOT has_signal), 0)::BIGINT AS n_without_signal,
        sum(n_truncated)::BIGINT AS n_truncated,
        sum(mean_length * (n + n_ungraded)) AS n_tokens,
        max(max_length) AS max_length,
        -- Packed, as an aggregate with ORDER BY takes ten times as long: step, 15 bits of n and n_correct, and what
        -- samplers go by: mixed where the rewards differ, be it by partial credit alone, else what most of it is.
        list_sort(list(
            (step::BIGINT << 32) + (n << 17) + (n_correct << 2)
            + CASE WHEN n = 0 THEN 0 WHEN has_signal THEN 2 WHEN 2 * n_correct >= n THEN 3 ELSE 1 END
        )) AS seen,
        arg_max(
            {
                'step': step,
                'n': n,
                'n_correct': n_correct,
                'outcome': outcome,
                'has_signal': has_signal,
                'n_truncated': n_truncated,
                'mean_length': mean_length
            },
            step
        ) AS last
    FROM rollout_stats
    SEMI JOIN ungathered USING (fingerprint)
    GROUP BY fingerprint, prompt_id
),
graded AS (
    SELECT *, [x FOR x IN seen IF (x & 3) > 0] AS seen_graded FROM gathered
),
unpacked AS (
    SELECT
        * EXCLUDE (seen, seen_graded, last),
        array_to_string([['W', 'M', 'R'][x & 3] FOR x IN seen_graded], '') AS outcomes,
        [(x >> 32)::INTEGER FOR x IN seen_graded] AS steps,
        [((x >> 2) & 32767) / ((x >> 17) & 32767) FOR x IN seen_graded] AS pass_rates,
        pass_rates[-1] AS last_pass_rate,
        ((seen_graded[-1] >> 17) & 32767)::INTEGER AS last_graded_n,
        last.step AS last_step,
        last.n AS last_n,
        last.n_correct AS last_n_correct,
        last.outcome AS last_outcome,
        last.has_signal AS last_has_signal,
        last.n_truncated AS last_n_truncated,
        last.mean_length AS last_mean_length
    FROM graded
)
SELECT
    fingerprint,                                     -- of the step that rolled the prompt out
    prompt_id,                                       -- the prompt
    phase,                                           -- offline, train, evaluation
    policy_id,                                       -- of the policy the stage started from
    n_observations,                                  -- rows of rollout_stats
    n,                                               -- graded completions
    n_correct,                                       -- of n, graded correct
    n_ungraded,                                      -- verifier timed out or failed
    n_without_signal,                                -- completions whose observation's rewards do not differ
    n_truncated,                                     -- completions cut off at the limit of tokens
    n_tokens,                                        -- of all completions
    max_length,                                      -- tokens of the longest completion
    outcomes,                                        -- graded observations in order: M rewards differ, else right R, wrong W
    steps,                                           -- training step of each of them
    pass_rates,                                      -- of each of them
    last_pass_rate,                                  -- of the last graded observation; NULL where none was graded
    last_graded_n,                                   -- graded completions of that observation
    last_step,                                       -- training step of the last observation, graded or not
    last_n,                                          -- graded completions of the last observation
    last_n_correct,                                  -- of last_n
    last_outcome,                                    -- all_right, all_wrong, mixed, ungraded
    last_has_signal,                                 -- rewards of the last observation differ
    last_n_truncated,                                -- completions of the last observation that were cut off
    last_mean_length                                 -- tokens a completion of the last observation
FROM (FROM kept_totals UNION ALL BY NAME FROM unpacked);
COMMENT ON VIEW prompt_totals IS 'What one step made of one prompt, all its observations together.';

-- What did the sampler of one step decide on one prompt, all its decisions together?
CREATE OR REPLACE VIEW decision_totals AS
WITH gathered AS (
    SELECT fingerprint, prompt_id, keep, reason, count(*) AS n_decisions
    FROM sampler_decisions
    SEMI JOIN ungathered USING (fingerprint)
    GROUP BY ALL
)
SELECT
    fingerprint,                                     -- of the train step
    prompt_id,                                       -- the prompt decided on
    keep,                                            -- whether it was rolled out
    reason,                                          -- the sampler's ground for it
    n_decisions                                      -- rows of sampler_decisions
FROM (FROM kept_decisions UNION ALL BY NAME FROM gathered);
COMMENT ON VIEW decision_totals IS 'What one sampler decided on one prompt, and how often.';

-- How hard is each prompt now, as last seen by the run?
CREATE OR REPLACE VIEW prompt_difficulty AS
WITH latest AS (
    SELECT
        steps.run_id,
        totals.prompt_id,
        sum(totals.n_observations)::BIGINT AS observation,
        arg_max(
            {
                'fingerprint': totals.fingerprint,
                'stage': steps.stage,
                'phase': totals.phase,
                'policy_id': totals.policy_id,
                'step': totals.last_step,
                'n': totals.last_n,
                'n_correct': totals.last_n_correct,
                'outcome': totals.last_outcome,
                'has_signal': totals.last_has_signal,
                'n_truncated': totals.last_n_truncated,
                'mean_length': totals.last_mean_length
            },
            steps.place
        ) AS seen
    FROM prompt_totals AS totals
    JOIN steps_in_order AS steps USING (fingerprint)
    GROUP BY ALL
)
SELECT
    latest.run_id,                                   -- name of the run
    latest.prompt_id,                                -- the prompt
    prompts.data_source,                             -- of the prompt
    prompts.extra->>'kind' AS kind,                  -- of the prompt, where its data set says
    seen.stage AS stage,                             -- 0 is before any training
    seen.step AS step,                               -- training step; 0 offline and in evaluations
    seen.phase AS phase,                             -- offline, train, evaluation
    seen.policy_id AS policy_id,                     -- of the policy the stage started from
    seen.n AS n,                                     -- graded completions
    seen.n_correct AS n_correct,                     -- of n
    seen.n_correct / nullif(seen.n, 0) AS pass_rate, -- n_correct of n; NULL where none was graded
    seen.outcome AS outcome,                         -- all_right, all_wrong, mixed, ungraded
    seen.has_signal AS has_signal,                   -- rewards differ
    seen.n_truncated AS n_truncated,                 -- completions cut off at the limit of tokens
    seen.mean_length AS mean_length,                 -- tokens a completion
    settings.engine,                                 -- that sampled it: transformers, vllm, ...
    settings.temperature,                            -- of the sampling
    latest.observation                               -- so many observations of it are there
FROM latest
LEFT JOIN prompts USING (prompt_id)
LEFT JOIN rollout_settings AS settings ON settings.fingerprint = seen.fingerprint;
COMMENT ON VIEW prompt_difficulty IS 'The latest observation of every prompt of a run.';

-- Which way did each prompt go? Evaluations and ungraded observations are left out.
CREATE OR REPLACE VIEW prompt_paths AS
WITH parts AS (
    SELECT
        steps.run_id,
        totals.prompt_id,
        -- Sorted afterwards: an aggregate with ORDER BY takes three times as long.
        list_sort(list({'place': steps.place, 'outcomes': totals.outcomes})) AS letters,
        list_sort(list({
            'place': steps.place,
            'stage': steps.stage,
            'steps': totals.steps,
            'pass_rates': totals.pass_rates
        })) AS numbers
    FROM prompt_totals AS totals
    JOIN steps_in_order AS steps USING (fingerprint)
    WHERE totals.phase <> 'evaluation'
    GROUP BY ALL
)
SELECT
    run_id,                                          -- name of the run
    prompt_id,                                       -- the prompt
    array_to_string([part.outcomes FOR part IN letters], '')
        AS outcomes,                                 -- a letter each: M rewards differ, else R right or W wrong
    flatten([part.pass_rates FOR part IN numbers])
        AS pass_rates,                               -- of each
    flatten([part.steps FOR part IN numbers])
        AS steps,                                    -- training step of each; 0 offline
    flatten([[part.stage FOR _ IN part.steps] FOR part IN numbers])
        AS stages                                    -- stage of each
FROM parts;
COMMENT ON VIEW prompt_paths IS 'Graded observations of each prompt in order: all right R, all wrong W, mixed M.';

-- Of the prompts that were all right (all wrong), how many were still without variance `lag` observations later?
-- Both classes count as "still", evaluations and ungraded observations are left out. Half-life: after how many
-- observations half of them would have revived, were each step as the first. A sampler that skips prompts sees
-- fewer of the pairs.
CREATE OR REPLACE VIEW zero_variance_persistence AS
-- 54 observations and the 10 behind them make one integer a class, the first in its lowest bit: a shift by the lag lays
-- the later over the earlier.
WITH windows AS (
    SELECT run_id, outcomes, unnest(range(0, length(outcomes), 54)) AS first FROM prompt_paths
),
alike AS (
    SELECT run_id, outcomes[first + 1:first + 64] AS letters, count(*) AS n_prompts
    FROM windows
    GROUP BY ALL
),
bits AS (
    SELECT
        run_id,
        n_prompts,
        ('0b' || repeat('1', length(letters)))::UBIGINT AS seen,
        ('0b' || translate(reverse(letters), 'RWM', '100'))::UBIGINT AS all_right,
        ('0b' || translate(reverse(letters), 'RWM', '010'))::UBIGINT AS all_wrong,
        all_right | all_wrong AS still,
        ((1::BIGINT << 54) - 1)::UBIGINT AS first_54
    FROM alike
    WHERE length(letters) > 1
),
counts AS (
    SELECT
        run_id,
        lag,
        sum(n_prompts * bit_count(all_right & first_54 & (seen >> lag)))::BIGINT AS n_right,
        sum(n_prompts * bit_count(all_right & first_54 & (still >> lag)))::BIGINT AS n_right_still,
        sum(n_prompts * bit_count(all_wrong & first_54 & (seen >> lag)))::BIGINT AS n_wrong,
        sum(n_prompts * bit_count(all_wrong & first_54 & (still >> lag)))::BIGINT AS n_wrong_still
    FROM bits
    CROSS JOIN (SELECT unnest(range(1, 11))::UBIGINT AS lag)
    GROUP BY ALL
),
classes AS (
    SELECT run_id, lag, 'all_right' AS class, n_right AS n_pairs, n_right_still AS n_still FROM counts
    UNION ALL
    SELECT run_id, lag, 'all_wrong', n_wrong, n_wrong_still FROM counts
)
SELECT
    run_id,                                          -- name of the run
    class,                                           -- all_right or all_wrong, of the earlier
    lag,                                             -- observations between the two, 1 to 10
    n_pairs,                                         -- pairs of observations that are compared
    n_still / n_pairs AS share_still_zero_variance,  -- of the pairs: the later is not mixed
    1 - n_still / n_pairs AS share_revived,          -- of the pairs: the later is mixed
    CASE
        WHEN lag = 1 AND n_still > 0 AND n_still < n_pairs THEN ln(0.5) / ln(n_still / n_pairs)
    END AS half_life_observations                    -- at lag 1: until half would have revived
FROM classes
WHERE n_pairs > 0;
COMMENT ON VIEW zero_variance_persistence IS 'How often a zero-variance prompt stays so or revives, by lag.';

-- Which prompts were all right (all wrong) and came back to mixed, and after how many observations in that class?
CREATE OR REPLACE VIEW zero_variance_revivals AS
WITH revived AS (
    SELECT
        *,
        unnest(list_filter(
            range(2, length(outcomes) + 1),
            lambda i: outcomes[i] = 'M' AND outcomes[i - 1] <> 'M'
        )) AS later
    FROM prompt_paths
    WHERE regexp_matches(outcomes, '[RW]M')
),
counted AS (
    SELECT
        *,
        outcomes[later - 1] AS class,
        later - 1 - length(rtrim(left(outcomes, later - 1), outcomes[later - 1])) AS n_observations
    FROM revived
)
SELECT
    run_id,                                          -- name of the run
    prompt_id,                                       -- the prompt
    stages[later - n_observations] AS from_stage,    -- of the first zero-variance observation
    steps[later - n_observations] AS from_step,      -- training step of it; 0 offline
    CASE class WHEN 'R' THEN 'all_right' ELSE 'all_wrong' END AS from_outcome, -- all_right or all_wrong
    stages[later] AS to_stage,                       -- of the mixed observation
    steps[later] AS to_step,                         -- training step of it; 0 offline
    pass_rates[later] AS to_pass_rate,               -- of the mixed observation
    n_observations                                   -- zero-variance observations in between
FROM counted;
COMMENT ON VIEW zero_variance_revivals IS 'Prompts that were zero-variance and came back to mixed.';

-- What did the sampler spend and spare in each stage? Shares are of the graded groups that were rolled out.
CREATE OR REPLACE VIEW sampler_efficiency AS
WITH sums AS (
    SELECT
        run_steps.run_id,
        run_steps.stage,
        sum(train.prompts_proposed)::BIGINT AS prompts_proposed,
        sum(train.prompts_skipped)::BIGINT AS prompts_skipped,
        sum(train.prompts_rolled_out)::BIGINT AS prompts_rolled_out,
        sum(train.rollouts)::BIGINT AS rollouts,
        sum(train.solved_some)::BIGINT AS mixed,
        sum(train.solved_all)::BIGINT AS all_right,
        sum(train.solved_none)::BIGINT AS all_wrong,
        sum(train.groups_trained)::BIGINT AS groups_trained,
        sum(train.generated_tokens)::BIGINT AS generated_tokens
    FROM train_steps AS train
    JOIN run_steps USING (fingerprint)
    GROUP BY ALL
)
SELECT
    run_id,                                          -- name of the run
    stage,                                           -- 0 is before any training
    prompts_proposed,                                -- prompts that the sampler decided on
    prompts_skipped,                                 -- of them, not rolled out
    prompts_skipped / nullif(prompts_proposed, 0) AS skip_rate, -- prompts_skipped of prompts_proposed
    prompts_rolled_out,                              -- of them, rolled out
    rollouts,                                        -- completions generated
    mixed / nullif(mixed + all_right + all_wrong, 0) AS share_mixed, -- of the graded groups
    all_right / nullif(mixed + all_right + all_wrong, 0) AS share_all_right, -- of the graded groups
    all_wrong / nullif(mixed + all_right + all_wrong, 0) AS share_all_wrong, -- of the graded groups
    groups_trained,                                  -- groups in the updates
    prompts_skipped * rollouts / nullif(prompts_rolled_out, 0) AS rollouts_saved, -- completions that skipping spared
    generated_tokens                                 -- tokens of all completions
FROM sums;
COMMENT ON VIEW sampler_efficiency IS 'What the sampler spent and spared, by stage.';

-- How does each evaluation move from stage to stage?
CREATE OR REPLACE VIEW evaluation_history AS
SELECT
    run_steps.run_id,                                -- name of the run
    run_steps.stage,                                 -- 0 is before any training
    evaluation_set,                                  -- name of the set
    metric,                                          -- avg (avg@k) or pass (pass@k)
    k,                                               -- completions a prompt that the metric takes
    value,                                           -- from 0 to 1
    standard_error,                                  -- of value
    n_prompts,                                       -- prompts of the set
    value - lag(value) OVER w AS change_from_previous_stage, -- in value
    value - max(value) FILTER (WHERE run_steps.stage = 0) OVER (
        PARTITION BY run_steps.run_id, evaluation_set, metric, k
    ) AS change_from_stage_0                         -- in value
FROM evaluations
JOIN run_steps USING (fingerprint)
WINDOW w AS (PARTITION BY run_steps.run_id, evaluation_set, metric, k ORDER BY run_steps.stage);
COMMENT ON VIEW evaluation_history IS 'Every evaluation by stage, with its change.';

-- Why was each prompt of the pool taken or left at each stage, and what was known of it by then? What was collected
-- again in a stage was known to its selection; what it trained on was not.
CREATE OR REPLACE VIEW selection_history AS
SELECT
    run_steps.run_id,                                -- name of the run
    run_steps.stage,                                 -- 0 is before any training
    selections.prompt_id,                            -- a prompt of the pool
    prompts.data_source,                             -- of the prompt
    prompts.extra->>'kind' AS kind,                  -- of the prompt, where its data set says
    selections.strategy,                             -- influence, relevance, learnability, pass_rate, random, all
    selections.score,                                -- what the strategy ranks by
    selections.rank,                                 -- 1 is taken first
    selections.selected,                             -- whether the stage practises on it
    selections.reason,                               -- why it was taken or left
    selections.pass_rate                             -- the last that was known when the stage selected
FROM selections
JOIN run_steps USING (fingerprint)
LEFT JOIN prompts USING (prompt_id);
COMMENT ON VIEW selection_history IS 'Every prompt taken or left at every stage, with the reason.';

-- How far do two stages of a run train on the same prompts?
CREATE OR REPLACE VIEW selection_overlap AS
WITH chosen AS (
    SELECT run_id, stage, prompt_id, selected FROM selections JOIN run_steps USING (fingerprint)
),
sizes AS (
    SELECT run_id, stage, count_if(selected)::BIGINT AS n FROM chosen GROUP BY ALL
),
shared AS (
    SELECT a.run_id, a.stage AS stage_a, b.stage AS stage_b, count(*) AS n
    FROM chosen AS a
    JOIN chosen AS b ON b.run_id = a.run_id AND b.prompt_id = a.prompt_id AND b.stage > a.stage
    WHERE a.selected AND b.selected
    GROUP BY ALL
)
SELECT
    a.run_id,                                        -- name of the run
    a.stage AS stage_a,                              -- the earlier stage
    b.stage AS stage_b,                              -- the later stage
    a.n AS n_a,                                      -- prompts that stage_a selected
    b.n AS n_b,                                      -- prompts that stage_b selected
    coalesce(shared.n, 0) AS n_both,                 -- prompts that both selected
    coalesce(shared.n, 0) / nullif(a.n + b.n - coalesce(shared.n, 0), 0)
        AS jaccard                                   -- n_both of all that either selected
FROM sizes AS a
JOIN sizes AS b ON b.run_id = a.run_id AND b.stage > a.stage
LEFT JOIN shared ON shared.run_id = a.run_id AND shared.stage_a = a.stage AND shared.stage_b = b.stage;
COMMENT ON VIEW selection_overlap IS 'How many selected prompts two stages share.';

-- How far can scores and selection of each stage be trusted? Beside what was recorded: overlap with the stage before,
-- pass rates, likeness in text, and how far the policy has moved from the rollouts that it was scored with. Means
-- count each prompt once.
CREATE OR REPLACE VIEW stage_diagnosis AS
WITH chosen AS (
    SELECT run_id, stage, prompt_id, selected FROM selections JOIN run_steps USING (fingerprint)
),
offline AS (
    SELECT run_id, prompt_id, n_correct / n AS pass_rate
    FROM prompt_totals
    JOIN run_steps USING (fingerprint)
    WHERE name = 'rollouts_train' AND n > 0
),
online AS (
    SELECT run_id, stage, prompt_id, sum(n_correct) / sum(n) AS pass_rate
    FROM prompt_totals
    JOIN run_steps USING (fingerprint)
    WHERE phase = 'train' AND n > 0
    GROUP BY ALL
),
alike AS (
    SELECT run_id, prompt_id, validation_set, cosine FROM similarities JOIN run_steps USING (fingerprint)
),
drift_of_run AS (
    -- Stale by the thresholds of the run's config as it is now.
    SELECT
        run_steps.run_id,
        run_steps.stage,
        rollout_drift.prompt_id,
        rollout_drift.split,
        rollout_drift.kl,
        rollout_drift.ess,
        rollout_drift.sequence_ess,
        kl > (runs.config->>'$.influence.max_kl')::DOUBLE
            OR ess < (runs.config->>'$.influence.min_ess')::DOUBLE AS stale
    FROM rollout_drift
    JOIN run_steps USING (fingerprint)
    JOIN runs USING (run_id)
    WHERE run_steps.name = 'score'
),
drifted AS (
    FROM drift_of_run WHERE split = 'train'
),
drifted_validation AS (
    SELECT DISTINCT sources.set_name, drift_of_run.*
    FROM drift_of_run
    JOIN run_steps AS ingests ON ingests.run_id = drift_of_run.run_id
    JOIN prompt_sources AS sources
        ON sources.fingerprint = ingests.fingerprint AND sources.prompt_id = drift_of_run.prompt_id
    WHERE drift_of_run.split = 'validation' AND ingests.name = 'ingest' AND sources.split = 'validation'
),
compared AS (
    SELECT run_id, stage, selected, '' AS subject, 'pass_rate_offline' AS metric, pass_rate AS value
    FROM chosen
    JOIN offline USING (run_id, prompt_id)
    UNION ALL
    SELECT run_id, stage, selected, validation_set, 'similarity', cosine
    FROM chosen
    JOIN alike USING (run_id, prompt_id)
)
SELECT
    run_id,                                          -- name of the run
    stage,                                           -- 0 is before any training
    subject,                                         -- a validation set; empty for the whole selection
    metric,                                          -- name of the number
    value,                                           -- NULL where it is not defined
    n                                                -- prompts that it was computed from
FROM diagnoses
JOIN run_steps USING (fingerprint)
UNION ALL
SELECT run_id, stage_b, '', 'jaccard_previous', jaccard, n_a + n_b - n_both
FROM selection_overlap
WHERE stage_b = stage_a + 1
UNION ALL
SELECT run_id, stage, subject, metric || '_pool', avg(value), count(*) FROM compared GROUP BY ALL
UNION ALL
SELECT run_id, stage, subject, metric || '_selected', avg(value), count(*) FROM compared WHERE selected GROUP BY ALL
UNION ALL
SELECT run_id, stage, '', 'pass_rate_online_selected', avg(pass_rate), count(*) FROM online GROUP BY ALL
UNION ALL
SELECT run_id, stage, '', 'share_stale', avg(stale::INTEGER), count(*) FROM drifted GROUP BY ALL
UNION ALL
SELECT run_id, stage, '', 'kl_median', median(kl), count(*) FROM drifted GROUP BY ALL
UNION ALL
SELECT run_id, stage, '', 'kl_p95', quantile_cont(kl, 0.95), count(*) FROM drifted GROUP BY ALL
UNION ALL
SELECT run_id, stage, '', 'ess_median', median(ess), count(*) FROM drifted GROUP BY ALL
UNION ALL
SELECT run_id, stage, '', 'ess_p05', quantile_cont(ess, 0.05), count(*) FROM drifted GROUP BY ALL
UNION ALL
SELECT run_id, stage, '', 'sequence_ess_median', median(sequence_ess), count(*) FROM drifted GROUP BY ALL
UNION ALL
SELECT run_id, stage, set_name, 'share_stale', avg(stale::INTEGER), count(*) FROM drifted_validation GROUP BY ALL
UNION ALL
SELECT run_id, stage, set_name, 'kl_median', median(kl), count(*) FROM drifted_validation GROUP BY ALL;
COMMENT ON VIEW stage_diagnosis IS 'How far scores and selection of each stage can be trusted.';

-- Where is each run, and what went wrong?
CREATE OR REPLACE VIEW run_progress AS
SELECT
    run_id,                                          -- name of the run
    stage,                                           -- 0 is before any training
    run_steps.name,                                  -- of the step
    fingerprint,                                     -- of the step
    status,                                          -- running, completed, failed; NULL: not begun
    started_at,                                      -- of the last attempt
    finished_at,                                     -- of the last attempt; NULL while it runs
    error,                                           -- why the last attempt failed
    attempts                                         -- how often it was begun
FROM run_steps
LEFT JOIN steps USING (fingerprint);
COMMENT ON VIEW run_progress IS 'Every step of every run with its state.';

-- What did each stage take in, do and bring? Stage 0 counts the offline rollouts, a later one what it trained on
-- and what it collected again. `evaluations` holds avg@k of each
-- set at the end of the stage before and of this one; `seconds` is the time of the steps' last attempts, whichever
-- run made them.
CREATE OR REPLACE VIEW stage_summary AS
WITH pool AS (
    SELECT run_id, stage, count(*) AS n_pool, count_if(selected)::BIGINT AS n_selected
    FROM selections
    JOIN run_steps USING (fingerprint)
    GROUP BY ALL
),
offline AS (
    SELECT
        run_id,
        stage,
        sum(n_observations)::BIGINT AS prompts_rolled_out,
        sum(n + n_ungraded)::BIGINT AS rollouts
    FROM prompt_totals
    JOIN run_steps USING (fingerprint)
    WHERE phase = 'offline'
    GROUP BY ALL
),
trained AS (
    SELECT run_id, stage, count(*) AS train_steps, avg(frac_reward_zero_std) AS frac_reward_zero_std
    FROM train_steps
    JOIN run_steps USING (fingerprint)
    GROUP BY ALL
),
averages AS (
    SELECT
        run_id,
        stage,
        evaluation_set,
        k,
        value AS after,
        lag(value) OVER (PARTITION BY run_id, evaluation_set, k ORDER BY stage) AS before
    FROM evaluation_history
    WHERE metric = 'avg'
),
evaluated AS (
    SELECT
        run_id,
        stage,
        list(
            {'evaluation_set': evaluation_set, 'k': k, 'before': before, 'after': after}
            ORDER BY evaluation_set, k
        ) AS evaluations
    FROM averages
    GROUP BY ALL
),
timed AS (
    SELECT run_id, stage, sum(epoch(finished_at) - epoch(started_at)) AS seconds
    FROM run_progress
    GROUP BY ALL
)
SELECT
    run_id,                                          -- name of the run
    stage,                                           -- 0 is before any training
    pool.n_pool,                                     -- prompts to choose from
    pool.n_selected,                                 -- of them, selected
    trained.train_steps,                             -- training steps done
    coalesce(
        sampled.prompts_rolled_out + coalesce(offline.prompts_rolled_out, 0),
        offline.prompts_rolled_out
    ) AS prompts_rolled_out,                         -- groups rolled out
    sampled.prompts_skipped,                         -- prompts that the sampler left out
    coalesce(sampled.rollouts + coalesce(offline.rollouts, 0), offline.rollouts) AS rollouts, -- completions generated
    trained.frac_reward_zero_std,                    -- mean share of groups whose rewards are all one
    evaluated.evaluations,                           -- avg@k by set, before and after the stage
    timed.seconds                                    -- of the steps' last attempts
FROM timed
LEFT JOIN pool USING (run_id, stage)
LEFT JOIN offline USING (run_id, stage)
LEFT JOIN trained USING (run_id, stage)
LEFT JOIN sampler_efficiency AS sampled USING (run_id, stage)
LEFT JOIN evaluated USING (run_id, stage);
COMMENT ON VIEW stage_summary IS 'What each stage took in, did and brought.';
