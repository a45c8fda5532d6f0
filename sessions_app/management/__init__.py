"""The operator's commands: a face for people at a shell."""
