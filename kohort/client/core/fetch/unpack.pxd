# The types that unpack.py has when it is compiled.

cimport cython

@cython.locals(
    view="const unsigned char[:]", data="const char*", end=Py_ssize_t, cursor=Py_ssize_t,
    base="long long", last="long long", base_timestamp="long long", is_near=bint,
    size=Py_ssize_t, stop=Py_ssize_t, far="long long", delta=Py_ssize_t,
    key_size=Py_ssize_t, key_start=Py_ssize_t, value_size=Py_ssize_t, value_start=Py_ssize_t,
    header_size=Py_ssize_t, odd=Py_ssize_t, offset="long long", records=list,
)
cpdef unpack(
    bytes block, Py_ssize_t position, Py_ssize_t left, source, long long floor, Py_ssize_t wanted
)

@cython.locals(value="long long", shift=int, byte="long long")
cdef (Py_ssize_t, Py_ssize_t) _varint(
    const unsigned char[:] view, Py_ssize_t cursor
) except *

@cython.locals(value="long long", shift=int, byte="long long", is_far=bint)
cdef (long long, Py_ssize_t) _varlong(
    const unsigned char[:] view, Py_ssize_t cursor
) except *

@cython.locals(
    count=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t, name=str, headers=list,
)
cdef tuple _headers(
    const unsigned char[:] view, const char* data, Py_ssize_t cursor, Py_ssize_t end
)
