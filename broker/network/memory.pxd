# The types that memory.py has when it is compiled.

cimport cython

cdef class RequestMemory:
    cdef long long _limit_bytes
    cdef long long _most_bytes
    cdef Claimant _overdrawn
    cdef dict _waiting
    cdef readonly long long used_bytes

    cpdef bint may_claim(self, Claimant claimant, long long byte_count) except -1
    cpdef release(self, Claimant claimant, long long byte_count)
    cpdef forget(self, Claimant claimant)
    cdef _grant(self, long long byte_count)
    cdef bint _may_overdraw(self, Claimant claimant) except -1
    @cython.locals(claimant=Claimant, byte_count="long long")
    cdef _admit(self)

cdef class Claimant:
    cdef RequestMemory _memory
    cdef object _on_granted
    cdef readonly long long held_bytes

    cpdef take(self, long long byte_count)
    cpdef bint ask(self, long long byte_count) except -1
    cpdef give_back(self, long long byte_count)
    cpdef granted(self, long long byte_count)
