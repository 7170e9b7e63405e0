"""How long a database may take, in seconds. Whatever waits longer ends in a DatabaseError, which the caller repeats.

Read at each use, so that tests can shorten them.
"""

#: to connect and log in
CONNECT = 10
#: to answer a statement
ANSWER = 60
#: for the other machine to acknowledge what it was sent, or that it is still there: a connection whose packets vanish is given up after
#: these by client and server, however long a statement may take
SILENCE = 6
#: ... and when and how often it is asked whether it is there (TCP keep-alive): after PROBE seconds of silence, then PROBES times
PROBE, PROBES = 2, 2
#: to answer one that copies a whole table or builds an index
TABLE_CHANGE = 6 * 3600
#: for another writer's lock; shorter than ANSWER, so that the server says what it waits for
LOCK = 50
#: for the next statement of a transaction, after which a server that can ends it: a leader that is frozen within one holds the leader row
#: no longer than its term (`scheduler.leader.TERM`). Who was only slow begins his transaction again
NEXT_STATEMENT = 4
#: for another writer of the same SQLite file
SQLITE_LOCK = 30
