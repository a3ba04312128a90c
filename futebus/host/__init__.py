"""What the machine offers to a program that serves: a service manager, logs, signals, disks, the mount table."""
