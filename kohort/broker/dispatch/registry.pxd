# The types that registry.py has when it is compiled.

cdef class Api:
    cdef readonly object advertised
    cdef readonly object handler
    cdef readonly object is_answered
    cdef readonly object key
    cdef readonly str name
    cdef readonly object on_error
    cdef readonly object request
    cdef readonly object versions

cdef class Route:
    cdef readonly Api api
    cdef readonly object decode
    cdef readonly object handler
    cdef readonly bint request_header_has_tags
    cdef readonly object response
    cdef readonly object response_codec
    cdef readonly bint response_header_has_tags
    cdef readonly object version

cdef class Router:
    cdef readonly dict apis
    cdef dict _routes

    cpdef find(self, api_key, version)
