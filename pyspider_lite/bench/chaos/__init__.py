"""Chaos: a crawl whose processes and servers are killed, frozen and cut off all the time, and a judge of what became of it."""
