/*
 * Where large allocations of a program go: into the part of its rank's arena that
 * the provider has lent (adopt), as long as there is room, and else to libc. By its
 * address everybody knows whose a piece is.
 */
#ifndef OUTRIGGER_PLACE_H
#define OUTRIGGER_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/* A piece that becomes smaller than that goes back to libc when nothing is placed
 * any more: a piece is whole pages. */
#define PLACE_LARGE 65536u

/* place_extend has the first bytes of the memory allocated, and answers how many of them
 * are: no others may be touched. It is called within malloc, and does not call it. */
typedef size_t (*place_extend)(void *arg, size_t bytes);

/* The provider finds this by its name, if the program has the library loaded.
 * memory starts at a page, is zero, is mapped by MAP_SHARED and stays; NULL ends
 * the placing, not the pieces. extend NULL: all of it is allocated. false: it was not
 * wanted. */
bool outrigger_alloc_adopt_pieces(void *memory, size_t bytes, place_extend extend, void *arg);

bool places(size_t bytes); /* an allocation of this size */

/* place gives a piece, zeroed if asked for; NULL: there is no room. */
void *place(size_t bytes, size_t align, bool zeroed);

bool placed(const void *p); /* it is an address of lent memory */

/* Of a piece: its size, its end, its size changed where it is. That no piece
 * starts there ends the program. */
size_t placed_size(const void *p);
void displace(const void *p);
bool resize(const void *p, size_t bytes);

#endif
