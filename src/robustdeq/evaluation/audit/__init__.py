"""The audit: probes, flags and the verdict."""
