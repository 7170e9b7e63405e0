"""How long a database may take, in seconds. Whatever waits longer ends in a DatabaseError, which the caller repeats.

Read at each use, so that tests can shorten them.
"""

#: to connect and log in
CONNECT = 10
#: to answer a statement
ANSWER = 60
#: to answer one that copies a whole table or builds an index
TABLE_CHANGE = 6 * 3600
#: for another writer's lock; shorter than ANSWER, so that the server says what it waits for
LOCK = 50
#: for the next statement of a transaction, after which a server that can ends it: a frozen leader holds the leader row no longer
NEXT_STATEMENT = 10
#: for another writer of the same SQLite file
SQLITE_LOCK = 30
