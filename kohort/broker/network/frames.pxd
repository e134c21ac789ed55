# The types that frames.py has when it is compiled.

cimport cython

from kohort.broker.network.memory cimport Claimant

cdef class FrameReader:
    cdef Py_ssize_t _asked_bytes
    cdef Py_ssize_t _end
    cdef Py_ssize_t _filled
    cdef Py_ssize_t _frame_max_bytes
    cdef Claimant _memory
    cdef Py_ssize_t _parts_begun
    cdef object _receive_buffer
    cdef bytes _rest
    # A test counts them.
    cdef readonly bytearray _room
    cdef Py_ssize_t _size
    cdef bytes _sole
    cdef Py_ssize_t _start

    cpdef buffer(self)
    cpdef received(self, Py_ssize_t byte_count)
    @cython.locals(size=Py_ssize_t)
    cpdef bint received_small(self, Py_ssize_t byte_count) except -1
    cpdef bytes take_sole(self)
    @cython.locals(end=Py_ssize_t, body=Py_ssize_t, stop=Py_ssize_t, size=Py_ssize_t)
    cpdef next_frame(self)
    cpdef keep_rest(self)
    cpdef grow(self)
    cdef _unfold(self)
    @cython.locals(change=Py_ssize_t)
    cdef _set_rest(self, bytes rest)
