"""The audit of a defence: probes, flags and the verdict."""
