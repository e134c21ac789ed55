# The types that coordinator_partitions.py has when it is compiled.

cimport cython

# The hash wraps around at 32 bits, as Java's does.
@cython.locals(
    units=bytes, position=Py_ssize_t, count=Py_ssize_t, hashed="unsigned int",
    high="unsigned char", low="unsigned char",
)
cpdef object java_hash(str text)
