"""What a worker says on ``status_queue``: which runs it holds, which are over, and that it lives. Every role but the scheduler has one."""
