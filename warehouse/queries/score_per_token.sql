-- The published influence <g_i, v_j> from directional derivatives of single tokens, without the policy:
-- (1/K) Σ_k (A_k/|τ_k|) Σ_t ρ_kt l'_kt. $rollouts and $per_token are paths or globs of Parquet files, of rollouts that
-- were collected once: where stale ones were collected again, name the files of either. A dot is null where the
-- derivatives of a trajectory with an advantage are missing.
WITH trajectories AS (
    SELECT
        prompt_id,
        sample_index,
        behaviour_logprobs,
        count(reward) OVER prompt AS K,
        CASE
            -- Rewards within 1e-6 of one another are one reward: the group has no signal, and its gradient is 0.
            WHEN reward IS NULL OR max(reward) OVER prompt - min(reward) OVER prompt <= 1e-6 THEN 0
            ELSE (reward - avg(reward) OVER prompt) / (stddev_samp(reward) OVER prompt + 1e-4)
        END AS advantage
    FROM read_parquet($rollouts)
    WINDOW prompt AS (PARTITION BY prompt_id)
),

terms AS (
    SELECT
        trajectories.prompt_id,
        validation_sets.validation_set,
        CASE
            WHEN trajectories.advantage = 0 OR len(trajectories.behaviour_logprobs) = 0 THEN 0
            WHEN per_token.derivatives IS NULL THEN NULL
            -- Unlike a sum over zipped lists, the inner product refuses lists of different lengths.
            ELSE trajectories.advantage / (trajectories.K * len(trajectories.behaviour_logprobs))
                * list_inner_product(
                    CAST(per_token.derivatives AS DOUBLE[]),
                    [
                        exp(CAST(pair[1] AS DOUBLE) - pair[2])
                        FOR pair IN list_zip(per_token.logprobs, trajectories.behaviour_logprobs)
                    ]
                )
        END AS term
    FROM trajectories
    CROSS JOIN (SELECT DISTINCT validation_set FROM read_parquet($per_token)) AS validation_sets
    LEFT JOIN read_parquet($per_token) AS per_token USING (prompt_id, sample_index, validation_set)
)

SELECT
    prompt_id,
    validation_set,
    CASE WHEN count(term) = count(*) THEN sum(term) END AS dot
FROM terms
GROUP BY prompt_id, validation_set
ORDER BY validation_set, prompt_id;
