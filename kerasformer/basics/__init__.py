"""What every room may use: arguments, options of functions and commands, tasks, progress."""
