# What the generated readers and writers share. Readers return None for all that is malformed, writers
# -1 for all that is not ordinary: too large, with most tags, of an unexpected type. The caller then asks
# the codec that is written in Python, so what is wrong with a message is said in one place.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include <structmember.h>

    /* Not all are needed by every selection of messages. */
    #define HELPER CYTHON_UNUSED static

    HELPER uint64_t big_endian(const unsigned char *data, int width) {
        uint64_t value = 0;
        for (int i = 0; i < width; i++) value = value << 8 | data[i];
        return value;
    }
    static CYTHON_INLINE int64_t int_b(const unsigned char *d) { return (int8_t)d[0]; }
    static CYTHON_INLINE int64_t int_h(const unsigned char *d) { return (int16_t)big_endian(d, 2); }
    static CYTHON_INLINE int64_t int_H(const unsigned char *d) { return (uint16_t)big_endian(d, 2); }
    static CYTHON_INLINE int64_t int_i(const unsigned char *d) { return (int32_t)big_endian(d, 4); }
    static CYTHON_INLINE int64_t int_I(const unsigned char *d) { return (uint32_t)big_endian(d, 4); }
    static CYTHON_INLINE int64_t int_q(const unsigned char *d) { return (int64_t)big_endian(d, 8); }
    HELPER PyObject *read_b(const unsigned char *d) { return PyLong_FromLongLong(int_b(d)); }
    HELPER PyObject *read_h(const unsigned char *d) { return PyLong_FromLongLong(int_h(d)); }
    HELPER PyObject *read_H(const unsigned char *d) { return PyLong_FromLongLong(int_H(d)); }
    HELPER PyObject *read_i(const unsigned char *d) { return PyLong_FromLongLong(int_i(d)); }
    HELPER PyObject *read_I(const unsigned char *d) { return PyLong_FromLongLong(int_I(d)); }
    HELPER PyObject *read_q(const unsigned char *d) { return PyLong_FromLongLong(int_q(d)); }
    HELPER PyObject *read_flag(const unsigned char *d) { return PyBool_FromLong(*d); }
    HELPER PyObject *read_16s(const unsigned char *d) {
        return PyBytes_FromStringAndSize((const char *)d, 16);
    }
    typedef PyObject *(*reader_of_one)(const unsigned char *);

    /* As many values of one width as the caller has found room for. */
    HELPER PyObject *read_list(
        reader_of_one read, int width, const unsigned char *data, int64_t count
    ) {
        PyObject *list = PyList_New((Py_ssize_t)count);
        if (!list) return NULL;
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *one = read(data + i * width);
            if (!one) { Py_DECREF(list); return NULL; }
            PyList_SET_ITEM(list, i, one);
        }
        return list;
    }

    /* -1 if there is none of at most 32 bits. */
    HELPER int64_t read_uvarint(const unsigned char *data, int64_t *position, int64_t end) {
        uint64_t value = 0;
        for (int shift = 0; shift < 35; shift += 7) {
            if (*position >= end) return -1;
            unsigned char byte = data[(*position)++];
            value |= (uint64_t)(byte & 0x7F) << shift;
            if (byte < 0x80) return value >> 32 ? -1 : (int64_t)value;
        }
        return -1;
    }
    HELPER PyObject *read_text(const unsigned char *data, int64_t size) {
        PyObject *text = PyUnicode_DecodeUTF8((const char *)data, (Py_ssize_t)size, NULL);
        if (!text && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            Py_RETURN_NONE;
        }
        return text;
    }

    /* Where objects of a class with __slots__ keep an attribute. */
    HELPER Py_ssize_t slot_of(PyObject *type, PyObject *name) {
        PyObject *found = PyObject_GetAttr(type, name);
        if (!found) return -1;
        Py_ssize_t offset = -1;
        if (Py_IS_TYPE(found, &PyMemberDescr_Type)
            && ((PyDescrObject *)found)->d_type == (PyTypeObject *)type
            && ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX)
            offset = ((PyMemberDescrObject *)found)->d_member->offset;
        else
            PyErr_SetString(PyExc_TypeError, "not a class with slots");
        Py_DECREF(found);
        return offset;
    }
    HELPER PyObject *new_of(PyObject *type) {
        return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
    }
    /* Into an object that is new: nothing was there before. */
    static CYTHON_INLINE void set_slot(PyObject *object, Py_ssize_t offset, PyObject *value) {
        Py_INCREF(value);
        *(PyObject **)((char *)object + offset) = value;
    }
    /* Into one that has the attribute already. */
    HELPER void replace_slot(PyObject *object, Py_ssize_t offset, PyObject *value) {
        PyObject **slot = (PyObject **)((char *)object + offset), *before = *slot;
        Py_INCREF(value);
        *slot = value;
        Py_XDECREF(before);
    }
    /* Borrowed; NULL if the attribute was never set. */
    static CYTHON_INLINE PyObject *get_slot(PyObject *object, Py_ssize_t offset) {
        return *(PyObject **)((char *)object + offset);
    }
    static CYTHON_INLINE int is_a(PyObject *object, PyObject *type) {
        return object && (PyObject *)Py_TYPE(object) == type;
    }

    typedef struct {
        unsigned char *data;
        Py_ssize_t size, room;
        PyObject *parts;  /* What goes out before `data`, once something large was met. */
        unsigned char own[1024];
    } Out;
    HELPER void out_open(Out *out) {
        out->data = out->own; out->size = 0; out->room = sizeof out->own; out->parts = NULL;
    }
    HELPER void out_close(Out *out) {
        if (out->data != out->own) PyMem_Free(out->data);
        Py_CLEAR(out->parts);
    }
    HELPER unsigned char *out_grow(Out *out, Py_ssize_t more) {
        if (more > PY_SSIZE_T_MAX / 4 - out->size) return NULL;
        Py_ssize_t room = 2 * (out->size + more);
        unsigned char *data = PyMem_Malloc(room);
        if (!data) return NULL;
        memcpy(data, out->data, out->size);
        if (out->data != out->own) PyMem_Free(out->data);
        out->data = data; out->room = room;
        return data + out->size;
    }
    /* Room for so many bytes more, which count as written. */
    static CYTHON_INLINE unsigned char *out_take(Out *out, Py_ssize_t more) {
        unsigned char *to = out->data + out->size;
        if (more > out->room - out->size && !(to = out_grow(out, more))) return NULL;
        out->size += more;
        return to;
    }
    HELPER int put_integer(Out *out, uint64_t value, int width) {
        unsigned char *to = out_take(out, width);
        if (!to) return -1;
        for (int i = width; i-- > 0; value >>= 8) to[i] = (unsigned char)value;
        return 0;
    }
    HELPER int put_uvarint(Out *out, uint64_t value) {
        for (; value >= 0x80; value >>= 7)
            if (put_integer(out, (value & 0x7F) | 0x80, 1) < 0) return -1;
        return put_integer(out, value, 1);
    }
    HELPER int put_bytes(Out *out, const char *data, Py_ssize_t size) {
        unsigned char *to = out_take(out, size);
        if (!to) return -1;
        memcpy(to, data, size);
        return 0;
    }
    HELPER int put_ranged(Out *out, PyObject *value, int width, int64_t low, int64_t high) {
        int overflow;
        if (!value || !PyLong_Check(value)) return -1;
        int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow || number < low || number > high) return -1;
        return put_integer(out, (uint64_t)number, width);
    }
    HELPER int put_b(Out *o, PyObject *v) { return put_ranged(o, v, 1, INT8_MIN, INT8_MAX); }
    HELPER int put_h(Out *o, PyObject *v) { return put_ranged(o, v, 2, INT16_MIN, INT16_MAX); }
    HELPER int put_H(Out *o, PyObject *v) { return put_ranged(o, v, 2, 0, UINT16_MAX); }
    HELPER int put_i(Out *o, PyObject *v) { return put_ranged(o, v, 4, INT32_MIN, INT32_MAX); }
    HELPER int put_I(Out *o, PyObject *v) { return put_ranged(o, v, 4, 0, UINT32_MAX); }
    HELPER int put_q(Out *o, PyObject *v) { return put_ranged(o, v, 8, INT64_MIN, INT64_MAX); }
    HELPER int put_flag(Out *out, PyObject *value) {
        if (value != Py_True && value != Py_False) return -1;
        return put_integer(out, value == Py_True, 1);
    }
    HELPER int put_16s(Out *out, PyObject *value) {
        if (!value || !PyBytes_CheckExact(value) || PyBytes_GET_SIZE(value) != 16) return -1;
        return put_bytes(out, PyBytes_AS_STRING(value), 16);
    }

    /* A length or count: -1 is null. `prefix` is its width in bytes, 0 the compact form. */
    HELPER int put_length(Out *out, Py_ssize_t length, int prefix) {
        if (length > (prefix == 2 ? INT16_MAX : INT32_MAX - 1)) return -1;
        if (!prefix) return put_uvarint(out, (uint64_t)(length + 1));
        return put_integer(out, (uint64_t)length, prefix);
    }
    enum { TEXT_BYTES_MAX = 0x7FFF };
    HELPER int put_text(Out *out, PyObject *value, int prefix, int nullable) {
        if (value == Py_None && nullable) return put_length(out, -1, prefix);
        if (!value || !PyUnicode_CheckExact(value)) return -1;
        if (PyUnicode_IS_COMPACT_ASCII(value)) {
            Py_ssize_t size = PyUnicode_GET_LENGTH(value);
            if (size > TEXT_BYTES_MAX || put_length(out, size, prefix) < 0) return -1;
            return put_bytes(out, (const char *)PyUnicode_1BYTE_DATA(value), size);
        }
        /* Not PyUnicode_AsUTF8, which keeps the bytes as long as the text. */
        PyObject *bytes = PyUnicode_AsUTF8String(value);
        if (!bytes) { PyErr_Clear(); return -1; }
        int result = PyBytes_GET_SIZE(bytes) > TEXT_BYTES_MAX
            ? -1 : put_length(out, PyBytes_GET_SIZE(bytes), prefix);
        if (!result) result = put_bytes(out, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
        Py_DECREF(bytes);
        return result;
    }
    HELPER int put_blob(Out *out, PyObject *value, int prefix, int nullable) {
        if (value == Py_None && nullable) return put_length(out, -1, prefix);
        if (!value || !PyBytes_CheckExact(value)) return -1;
        if (put_length(out, PyBytes_GET_SIZE(value), prefix) < 0) return -1;
        return put_bytes(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    }
    /* A list is made where a collection may begin, and that runs callbacks and finalizers, which may
       change the message that is being written. */
    static PyObject *list_without_collection(void) {
        int was_enabled = PyGC_Disable();
        PyObject *list = PyList_New(0);
        if (was_enabled) PyGC_Enable();
        return list;
    }
    /* End the part that is being written and let `value` follow it. */
    HELPER int put_part(Out *out, PyObject *value) {
        if (!out->parts && !(out->parts = list_without_collection())) { PyErr_Clear(); return -1; }
        PyObject *part = PyByteArray_FromStringAndSize((const char *)out->data, out->size);
        int failed = !part || PyList_Append(out->parts, part) < 0
            || PyList_Append(out->parts, value) < 0;
        Py_XDECREF(part);
        if (failed) { PyErr_Clear(); return -1; }
        out->size = 0;
        return 0;
    }
    HELPER int put_records(
        Out *out, PyObject *value, int prefix, int nullable, Py_ssize_t copy_max
    ) {
        Py_buffer view;
        if (value == Py_None && nullable) return put_length(out, -1, prefix);
        if (!value) return -1;
        if (!(PyBytes_CheckExact(value) || PyMemoryView_Check(value))) {
            /* What is sent from where it lies has a length and no bytes to look at. */
            Py_ssize_t size = PyObject_Size(value);
            if (size < 0) PyErr_Clear();
            return size > copy_max && !put_length(out, size, prefix) ? put_part(out, value) : -1;
        }
        if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0) { PyErr_Clear(); return -1; }
        /* Length and size in bytes are the same only of single bytes. */
        int result = view.itemsize == 1 ? put_length(out, view.len, prefix) : -1;
        if (!result)
            result = view.len > copy_max ? put_part(out, value) : put_bytes(out, view.buf, view.len);
        PyBuffer_Release(&view);
        return result;
    }
    /* The count of a list whose elements follow; 0 of null. */
    HELPER Py_ssize_t put_count(Out *out, PyObject *value, int prefix, int nullable) {
        if (value == Py_None && nullable) return put_length(out, -1, prefix);
        if (!value || !PyList_CheckExact(value)) return -1;
        Py_ssize_t count = PyList_GET_SIZE(value);
        return put_length(out, count, prefix) < 0 ? -1 : count;
    }
    static CYTHON_INLINE PyObject *item_of(PyObject *list, Py_ssize_t index) {
        return index < PyList_GET_SIZE(list) ? PyList_GET_ITEM(list, index) : NULL;
    }

    HELPER int is_integer(PyObject *value, int64_t number) {
        int overflow;
        if (!value || !PyLong_Check(value)) return 0;
        return PyLong_AsLongLongAndOverflow(value, &overflow) == number && !overflow;
    }
    HELPER int is_empty_text(PyObject *value) {
        return value && PyUnicode_CheckExact(value) && PyUnicode_GET_LENGTH(value) == 0;
    }
    HELPER int is_empty_bytes(PyObject *value) {
        return value && PyBytes_CheckExact(value) && PyBytes_GET_SIZE(value) == 0;
    }
    HELPER int is_empty_list(PyObject *value) {
        return value && PyList_CheckExact(value) && PyList_GET_SIZE(value) == 0;
    }
    HELPER int is_zero_uuid(PyObject *value) {
        static const char zero[16];
        return value && PyBytes_CheckExact(value) && PyBytes_GET_SIZE(value) == 16
            && !memcmp(PyBytes_AS_STRING(value), zero, 16);
    }
    HELPER int is_none(PyObject *value) { return value == Py_None; }
    HELPER int is_false(PyObject *value) { return value == Py_False; }
    HELPER int is_true(PyObject *value) { return value == Py_True; }
    """
    ctypedef object (*reader_of_one)(const unsigned char *)
    ctypedef struct Out:
        unsigned char *data
        Py_ssize_t size
        PyObject *parts
    int64_t int_b(const unsigned char *) noexcept
    int64_t int_h(const unsigned char *) noexcept
    int64_t int_i(const unsigned char *) noexcept
    object read_b(const unsigned char *)
    object read_h(const unsigned char *)
    object read_H(const unsigned char *)
    object read_i(const unsigned char *)
    object read_I(const unsigned char *)
    object read_q(const unsigned char *)
    object read_flag(const unsigned char *)
    object read_16s(const unsigned char *)
    object read_list(reader_of_one, int, const unsigned char *, int64_t)
    int64_t read_uvarint(const unsigned char *, int64_t *, int64_t) noexcept
    object read_text(const unsigned char *, int64_t)
    Py_ssize_t slot_of(object, object) except -1
    object new_of(PyObject *)
    void set_slot(object, Py_ssize_t, object) noexcept
    void replace_slot(object, Py_ssize_t, object) noexcept
    PyObject *get_slot(PyObject *, Py_ssize_t) noexcept
    int is_a(PyObject *, PyObject *) noexcept
    void out_open(Out *) noexcept
    void out_close(Out *) noexcept
    int put_integer(Out *, int64_t, int) noexcept
    int put_uvarint(Out *, int64_t) noexcept
    int put_b(Out *, PyObject *) noexcept
    int put_h(Out *, PyObject *) noexcept
    int put_H(Out *, PyObject *) noexcept
    int put_i(Out *, PyObject *) noexcept
    int put_I(Out *, PyObject *) noexcept
    int put_q(Out *, PyObject *) noexcept
    int put_flag(Out *, PyObject *) noexcept
    int put_16s(Out *, PyObject *) noexcept
    int put_text(Out *, PyObject *, int, int) noexcept
    int put_blob(Out *, PyObject *, int, int) noexcept
    int put_records(Out *, PyObject *, int, int, Py_ssize_t) noexcept
    Py_ssize_t put_count(Out *, PyObject *, int, int) noexcept
    PyObject *item_of(PyObject *, Py_ssize_t) noexcept
    int is_integer(PyObject *, int64_t) noexcept
    int is_empty_text(PyObject *) noexcept
    int is_empty_bytes(PyObject *) noexcept
    int is_empty_list(PyObject *) noexcept
    int is_zero_uuid(PyObject *) noexcept
    int is_none(PyObject *) noexcept
    int is_false(PyObject *) noexcept
    int is_true(PyObject *) noexcept

cdef int64_t count_of_tags(
    const unsigned char *data, int64_t *pos, int64_t end, int64_t *budget
) noexcept:
    """How many tags follow, taken from the budget of elements; -1 if there are too many."""
    cdef int64_t count = read_uvarint(data, pos, end)
    if count < 0 or count > TAGS_MAX:
        return -1
    budget[0] -= count
    return -1 if budget[0] < 0 else count


cdef int64_t next_tag(
    const unsigned char *data, int64_t *pos, int64_t end, set seen, int64_t *stop
) except -2:
    """The number of a tag, with its end in `stop`; -1 if it has none, or was seen before."""
    cdef int64_t tag = read_uvarint(data, pos, end)
    cdef int64_t size = read_uvarint(data, pos, end) if tag >= 0 else -1
    if size < 0 or size > end - pos[0] or tag in seen:
        return -1
    seen.add(tag)
    stop[0] = pos[0] + size
    return tag


cdef int skip_tags(
    const unsigned char *data, int64_t *pos, int64_t end, int64_t *budget
) except -2:
    """Read past tags of which none is known; -1 if they are malformed."""
    cdef int64_t index, count = count_of_tags(data, pos, end, budget)
    cdef set seen = set()
    if count < 0:
        return -1
    for index in range(count):
        if next_tag(data, pos, end, seen, pos) < 0:
            return -1
    return 0


ctypedef object (*Read)(object, const unsigned char *, int64_t, int64_t)
ctypedef int (*Write)(PyObject *, Out *) noexcept


cdef class Pair:
    """One message in one version, in the one direction that is compiled."""

    cdef Read read
    cdef Write write
    cdef bint reads
    cdef object make
    cdef object slow

    cdef object _slow(self):
        if self.slow is None:
            self.slow = self.make("decode" if self.reads else "encode_into")
        return self.slow

    def decode(self, buf, Py_ssize_t pos=0):
        cdef Py_buffer view
        cdef object result = None
        if type(buf) is bytes:
            if 0 <= pos <= PyBytes_GET_SIZE(buf):
                result = self.read(
                    buf, <const unsigned char *>PyBytes_AS_STRING(buf), pos, PyBytes_GET_SIZE(buf)
                )
        elif type(buf) is memoryview or type(buf) is bytearray:
            PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
            try:
                if view.itemsize == 1 and 0 <= pos <= view.len:
                    result = self.read(buf, <const unsigned char *>view.buf, pos, view.len)
            finally:
                PyBuffer_Release(&view)
        return self._slow()(buf, pos) if result is None else result

    def encode_into(self, m, out):
        cdef Out writer
        cdef list parts
        cdef Py_ssize_t size
        if type(out) is not bytearray:
            return self._slow()(m, out)
        out_open(&writer)
        try:
            if self.write(<PyObject *>m, &writer) < 0:
                parts = None
            else:
                if writer.parts is NULL:
                    size = PyByteArray_GET_SIZE(out)
                    PyByteArray_Resize(out, size + writer.size)
                    memcpy(PyByteArray_AS_STRING(out) + size, writer.data, writer.size)
                    parts = [out]
                else:
                    parts = <list>writer.parts
                    parts.append(bytearray(writer.data[:writer.size]))
                    out += parts[0]
                    parts[0] = out
        finally:
            out_close(&writer)
        return self._slow()(m, out) if parts is None else parts


cdef int fill(
    object message, tuple classes, tuple slots, PyObject **types, Py_ssize_t *offsets
) except -1:
    """Find the classes by their paths from `message`, and where their attributes are."""
    found = [message]
    for parent, name in classes:
        (kind,) = [field.kind for field in found[parent].schema.fields if field.name == name]
        found.append(kind)
    for index, one in enumerate(found):
        types[index] = <PyObject *>one
    for index, (owner, name) in enumerate(slots):
        offsets[index] = slot_of(found[owner], name)
    _kept.append(found)
    return 0


_kept = []
_bound = {}


def bind(message, Py_ssize_t version, declared, make):
    """The codec of a message if it was compiled, and from the declaration that it has; else None.

    `make` gives the direction in Python of which it is told the name.
    """
    key = message.__name__, version
    known = DECLARED.get(key)
    if known is None or known[1] != declared(message, version):
        return None
    # The tables of the generated functions are filled once, so there is one class of each name.
    if _bound.setdefault(key, message) is not message:
        return None
    return bound(message, version, make)


def bound(message, Py_ssize_t version, make):
    """Likewise of a message of which that is known."""
    key = message.__name__, version
    cdef Pair pair = Pair()
    pair.reads = DECLARED[key][0]
    pair.make = make
    _bind(pair, key, message)
    return pair.decode if pair.reads else pair.encode_into
