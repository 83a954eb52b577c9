"""What every process of the session needs: frames and packets, system calls, process trees."""
