# The types that memory.py has when it is compiled.

cimport cython

cdef class RequestMemory:
    cdef dict _by_address
    cdef dict _large
    cdef long long _limit_bytes
    cdef long long _most_bytes
    cdef object _on_shortage
    cdef dict _waiting
    cdef readonly long long large_bytes
    cdef readonly Claimant overdrawn
    cdef readonly long long used_bytes

    cpdef long long share_bytes(self, Claimant claimant) except -1
    cpdef bint is_within_share(self, Claimant claimant, long long byte_count) except -1
    cpdef bint may_claim(self, Claimant claimant, long long byte_count) except -1
    cpdef release(self, Claimant claimant, long long byte_count)
    cpdef forget(self, Claimant claimant)
    @cython.locals(claimant=Claimant, byte_count="long long")
    cpdef admit(self)
    cdef _let_go_on(self, Claimant claimant, long long byte_count)
    cdef _grant(self, Claimant claimant, long long byte_count)
    cdef bint _is_room(self, long long byte_count) except -1
    cdef bint _is_ample_room(self, long long byte_count) except -1
    @cython.locals(before=Claimant)
    cdef bint _may_overdraw(self, Claimant claimant) except -1
    cdef _enlist(self, Claimant claimant)
    cdef _delist(self, Claimant claimant)

cdef class Claimant:
    cdef RequestMemory _memory
    cdef object _on_evicted
    cdef object _on_granted
    cdef public str address
    cdef public long long arrived_bytes
    cdef readonly long long held_bytes
    cdef readonly bint is_large
    cdef public long long left_bytes

    cpdef take(self, long long byte_count)
    cpdef bint ask(self, long long byte_count) except -1
    cpdef give_back(self, long long byte_count)
    cpdef granted(self)
