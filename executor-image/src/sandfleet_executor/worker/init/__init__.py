"""PID 1 of the session, and what it forks: the spawner, the supervisors of commands, the memory guard."""
