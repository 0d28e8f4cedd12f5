"""Engines: one protocol (`base`), the models behind it, and a public fake (`scripted`)."""
