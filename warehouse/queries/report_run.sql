-- Heading of a run's report: one row. Times are UTC.
SELECT
    r.run_id,
    r.status,
    r.stages,
    make_timestamp(epoch_us(r.created_at)) AS created_at,
    make_timestamp(epoch_us(r.updated_at)) AS updated_at,
    regexp_replace(
        coalesce(r.config->>'$.policy.path', r.config->>'$.policy.package', r.config->>'$.policy.type'), '^/.*/', ''
    ) AS policy,
    p.policy_id,
    p.n_parameters,
    (
        SELECT count(DISTINCT s.prompt_id)
        FROM prompt_sources s JOIN run_steps t USING (fingerprint)
        WHERE t.run_id = $run_id AND t.name = 'ingest' AND s.split = 'train'
    ) AS pool_size,
    r.config->>'$.selection.type' AS strategy,
    (r.config->>'$.selection.alpha')::DOUBLE AS alpha,
    r.config->>'$.train.sampler.type' AS sampler,
    (r.config->>'$.train.group_size')::BIGINT AS group_size,
    (r.config->>'$.influence.max_kl')::DOUBLE AS max_kl,
    (r.config->>'$.influence.min_ess')::DOUBLE AS min_ess,
    r.config::VARCHAR AS config
FROM runs r
-- By the rollouts, not by the policy step: two runs may have loaded the same weights.
LEFT JOIN policies p ON p.policy_id = (
    SELECT any_value(o.policy_id)
    FROM rollout_stats o JOIN run_steps t USING (fingerprint)
    WHERE t.run_id = $run_id AND t.name = 'rollouts_train'
)
WHERE r.run_id = $run_id
