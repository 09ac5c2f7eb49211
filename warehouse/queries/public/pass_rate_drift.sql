-- Drift of pass rate between offline and online: what the prompts of each stage had before training, and in it.
-- $run VARCHAR: name of the run
WITH seen AS (
    SELECT
        run_steps.stage,
        run_steps.name,
        totals.prompt_id,
        totals.policy_id,
        totals.n_correct / totals.n AS pass_rate,
        settings.engine,
        settings.temperature
    FROM prompt_totals AS totals
    JOIN run_steps USING (fingerprint)
    LEFT JOIN rollout_settings AS settings USING (fingerprint)
    WHERE run_steps.run_id = $run AND run_steps.name IN ('rollouts_train', 'train') AND totals.n > 0
)
SELECT
    online.stage,
    count(*) AS n_prompts,
    avg(offline.pass_rate) AS offline_pass_rate,
    avg(online.pass_rate) AS online_pass_rate,
    avg(online.pass_rate - offline.pass_rate) AS drift,
    avg(abs(online.pass_rate - offline.pass_rate)) AS absolute_drift,
    corr(online.pass_rate, offline.pass_rate) AS correlation,
    any_value(offline.policy_id) AS offline_policy_id,
    any_value(online.policy_id) AS online_policy_id,
    any_value(offline.engine) AS offline_engine,
    any_value(online.engine) AS online_engine,
    any_value(offline.temperature) AS offline_temperature,
    any_value(online.temperature) AS online_temperature
FROM seen AS online
JOIN seen AS offline USING (prompt_id)
WHERE online.name = 'train' AND offline.name = 'rollouts_train'
GROUP BY online.stage
ORDER BY online.stage;
