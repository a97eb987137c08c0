/* What is before each call of MPI: the gate. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gate.h"
#include "steps.h"

/* As many words as the longest of them has, MPI_Rget_accumulate, all of which are passed on:
 * whether a function has as many, and whether they are handles of 32 bits, numbers or
 * pointers, is the same to how they are passed on 64-bit Linux, and what there is beyond is
 * nobody's. So is what it returns, a code or a handle. */
#define WORDS uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, \
	uintptr_t h, uintptr_t i, uintptr_t j, uintptr_t k, uintptr_t l, uintptr_t m
#define PASSED a, b, c, d, e, f, g, h, i, j, k, l, m

typedef uintptr_t function(WORDS);

/* next finds who comes next in *known, and then knows it. A function that the MPI has not
 * would not have been linked without this library. */
static function *next(_Atomic(function *) *known, const char *name)
{
	function *f = atomic_load_explicit(known, memory_order_relaxed);
	if (f != NULL)
		return f;
	if (!steps_find(&f, name)) {
		fprintf(stderr, "outrigger: the program calls %s, which its MPI does not have\n", name);
		abort();
	}
	atomic_store_explicit(known, f, memory_order_relaxed);
	return f;
}

#define BEFORE(name)                                             \
	EXPORT function name;                                    \
	uintptr_t name(WORDS)                                    \
	{                                                        \
		static _Atomic(function *) known;                \
		function *passed_to = next(&known, #name);       \
		gate_enter();                                    \
		uintptr_t returned = passed_to(PASSED);          \
		gate_leave();                                    \
		return returned;                                 \
	}

#define CALL(name) BEFORE(MPI_##name) BEFORE(PMPI_##name)
#include "calls.h"
