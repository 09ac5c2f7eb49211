-- How many prompts have which pass rate: stage 0 the pool offline, later the trained prompts over their stage.
SELECT stage, pass_rate, count(*) AS n_prompts
FROM (
    SELECT stage, prompt_id, round(sum(n_correct) / sum(n), 4) AS pass_rate
    FROM rollout_stats JOIN run_steps USING (fingerprint)
    WHERE run_id = $run_id AND name IN ('rollouts_train', 'train') AND n > 0
    GROUP BY stage, prompt_id
)
GROUP BY stage, pass_rate
ORDER BY stage, pass_rate
