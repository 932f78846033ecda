"""Running what is missing in a store: plan, schedule, batches, partial items, progress."""
