/*
 * Finds the MPI library that a process has loaded, and its functions. The preloaded libraries of
 * Outrigger (alloc, steps, check) and the provider use it; they may be loaded before the MPI or
 * by it. The Go client has no such file.
 */
#ifndef OUTRIGGER_MPILIB_H
#define OUTRIGGER_MPILIB_H

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Which loaded file mpilib_matches looks for, by the first part of its name. */
struct mpilib_wanted {
	const char *prefixes[3]; /* ended by NULL */
	char *path;              /* buffer of PATH_MAX bytes */
};

/* mpilib_matches is called for each loaded file. It stores the path and returns nonzero if the
 * name begins with one of the prefixes. */
static inline int mpilib_matches(struct dl_phdr_info *object, size_t bytes, void *arg)
{
	(void)bytes;
	const struct mpilib_wanted *w = (const struct mpilib_wanted *)arg;
	const char *slash = strrchr(object->dlpi_name, '/'), *name = slash == NULL ? object->dlpi_name : slash + 1;
	for (size_t i = 0; w->prefixes[i] != NULL; i++)
		if (strncmp(name, w->prefixes[i], strlen(w->prefixes[i])) == 0)
			return snprintf(w->path, PATH_MAX, "%s", object->dlpi_name) < PATH_MAX;
	return 0;
}

/* mpilib_loaded reports whether an MPI is loaded, and sets path, of PATH_MAX bytes, to its file. */
static inline bool mpilib_loaded(char *path)
{
	struct mpilib_wanted w = {{"libmpi.so", "libmpi_abi.so", NULL}, path};
	return dl_iterate_phdr(mpilib_matches, &w) != 0;
}

/* mpilib_open returns a handle of a file that the process has loaded, or NULL if there is none. */
static inline void *mpilib_open(const char *prefix)
{
	char path[PATH_MAX];
	struct mpilib_wanted w = {{prefix, NULL}, path};
	return dl_iterate_phdr(mpilib_matches, &w) != 0 ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

/* mpilib_function stores the address of a symbol in *function. It copies the bytes, because C has
 * no conversion between pointers to functions and to objects. */
static inline bool mpilib_function(void *library, void *function, const char *name)
{
	void *symbol = library == NULL ? NULL : dlsym(library, name);
	memcpy(function, &symbol, sizeof symbol);
	return symbol != NULL;
}

/* The longest text of MPI_Get_library_version of any MPI: MPI_MAX_LIBRARY_VERSION_STRING of MPICH,
 * whose text lists the options of configure. The text of Open MPI has at most 256 bytes. */
#define MPILIB_VERSION_MAX 8192

/* mpilib_version sets text, of MPILIB_VERSION_MAX bytes, to the name and version of an MPI. */
static inline bool mpilib_version(void *library, char *text)
{
	int length = 0;
	int (*get)(char *text, int *length);
	text[0] = '\0';
	return mpilib_function(library, &get, "PMPI_Get_library_version") && get(text, &length) == 0;
}

/* mpilib_next finds the function of this name that the caller's own function of the same name
 * hides: the next one in the order of symbols, or the one of an MPI that was loaded with
 * RTLD_LOCAL. */
static inline bool mpilib_next(void *function, const char *name)
{
	char path[PATH_MAX];
	if (mpilib_function(RTLD_NEXT, function, name))
		return true;
	return mpilib_loaded(path) && mpilib_function(dlopen(path, RTLD_LAZY | RTLD_NOLOAD), function, name);
}

#endif
