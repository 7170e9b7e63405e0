"""Workers that have nothing to do, many in one process: to the broker each is what a real one is, by the classes of real ones."""
