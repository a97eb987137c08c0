/*
 * The MPI library that a process has loaded, for libraries of ours that may be loaded before
 * it, or that it loads itself.
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

/* A loaded file whose name begins so. */
struct mpilib_wanted {
	const char *prefixes[3]; /* ended by NULL */
	char *path;              /* of PATH_MAX bytes */
};

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

/* mpilib_loaded finds the file of an MPI among those of the process; path has PATH_MAX bytes. */
static inline bool mpilib_loaded(char *path)
{
	struct mpilib_wanted w = {{"libmpi.so", "libmpi_abi.so", NULL}, path};
	return dl_iterate_phdr(mpilib_matches, &w) != 0;
}

/* mpilib_open returns a handle of a file that the process has loaded; NULL: it has not. */
static inline void *mpilib_open(const char *prefix)
{
	char path[PATH_MAX];
	struct mpilib_wanted w = {{prefix, NULL}, path};
	return dl_iterate_phdr(mpilib_matches, &w) != 0 ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

/* mpilib_function stores the address of a symbol in *function: C converts between pointers to
 * functions and to objects by their bytes. */
static inline bool mpilib_function(void *library, void *function, const char *name)
{
	void *symbol = library == NULL ? NULL : dlsym(library, name);
	memcpy(function, &symbol, sizeof symbol);
	return symbol != NULL;
}

/* The longest text of MPI_Get_library_version, of all MPIs: MPI_MAX_LIBRARY_VERSION_STRING of MPICH,
 * whose text has the options with which it was configured. Open MPI's has 256 bytes at most. */
#define MPILIB_VERSION_MAX 8192

/* mpilib_version asks an MPI for its name and version; text has MPILIB_VERSION_MAX bytes. */
static inline bool mpilib_version(void *library, char *text)
{
	int length = 0;
	int (*get)(char *text, int *length);
	text[0] = '\0';
	return mpilib_function(library, &get, "PMPI_Get_library_version") && get(text, &length) == 0;
}

/* mpilib_next finds the function that comes after the caller's own of the same name: in the order
 * of symbols, or in an MPI that the program has loaded for itself alone. */
static inline bool mpilib_next(void *function, const char *name)
{
	char path[PATH_MAX];
	if (mpilib_function(RTLD_NEXT, function, name))
		return true;
	return mpilib_loaded(path) && mpilib_function(dlopen(path, RTLD_LAZY | RTLD_NOLOAD), function, name);
}

#endif
