"""Real brokers and databases on private ports and in temporary folders, for the tests and for `bench --cluster`.

Each server keeps its folder and its port over `stop` and `start`, as a server that is restarted does. `close` ends it and
removes the folder. The programs are Debian's (`scripts/servers` installs them); they are started as children of this process.
"""
