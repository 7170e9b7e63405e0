"""The values that travel between the processes and into the databases; no behaviour beyond names and defaults.

Tasks keep pyspider's shape (behaviour S1 to S6): ``schedule``, ``fetch`` and ``process`` are open dicts, because a key that
is absent means something else than one that is null. Everything of ours around them is typed. All structs are frozen:
a changed value is a new value.
"""
