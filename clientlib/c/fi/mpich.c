/*
 * The tags of MPICH 5 over its netmod ofi. MPICH chooses the bits of context and tag when it
 * starts. This provider carries a source and data in addition to the tag, so MPICH takes the bits
 * of its default set of capabilities (MPIDI_OFI_CONTEXT_BITS 20, MPIDI_OFI_SOURCE_BITS 0 and
 * MPIDI_OFI_TAG_BITS 31, as MPIR_CVAR_CH4_OFI_CAPABILITY_SETS_DEBUG=1 prints them), unless a
 * environment variable sets another number. Other versions were not examined.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "layout.h"
#include "mpich.h"
#include "mpilib.h"

/* is_set reports whether the environment has a variable of MPICH with any of its prefixes. */
static bool is_set(const char *variable)
{
	static const char *const prefixes[] = {"MPIR_CVAR_", "MPIR_PARAM_", "MPICH_"};
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
		char name[64];
		snprintf(name, sizeof name, "%s%s", prefixes[i], variable);
		if (getenv(name) != NULL)
			return true;
	}
	return false;
}

/* learn_layout finds the MPICH of this process and returns the layout of its tags, or 0. */
static uint32_t learn_layout(void)
{
	static const char *const files[] = {"libmpi.so", "libmpich.so", "libmpi_abi.so"};
	int major;
	char text[MPILIB_VERSION_MAX];
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		void *library = mpilib_open(files[i]);
		if (library == NULL || !mpilib_version(library, text) || sscanf(text, "MPICH Version: %d.", &major) != 1)
			continue;
		bool usual = !is_set("CH4_OFI_CONTEXT_ID_BITS") && !is_set("CH4_OFI_RANK_BITS") && !is_set("CH4_OFI_TAG_BITS") && !is_set("CH4_OFI_ENABLE_DATA");
		return major == 5 && usual ? OR_TAGS_MPICH : 0;
	}
	return 0;
}

uint32_t mpich_tags(void)
{
	static bool known;
	static uint32_t layout;
	if (!known)
		layout = learn_layout();
	known = true;
	return layout;
}
