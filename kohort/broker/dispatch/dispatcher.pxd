# The types that dispatch.py has when it is compiled.

cimport cython

from kohort.broker.dispatch.registry cimport Route, Router
from kohort.protocol.framing cimport RequestHeader

cdef class Dispatcher:
    cdef object _broker
    cdef object _log
    cdef object _metrics
    cdef Router _router
    cdef set _tasks

    @cython.locals(header=RequestHeader, route=Route, position=Py_ssize_t, end=Py_ssize_t)
    cpdef serve(self, connection, frame)
    @cython.locals(header=RequestHeader, route=Route)
    cdef _answer(self, tuple call, response)
    @cython.locals(header=RequestHeader, route=Route)
    cdef _give(self, tuple call, answer)

cdef _buffers(RequestHeader header, Route route, response)
