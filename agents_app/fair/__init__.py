"""Fair sharing of a process's limited resources between owners: slots of its loop, threads, runs."""
