"""Services that follow advice by themselves.

    back_off   what is left alone for a while, because writers cancelled it or it failed
    agenda     the decision: which piece of advice is followed next, within a budget
    follow     which service a piece of advice calls

The loop is in `run`.
"""
