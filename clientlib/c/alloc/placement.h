/*
 * Large allocations of a program come from the part of its rank's arena that the
 * provider has lent, as long as it has room, and otherwise from libc. The address
 * of an allocation tells which of them owns it.
 */
#ifndef OUTRIGGER_PLACEMENT_H
#define OUTRIGGER_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>

/* A piece that shrinks below this size, in bytes, moves to libc if no more allocations
 * come from the arena, because a piece uses whole pages. */
#define ARENA_LARGE 65536u

/* arena_extend has the sidecar allocate the first bytes of the memory, and returns how
 * many are allocated: no others may be accessed. It is called within malloc and must not
 * call it. */
typedef size_t (*arena_extend)(void *arg, size_t bytes);

/* outrigger_alloc_adopt_pieces lends memory of the arena for large allocations. The
 * provider finds it by its name if the library is loaded. memory must be aligned to a
 * page, zero, and mapped with MAP_SHARED until the process ends. extend NULL: all of it is
 * allocated. memory NULL: no more allocations come from the arena, and existing pieces
 * stay. It returns false if the memory is not used. */
bool outrigger_alloc_adopt_pieces(void *memory, size_t bytes, arena_extend extend, void *arg);

/* wants_arena reports whether allocations of this size come from the arena. */
bool wants_arena(size_t bytes);

/* arena_alloc allocates a piece, zeroed if asked for; NULL: the arena has no room. */
void *arena_alloc(size_t bytes, size_t align, bool zeroed);

/* in_arena reports whether p is an address of the lent memory. */
bool in_arena(const void *p);

/* arena_size returns the size of a piece, arena_free frees it, and arena_resize changes its size
 * without moving it; false: that is not possible. The process aborts if no piece starts at
 * the address given to arena_size or arena_free. */
size_t arena_size(const void *p);
void arena_free(const void *p);
bool arena_resize(const void *p, size_t bytes);

#endif
