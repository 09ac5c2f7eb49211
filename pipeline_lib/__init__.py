"""The methods: influence, selection, selective rollouts and GRPO. Knows neither Prefect nor DuckDB."""
