# The types that tally.py has when it is compiled.

cdef class HistogramTally:
    cdef readonly object bounds
    cdef readonly list counts
    cdef readonly double total

    cpdef observe(self, double value)
