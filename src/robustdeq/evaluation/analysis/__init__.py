"""Numbers from stores alone: accuracies, intervals, paired differences, transfer."""
