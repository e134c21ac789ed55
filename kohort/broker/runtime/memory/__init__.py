"""The process's memory: garbage collection, and returning free memory to the system.

- Garbage collections do not take longer as more objects live (`collector`).
- Memory of large requests is returned after the last of them (`reclaimer.return_free_memory`).
- Memory of many thousands of members is returned while they leave and after they have left
  (`reclaimer`), as far as the C library manages it: blocks of more than 512 bytes. Smaller ones are
  managed by CPython, which keeps an arena of a megabyte for as long as one object in it lives. With
  `PYTHONMALLOC=malloc`, which CPython reads from the environment when it starts, the C library
  manages all blocks.

Nothing here replaces the memory allocator; CPython does not support that at run time.
"""
