# The types that requests.py has when it is compiled.

cimport cython

from kohort.broker.metrics.tally cimport HistogramTally

cdef class RequestMeter:
    cdef readonly str api
    cdef readonly HistogramTally duration
    cdef readonly dict errors
    cdef readonly object version

cdef class EdgeMetrics:
    cdef dict _meters
    cdef readonly dict closed
    cdef readonly long long connection_count
    cdef readonly long long opened_count
    cdef readonly long long received_bytes
    cdef readonly dict refused
    cdef readonly dict rejected
    cdef readonly long long sent_bytes
    cdef readonly long long waiting_count

    @cython.locals(meter=RequestMeter)
    cpdef request_answered(self, api, version, response, double duration_s)
    cpdef bytes_received(self, Py_ssize_t byte_count)
    cpdef bytes_sent(self, Py_ssize_t byte_count)
    cdef RequestMeter _new_meter(self, api, version)
