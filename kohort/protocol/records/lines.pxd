# The types that lines.py has when it is compiled.

cimport cython

@cython.locals(
    out="unsigned char[::1]", source="unsigned char[::1]", room=Py_ssize_t, stop=Py_ssize_t,
    value_bytes=Py_ssize_t, delta=Py_ssize_t, length=Py_ssize_t, size=Py_ssize_t,
)
cpdef tuple pack_lines(
    bytearray block, Py_ssize_t filled, Py_ssize_t count, bytearray text, Py_ssize_t position,
    Py_ssize_t end
)
