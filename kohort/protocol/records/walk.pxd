# The types that walk.py has when it is compiled.

cimport cython

# A timestamp is an unsigned integer of 64 bits until its delta is decoded, and so is each group of
# its bits, which is shifted to its place.
@cython.locals(
    cursor=Py_ssize_t, size=Py_ssize_t, second=Py_ssize_t, stop=Py_ssize_t, offset=Py_ssize_t,
    timestamp="unsigned long long", group="unsigned long long", shift=int, delta="long long",
    delta_min="long long", delta_max="long long", key_size=Py_ssize_t, value_size=Py_ssize_t,
    header_size=Py_ssize_t, index=Py_ssize_t, stop_index=Py_ssize_t, missing_keys=Py_ssize_t,
    body_bytes_max=Py_ssize_t,
)
cpdef check_records(
    const unsigned char[::1] block, Py_ssize_t position, Py_ssize_t first_index, Py_ssize_t count,
    Py_ssize_t effort
)

# A timestamp stays an integer of Python: its delta can have 64 bits without a sign.
@cython.locals(
    cursor=Py_ssize_t, size=Py_ssize_t, second=Py_ssize_t, stop=Py_ssize_t, offset=Py_ssize_t,
    key_size=Py_ssize_t, key_start=Py_ssize_t, value_size=Py_ssize_t, value_start=Py_ssize_t,
    header_size=Py_ssize_t, headers_start=Py_ssize_t,
)
cpdef read_span(const unsigned char[::1] block, Py_ssize_t position)

@cython.locals(value="unsigned long long", group="unsigned long long", index=Py_ssize_t)
cdef Py_ssize_t _long_size(const unsigned char[::1] block, Py_ssize_t position) except -1

@cython.locals(length=Py_ssize_t)
cdef Py_ssize_t _skip_headers(
    const unsigned char[::1] block, Py_ssize_t cursor, Py_ssize_t size
) except -1
