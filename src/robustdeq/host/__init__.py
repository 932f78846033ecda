"""What touches the machine and no subject: files, processes, provenance, interrupts."""
