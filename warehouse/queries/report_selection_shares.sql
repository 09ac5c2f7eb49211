-- Prompts by data source and kind: the pool as stage 0, then what each stage selected.
WITH taken AS (SELECT stage, name, fingerprint FROM run_steps WHERE run_id = $run_id),
members AS (
    SELECT DISTINCT 0 AS stage, prompt_id
    FROM prompt_sources JOIN taken USING (fingerprint) WHERE name = 'ingest' AND split = 'train'
    UNION ALL
    SELECT stage, prompt_id
    FROM selections JOIN taken USING (fingerprint) WHERE name = 'select' AND selected
)
SELECT stage, data_source, extra->>'$.kind' AS kind, count(*) AS n_prompts
FROM members JOIN prompts USING (prompt_id)
GROUP BY ALL
ORDER BY stage, data_source, kind
