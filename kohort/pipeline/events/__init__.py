"""Records of the history into rows, in plain Python: `reading` tells events from what is none,
`rows` makes the rows of the history's tables of them.
"""
