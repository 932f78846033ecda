"""Suites: lists of attacks as data, the shipped ones and users' own."""
