"""What computations run on: thread counts, collective communication, GPUs."""
