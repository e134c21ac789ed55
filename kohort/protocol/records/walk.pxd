# The types that walk.py has when it is compiled.

cimport cython

@cython.locals(byte=Py_ssize_t, second=Py_ssize_t)
cpdef Py_ssize_t skip_records(
    const unsigned char[:] block, Py_ssize_t position, Py_ssize_t count
) except -1

# A timestamp stays an integer of Python: its delta can have 64 bits without a sign.
@cython.locals(
    cursor=Py_ssize_t, size=Py_ssize_t, second=Py_ssize_t, stop=Py_ssize_t, offset=Py_ssize_t,
    key_size=Py_ssize_t, key_start=Py_ssize_t, value_size=Py_ssize_t, value_start=Py_ssize_t,
    header_size=Py_ssize_t, headers_start=Py_ssize_t,
)
cpdef read_span(const unsigned char[:] block, Py_ssize_t position)
