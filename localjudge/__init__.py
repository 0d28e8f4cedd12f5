"""localjudge: an offline LLM-as-judge runtime on open models."""
