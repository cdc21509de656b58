"""What all papers share: tasks, rewards, the training loop, its workers, files of policies and logs of runs."""
