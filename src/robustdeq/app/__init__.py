"""The explorer: attack an image and watch the dynamics, on a page of one's own machine or in a file."""
