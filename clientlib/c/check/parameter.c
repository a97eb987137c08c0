/*
 * Reads the parameters of Open MPI from Open MPI itself. Environment variables have the values that
 * the launcher, an option or a script sets, but not those of parameter files: the environment
 * overrides the user's file, and openmpi-mca-params-override.conf of the installation overrides the
 * environment.
 */
#define _GNU_SOURCE
#include "check.h"
#include "mpilib.h"

bool check_parameter(const char *framework, const char **value, const char **file)
{
	/* Declared in opal/mca/base/mca_base_var.h of Open MPI 3 to 5. */
	int (*find)(const char *project, const char *framework, const char *component, const char *name);
	int (*get)(int index, const void *storage, int *source, const char **file);
	const char *const *storage = NULL;
	void *library = mpilib_open("libopen-pal.so");
	*value = *file = NULL;
	if (!mpilib_function(library, &find, "mca_base_var_find") || !mpilib_function(library, &get, "mca_base_var_get_value"))
		return false;
	int index = find(NULL, framework, NULL, NULL);
	if (index < 0 || get(index, &storage, NULL, file) != 0 || storage == NULL)
		return false;
	*value = *storage;
	return true;
}

bool check_windows_elsewhere(const char **btl)
{
	const char *file, *at;
	if (!check_parameter("btl", btl, &file))
		return false;
	if (*btl == NULL)
		*btl = "of any kind";
	for (at = *btl; *at != 0; at += *at == ',') {
		size_t length = strcspn(at, ",");
		if ((length != 4 || strncmp(at, "self", 4) != 0) && (length != 3 || strncmp(at, "ofi", 3) != 0))
			return true;
		at += length;
	}
	return false;
}
