"""From the words of a command line to what a verb works with: parser, checkpoint, defence, folders."""
