"""What every package may use: atomic files, jobs, progress, errors, small array helpers."""
