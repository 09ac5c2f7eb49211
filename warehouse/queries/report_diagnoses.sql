-- What scores and selection of each stage are worth.
SELECT stage, subject, metric, value, n
FROM stage_diagnosis
WHERE run_id = $run_id
ORDER BY metric, subject, stage
