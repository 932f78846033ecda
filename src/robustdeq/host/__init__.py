"""What concerns the machine rather than the subject: files, processes, provenance, interrupts, hints, lazy imports."""
