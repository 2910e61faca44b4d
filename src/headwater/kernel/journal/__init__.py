"""The journal of a fenced table: every decision is one object, created once, and nobody locks.

    slots        what a decision says, as bytes
    paths        the paths that a state knows, by folder; pure
    state        what the slots up to one of them add up to; pure
    journal      reads slots, appends one, and keeps their number bounded
    materialise  writes the files that other engines read, in the order of the slots
    storage      shows the table as the journal has it
    lost_config  brings back table config, without which nobody can open the table

A decision is made on the state after slot n and put at slot n + 1, if absent. Who finds the slot
taken reads on and decides again. So check and commit are one call to the store, and nothing depends
on leases, clocks or on how long a process sleeps (M1). Timeline files follow afterwards: by the
author before it answers, and by anybody who finds some missing.
"""
