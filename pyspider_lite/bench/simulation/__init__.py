"""`scripts/simulate`: the real scheduler, with as many workers as a large cluster has, all of which are played. What it shows is in docs/scaling.md.

`pages` is the site, `workers` and `crowd` play the cluster, `counted` drives `Scheduler.step` by a clock that is counted, `tally` makes figures
of what was seen. The daemon with its threads and real queues, in real time, is `bench --role scheduler`.
"""
