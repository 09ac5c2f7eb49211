-- Mean p(1-p) over the graded rollouts: the whole pool offline as stage 0, then every training step.
SELECT
    stage,
    step,
    sum(n_correct * (n - n_correct) / n) / sum(n) AS information,
    sum(n)::BIGINT AS rollouts
FROM rollout_stats JOIN run_steps USING (fingerprint)
WHERE run_id = $run_id AND name IN ('rollouts_train', 'train') AND n > 0
GROUP BY stage, step
ORDER BY stage, step
