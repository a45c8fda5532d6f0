"""What the sandboxes of terminals and of programs have in common: their network."""
