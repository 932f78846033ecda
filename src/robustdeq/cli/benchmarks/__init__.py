"""What `robustdeq bench` measures."""
