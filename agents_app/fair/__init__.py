"""Fair shares of what a process has a limited number of: slots of its loop, threads, runs."""
