/* Wrappers of the functions of MPI: each enters the gate (gate.h), calls the MPI's function and
 * leaves the gate. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gate.h"
#include "steps.h"

/* Every wrapper passes on 13 words, the number of arguments of MPI_Rget_accumulate, which has
 * the most. The calling conventions of 64-bit Linux pass 32-bit handles, numbers and pointers
 * alike, and a function ignores words beyond its arguments. The same holds for the result, an
 * error code or a handle. */
#define WORDS uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, \
	uintptr_t h, uintptr_t i, uintptr_t j, uintptr_t k, uintptr_t l, uintptr_t m
#define PASSED a, b, c, d, e, f, g, h, i, j, k, l, m

typedef uintptr_t function(WORDS);

/* next returns the next function of this name in the order of symbols, and caches it in *known.
 * If the MPI lacks the function, the process aborts: without this library the program would not
 * have been loaded. */
static function *next(_Atomic(function *) *known, const char *name)
{
	function *f = atomic_load_explicit(known, memory_order_relaxed);
	if (f != NULL)
		return f;
	if (!steps_find(&f, name)) {
		fprintf(stderr, "outrigger: the program calls %s, which its MPI does not export\n", name);
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
