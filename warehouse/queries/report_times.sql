-- Seconds of the last attempt of each step but the report.
SELECT stage, name AS step, epoch(finished_at) - epoch(started_at) AS seconds
FROM run_progress
WHERE run_id = $run_id AND name <> 'report' AND finished_at IS NOT NULL
ORDER BY stage, started_at
