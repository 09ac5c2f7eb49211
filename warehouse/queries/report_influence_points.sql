-- Influence against the offline pass rate at the last scored stage; at most 1,500 prompts a validation set.
-- prompt_id is a hash, so the first 1,500 are a fair sample.
WITH taken AS (SELECT stage, name, fingerprint FROM run_steps WHERE run_id = $run_id),
scores AS (
    SELECT stage, validation_set, prompt_id, cosine
    FROM influence_scores JOIN taken USING (fingerprint)
    WHERE name = 'score' AND estimator IS DISTINCT FROM 'cascade'
    QUALIFY stage = max(stage) OVER ()
),
offline AS (
    SELECT prompt_id, n_correct / n AS pass_rate
    FROM rollout_stats JOIN taken USING (fingerprint) WHERE name = 'rollouts_train' AND n > 0
),
chosen AS (
    SELECT stage, prompt_id, selected FROM selections JOIN taken USING (fingerprint) WHERE name = 'select'
)
SELECT stage, validation_set, pass_rate, cosine, coalesce(selected, false) AS selected
FROM scores JOIN offline USING (prompt_id) LEFT JOIN chosen USING (stage, prompt_id)
QUALIFY row_number() OVER (PARTITION BY validation_set ORDER BY prompt_id) <= 1500
ORDER BY validation_set, prompt_id
