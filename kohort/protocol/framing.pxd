# The types that framing.py has when it is compiled.

cimport cython

cdef class RequestHeader:
    cdef readonly object api_key
    cdef readonly object api_version
    cdef readonly object client_id
    cdef readonly object correlation_id

@cython.locals(length=Py_ssize_t, end=Py_ssize_t)
cpdef tuple read_request_prefix(frame)

@cython.locals(count=Py_ssize_t)
cpdef Py_ssize_t skip_header_tags(frame, Py_ssize_t position) except -1
