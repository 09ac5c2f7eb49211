-- The steps whose last attempt failed.
SELECT stage, name AS step, coalesce(error, '') AS error, attempts
FROM run_progress
WHERE run_id = $run_id AND status = 'failed'
ORDER BY stage, started_at
