-- The last 20 training steps of stage $stage of run $run_id, newest first.
SELECT
    train.step,
    train.reward,
    train.frac_reward_zero_std,
    train.rollouts,
    train.prompts_skipped,
    train.entropy,
    train.grad_norm,
    train.completions_mean_length,
    train.step_time
FROM train_steps AS train
JOIN run_steps USING (fingerprint)
WHERE run_steps.run_id = $run_id AND run_steps.stage = $stage
ORDER BY train.step DESC
LIMIT 20;
