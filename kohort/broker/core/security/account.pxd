# The types that account.py has when it is compiled.

cimport cython

# The limits of a client may have more digits than a machine's integer: `at_once` has them all.
@cython.final
cdef class Account:
    cdef readonly double limit
    cdef readonly object at_once
    cdef object _rate
    cdef double _a_second
    cdef object _longest_ms
    cdef long long _budget
    cdef long long sample_end_ms
    cdef long long left
    cdef long long _left_before
    cdef long long last_ms

    cpdef long long charge(self, long long amount, long long now_ms) except *
    cdef long long _charge_to_rate(self, long long amount, long long now_ms) except *
    cdef _tell(self)

@cython.final
cdef class Accounts:
    cdef readonly str client_id
    cdef readonly Account request
    cdef readonly Account producer
    cdef readonly Account consumer
    cdef public bint is_current
    cdef readonly long long at_once

    cpdef bint allow_at_once(self, str client_id, long long max_bytes, long long min_bytes) except *
    @cython.locals(
        now_ms="long long", throttle_ms="long long", amount="long long", account=Account,
    )
    cpdef long long charge(
        self, str client_id, int api_key, long long size_bytes, double used_s, double now_s,
        list answer
    ) except *

@cython.locals(of_bytes_ms="long long")
cdef long long _charge_answer(
    Account account, long long byte_count, long long throttle_ms, long long now_ms
) except *

cdef int _PRODUCE
cdef int _FETCH
cdef long long _NOT_BEGUN
