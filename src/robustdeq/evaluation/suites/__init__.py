"""Suites: attacks as data, the shipped lists, users' own YAML."""
