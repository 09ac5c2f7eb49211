-- Views over the tables: the questions that are asked of a prompt's history. A row belongs to a run through
-- run_steps, so a step that several runs share shows up under each of them.

-- What did each observation of a prompt say, in the order in which a run made them?
CREATE OR REPLACE VIEW prompt_difficulty_history AS
SELECT
    run_steps.run_id,
    stats.prompt_id,
    prompts.data_source,
    prompts.extra->>'kind' AS kind,
    run_steps.stage,
    stats.step,
    stats.phase,
    stats.policy_id,
    stats.n,
    stats.n_correct,
    stats.n_correct / nullif(stats.n, 0) AS pass_rate,
    stats.outcome,
    stats.has_signal,
    stats.n_truncated,
    stats.mean_length,
    row_number() OVER (
        PARTITION BY run_steps.run_id, stats.prompt_id
        ORDER BY
            run_steps.stage,
            CASE stats.phase WHEN 'offline' THEN 0 WHEN 'train' THEN 1 ELSE 2 END,
            stats.step,
            run_steps.name
    ) AS observation
FROM rollout_stats AS stats
JOIN run_steps USING (fingerprint)
LEFT JOIN prompts USING (prompt_id);
COMMENT ON VIEW prompt_difficulty_history IS 'Every observation of every prompt of a run, in order.';

-- How hard is each prompt now, as last seen by the run?
CREATE OR REPLACE VIEW prompt_difficulty AS
SELECT *
FROM prompt_difficulty_history
QUALIFY row_number() OVER (PARTITION BY run_id, prompt_id ORDER BY observation DESC) = 1;
COMMENT ON VIEW prompt_difficulty IS 'The latest observation of every prompt of a run.';

-- Of the prompts that were all right (all wrong), how many were still without variance `lag` observations later?
-- Both classes count as "still", evaluations and ungraded observations are left out. Half-life: after how many
-- observations half of them would have revived, were each step as the first. A sampler that skips prompts sees
-- fewer of the pairs.
CREATE OR REPLACE VIEW zero_variance_persistence AS
WITH seen AS (
    SELECT
        run_id,
        prompt_id,
        outcome,
        row_number() OVER (PARTITION BY run_id, prompt_id ORDER BY observation) AS nth
    FROM prompt_difficulty_history
    WHERE phase IN ('offline', 'train') AND outcome <> 'ungraded'
),
shares AS (
    SELECT
        earlier.run_id,
        earlier.outcome AS class,
        lags.lag,
        count(*) AS n_pairs,
        avg((later.outcome <> 'mixed')::INTEGER) AS share_still_zero_variance,
        avg((later.outcome = 'mixed')::INTEGER) AS share_revived
    FROM seen AS earlier
    CROSS JOIN (SELECT unnest(range(1, 11)) AS lag) AS lags
    JOIN seen AS later
        ON later.run_id = earlier.run_id
        AND later.prompt_id = earlier.prompt_id
        AND later.nth = earlier.nth + lags.lag
    WHERE earlier.outcome <> 'mixed'
    GROUP BY ALL
)
SELECT
    *,
    CASE
        WHEN lag = 1 AND share_still_zero_variance > 0 AND share_still_zero_variance < 1
        THEN ln(0.5) / ln(share_still_zero_variance)
    END AS half_life_observations
FROM shares;
COMMENT ON VIEW zero_variance_persistence IS 'How often a zero-variance prompt stays so or revives, by lag.';

-- Which prompts were all right (all wrong) and came back to mixed, and after how many observations in that class?
CREATE OR REPLACE VIEW zero_variance_revivals AS
WITH seen AS (
    SELECT
        *,
        row_number() OVER w AS nth,
        row_number() OVER (PARTITION BY run_id, prompt_id, outcome ORDER BY observation) AS nth_of_outcome,
        lead(outcome) OVER w AS next_outcome,
        lead(stage) OVER w AS next_stage,
        lead(step) OVER w AS next_step,
        lead(pass_rate) OVER w AS next_pass_rate
    FROM prompt_difficulty_history
    WHERE phase IN ('offline', 'train') AND outcome <> 'ungraded'
    WINDOW w AS (PARTITION BY run_id, prompt_id ORDER BY observation)
)
-- nth - nth_of_outcome stays the same within an unbroken series of one outcome.
SELECT
    run_id,
    prompt_id,
    arg_min(stage, nth) AS from_stage,
    arg_min(step, nth) AS from_step,
    outcome AS from_outcome,
    arg_max(next_stage, nth) AS to_stage,
    arg_max(next_step, nth) AS to_step,
    arg_max(next_pass_rate, nth) AS to_pass_rate,
    count(*) AS n_observations
FROM seen
WHERE outcome <> 'mixed'
GROUP BY run_id, prompt_id, outcome, nth - nth_of_outcome
HAVING count_if(next_outcome = 'mixed') = 1;
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
    run_id,
    stage,
    prompts_proposed,
    prompts_skipped,
    prompts_skipped / nullif(prompts_proposed, 0) AS skip_rate,
    prompts_rolled_out,
    rollouts,
    mixed / nullif(mixed + all_right + all_wrong, 0) AS share_mixed,
    all_right / nullif(mixed + all_right + all_wrong, 0) AS share_all_right,
    all_wrong / nullif(mixed + all_right + all_wrong, 0) AS share_all_wrong,
    groups_trained,
    prompts_skipped * rollouts / nullif(prompts_rolled_out, 0) AS rollouts_saved,
    generated_tokens
FROM sums;
COMMENT ON VIEW sampler_efficiency IS 'What the sampler spent and spared, by stage.';

-- How does each evaluation move from stage to stage?
CREATE OR REPLACE VIEW evaluation_history AS
SELECT
    run_steps.run_id,
    run_steps.stage,
    evaluation_set,
    metric,
    k,
    value,
    standard_error,
    n_prompts,
    value - lag(value) OVER w AS change_from_previous_stage,
    value - max(value) FILTER (WHERE run_steps.stage = 0) OVER (
        PARTITION BY run_steps.run_id, evaluation_set, metric, k
    ) AS change_from_stage_0
FROM evaluations
JOIN run_steps USING (fingerprint)
WINDOW w AS (PARTITION BY run_steps.run_id, evaluation_set, metric, k ORDER BY run_steps.stage);
COMMENT ON VIEW evaluation_history IS 'Every evaluation by stage, with its change.';

-- Why was each prompt of the pool taken or left at each stage, and what was known of it by then?
CREATE OR REPLACE VIEW selection_history AS
WITH known AS (
    SELECT run_id, prompt_id, stage, arg_max(pass_rate, observation) AS pass_rate
    FROM prompt_difficulty_history
    WHERE pass_rate IS NOT NULL
    GROUP BY ALL
),
chosen AS (
    SELECT run_steps.run_id, run_steps.stage, selections.*
    FROM selections
    JOIN run_steps USING (fingerprint)
)
SELECT
    chosen.run_id,
    chosen.stage,
    chosen.prompt_id,
    prompts.data_source,
    prompts.extra->>'kind' AS kind,
    chosen.strategy,
    chosen.score,
    chosen.rank,
    chosen.selected,
    chosen.reason,
    known.pass_rate
FROM chosen
ASOF LEFT JOIN known
    ON known.run_id = chosen.run_id AND known.prompt_id = chosen.prompt_id AND known.stage < chosen.stage
LEFT JOIN prompts ON prompts.prompt_id = chosen.prompt_id;
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
    a.run_id,
    a.stage AS stage_a,
    b.stage AS stage_b,
    a.n AS n_a,
    b.n AS n_b,
    coalesce(shared.n, 0) AS n_both,
    coalesce(shared.n, 0) / nullif(a.n + b.n - coalesce(shared.n, 0), 0) AS jaccard
FROM sizes AS a
JOIN sizes AS b ON b.run_id = a.run_id AND b.stage > a.stage
LEFT JOIN shared ON shared.run_id = a.run_id AND shared.stage_a = a.stage AND shared.stage_b = b.stage;
COMMENT ON VIEW selection_overlap IS 'How many selected prompts two stages share.';

-- How far can scores and selection of each stage be trusted? Beside what was recorded: overlap with the stage before,
-- pass rates, likeness in text, and how far the policy has moved from the rollouts that it was scored with. Means count each prompt once; `n` is the number of prompts.
CREATE OR REPLACE VIEW stage_diagnosis AS
WITH chosen AS (
    SELECT run_id, stage, prompt_id, selected FROM selections JOIN run_steps USING (fingerprint)
),
offline AS (
    SELECT run_id, prompt_id, n_correct / n AS pass_rate
    FROM rollout_stats
    JOIN run_steps USING (fingerprint)
    WHERE name = 'rollouts_train' AND n > 0
),
online AS (
    SELECT run_id, stage, prompt_id, sum(n_correct) / sum(n) AS pass_rate
    FROM rollout_stats
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
        kl > (runs.config->>'$.influence.max_kl')::DOUBLE OR ess < (runs.config->>'$.influence.min_ess')::DOUBLE AS stale
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
SELECT run_id, stage, subject, metric, value, n FROM diagnoses JOIN run_steps USING (fingerprint)
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
    run_id,
    stage,
    run_steps.name,
    fingerprint,
    status,
    started_at,
    finished_at,
    error,
    attempts
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
    SELECT run_id, stage, count(*) AS prompts_rolled_out, sum(n + n_ungraded)::BIGINT AS rollouts
    FROM rollout_stats
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
    run_id,
    stage,
    pool.n_pool,
    pool.n_selected,
    trained.train_steps,
    coalesce(
        sampled.prompts_rolled_out + coalesce(offline.prompts_rolled_out, 0),
        offline.prompts_rolled_out
    ) AS prompts_rolled_out,
    sampled.prompts_skipped,
    coalesce(sampled.rollouts + coalesce(offline.rollouts, 0), offline.rollouts) AS rollouts,
    trained.frac_reward_zero_std,
    evaluated.evaluations,
    timed.seconds
FROM timed
LEFT JOIN pool USING (run_id, stage)
LEFT JOIN offline USING (run_id, stage)
LEFT JOIN trained USING (run_id, stage)
LEFT JOIN sampler_efficiency AS sampled USING (run_id, stage)
LEFT JOIN evaluated USING (run_id, stage);
COMMENT ON VIEW stage_summary IS 'What each stage took in, did and brought.';
