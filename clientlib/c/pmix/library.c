#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "layout.h"
#include "pmix.h"

struct library pmix;

/* open_library loads libpmix. Loading the program's Open MPI first loads the libpmix that this
 * Open MPI uses, which dlopen then finds by its name. The paths are those of distributions. */
static void *open_library(void)
{
	static const char *const names[] = {
		"libpmix.so.2", "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2", "/usr/lib/aarch64-linux-gnu/pmix2/lib/libpmix.so.2",
		"/usr/lib64/pmix/lib/libpmix.so.2",
	};
	const char *mpi = getenv(OR_NAME_ENV_LIB_MPI);
	(void)dlopen(mpi != NULL ? mpi : "libmpi.so.40", RTLD_NOW | RTLD_LOCAL); /* failure is not an error */
	void *handle = NULL;
	for (size_t i = 0; handle == NULL && i < sizeof names / sizeof *names; i++)
		handle = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
	return handle;
}

const char *load_library(void)
{
	static const struct {
		const char *name;
		void *to;
	} functions[] = {
		{"PMIx_Error_string", &pmix.error_string}, {"PMIx_Info_load", &pmix.info_load}, {"PMIx_generate_regex", &pmix.generate_regex},
		{"PMIx_generate_ppn", &pmix.generate_ppn}, {"PMIx_server_init", &pmix.server_init},
		{"PMIx_server_register_nspace", &pmix.register_nspace}, {"PMIx_server_register_client", &pmix.register_client},
		{"PMIx_server_setup_local_support", &pmix.setup_local_support}, {"PMIx_server_setup_fork", &pmix.setup_fork},
		{"PMIx_Value_destruct", &pmix.value_destruct},
	};
	static char why[512];
	void *handle = open_library();
	if (handle == NULL) {
		snprintf(why, sizeof why, "libpmix.so.2 cannot be loaded: %s", dlerror());
		return why;
	}
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *f = dlsym(handle, functions[i].name);
		if (f == NULL) {
			snprintf(why, sizeof why, "libpmix has no %s: 4.2 or newer is needed", functions[i].name);
			return why;
		}
		*(void **)functions[i].to = f;
	}
	return NULL;
}
