-- Every training step of the run in order.
SELECT
    stage,
    t.step,
    solved_all,
    solved_some,
    solved_none,
    reward,
    kl,
    entropy,
    grad_norm,
    rollouts,
    prompts_skipped * (
        SELECT (config->>'$.train.group_size')::BIGINT FROM runs WHERE run_id = $run_id
    ) AS rollouts_skipped,
    prompts_proposed,
    prompts_skipped,
    prompts_rolled_out,
    groups_trained,
    groups_carried,
    generation_rounds,
    step_time,
    rollout_time,
    verify_time,
    logprob_time,
    update_time
FROM train_steps t JOIN run_steps USING (fingerprint)
WHERE run_id = $run_id AND name = 'train'
ORDER BY stage, t.step
