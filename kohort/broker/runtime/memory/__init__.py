"""Memory of the process: how garbage is collected, and how what is free goes back to the system.

- No look of the garbage collector takes longer because more lives (`collector`).
- What large requests took goes back once there are no more of them (`trim`).
- What many thousand members took is given back while they go and when they have gone (`keeper`), as
  far as it is the C library's: blocks of more than 512 bytes. Smaller ones are CPython's own, which
  keeps a piece of a megabyte for as long as one object in it lives. Under `PYTHONMALLOC=malloc`,
  which CPython takes from the environment as it starts, the C library has all of it.

Nothing here changes what allocates memory; CPython does not support that once it runs.
"""
