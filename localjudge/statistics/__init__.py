"""Agreement between two sides in numbers: arrays in, figures out. Nothing here knows of runs."""
