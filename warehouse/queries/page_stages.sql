-- One row a stage of run $run_id up to $stage: what it took in, did and brought.
WITH rewards AS (
    SELECT run_id, stage, arg_min(reward, step) AS reward_first, arg_max(reward, step) AS reward_last
    FROM train_steps
    JOIN run_steps USING (fingerprint)
    GROUP BY ALL
)
SELECT
    stage,
    n_selected,
    train_steps,
    rollouts,
    prompts_skipped,
    frac_reward_zero_std,
    reward_first,
    reward_last,
    seconds
FROM stage_summary
LEFT JOIN rewards USING (run_id, stage)
WHERE run_id = $run_id AND stage <= $stage
ORDER BY stage;
