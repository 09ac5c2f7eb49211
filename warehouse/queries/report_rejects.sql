-- Rows of the data sets that were left out, by reason, with one example of the detail.
SELECT split, set_name, reason, count(*) AS n_rows, min(detail) AS example
FROM prompt_rejects
WHERE fingerprint IN (SELECT fingerprint FROM run_steps WHERE run_id = $run_id)
GROUP BY split, set_name, reason
ORDER BY split, set_name, n_rows DESC, reason
