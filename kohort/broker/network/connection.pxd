# The types that connection.py has when it is compiled.

cimport cython

from kohort.broker.network.frames cimport FrameReader
from kohort.broker.network.memory cimport Claimant

cdef class ServedConnection:
    cdef object _close_reason
    cdef object _frame_in_execution
    cdef object _host
    cdef bint _is_closing
    cdef bint _is_due
    cdef bint _is_lost
    cdef bint _is_reading
    cdef bint _is_stopping
    cdef bint _is_write_paused
    cdef Claimant _memory
    cdef object _metrics
    cdef object _patience
    cdef object _pending
    cdef FrameReader _reader
    cdef object _sender
    cdef object _service
    cdef object _transport
    cdef object _turns
    cdef list _unwritten
    cdef readonly object info
    cdef readonly str ip

    cpdef buffer_updated(self, Py_ssize_t nbytes)
    cdef bint _may_execute(self) except -1
    cdef _work(self)
    cdef _execute_sole(self, bytes frame)
    @cython.locals(responses=list, response_bytes=Py_ssize_t)
    cdef _execute(self)
    cdef _wait_for(self, pending, frame)
    @cython.locals(is_first=bint)
    cdef _write(self, list responses, Py_ssize_t byte_count)
    cdef _send_files(self)
    cdef _send_some(self)
    cdef _give_up_files(self)
    cdef Py_ssize_t _unsent_bytes(self) except -1
    cdef _work_soon(self)
    @cython.locals(should_read=bint)
    cdef _regulate_reading(self)

@cython.locals(count=Py_ssize_t)
cdef Py_ssize_t _byte_count(list buffers) except -1
