"""Running what is missing in a store: plan, schedule, batches, scores, resume, progress."""
