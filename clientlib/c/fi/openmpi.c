/*
 * Corrects two defects of Open MPI's pml cm and mtl ofi in a process that has such an Open MPI.
 * mpirun would choose pml ob1, which has neither defect; Outrigger needs cm, and therefore has to
 * correct them.
 *
 * Before 4.1.6 ompi_mtl_datatype_pack (ompi/mca/mtl/base/mtl_base_datatype.h) sends contiguous
 * data from the beginning of the buffer, and not from the true lower bound of its type
 * (MPI 4.1, 5.1.8). Blocking and immediate sends add the bound themselves; persistent ones do
 * not: MPI_Send_init, MPI_Ssend_init, MPI_Rsend_init, and MPI_Alltoallw, which uses them. All of
 * them call pml_isend_init of the table mca_pml. The provider replaces that entry by a function
 * of its own, which passes an equal type with a true lower bound of 0 and an address to which the
 * bound was added. A version without the defect sends the same bytes for both.
 *
 * All versions of 3 and 4: if MPI_Mprobe or MPI_Improbe has found a message of a synchronous
 * send, MPI_Mrecv and MPI_Imrecv never acknowledge it (ompi_mtl_ofi_mrecv_callback), so that its
 * sender waits for ever. The provider sends the acknowledgement when it receives the message.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"
#include "mpilib.h"
#include "openmpi.h"
#include "provider.h"

struct datatype;
struct communicator;
struct request;

typedef int isend_init_function(const void *buf, size_t count, struct datatype *type, int to, int tag, int mode,
				struct communicator *comm, struct request **request);

/* The index of pml_isend_init in mca_pml_base_module_1_0_1_t (ompi/mca/pml/pml.h), which is the
 * same from 3.0.0 to 4.1.8. */
#define ISEND_INIT 9

/* The functions of the MPI; next is the replaced entry. */
static struct {
	isend_init_function *next;
	int (*true_extent)(struct datatype *type, ptrdiff_t *lower, ptrdiff_t *extent);
	int (*hindexed)(int blocks, const int *lengths, const ptrdiff_t *displacements, struct datatype *of, struct datatype **type);
	int (*commit)(struct datatype **type);
	int (*release)(struct datatype **type);
} mpi;

/* Bits of mtl ofi's tags (ompi/mca/mtl/ofi/mtl_ofi_types.h): the sender waits for an
 * acknowledgement; this message is one. */
static uint64_t synchronous, acknowledges;

/* The layout of the tags, for outrigger_tags. */
static uint32_t layout;

/* isend_init replaces pml_isend_init. */
static int isend_init(const void *buf, size_t count, struct datatype *type, int to, int tag, int mode, struct communicator *comm, struct request **request)
{
	ptrdiff_t lower, extent, back;
	struct datatype *moved;
	int one = 1;
	if (count == 0 || mpi.true_extent(type, &lower, &extent) != 0 || lower == 0)
		return mpi.next(buf, count, type, to, tag, mode, comm, request);
	back = -lower;
	int rc = mpi.hindexed(1, &one, &back, type, &moved);
	if (rc != 0)
		return rc;
	rc = mpi.commit(&moved);
	if (rc == 0)
		rc = mpi.next((const void *)((uintptr_t)buf + (uintptr_t)lower), count, moved, to, tag, mode, comm, request);
	(void)mpi.release(&moved); /* the request has a reference to it */
	return rc;
}

struct version {
	int major, minor, release;
};

static bool version_of(void *library, struct version *v)
{
	char text[MPILIB_VERSION_MAX]; /* the library may belong to another MPI */
	return mpilib_version(library, text) && sscanf(text, "Open MPI v%d.%d.%d", &v->major, &v->minor, &v->release) == 3;
}

static bool before(const struct version *v, int major, int minor, int release)
{
	if (v->major != major)
		return v->major < major;
	return v->minor != minor ? v->minor < minor : v->release < release;
}

/* replace_isend_init replaces the MPI's pml_isend_init by isend_init. false: this build of the MPI does
 * not have the symbols that this needs. */
static bool replace_isend_init(void *library)
{
	void *table = dlsym(library, "mca_pml");
	if (table == NULL || !mpilib_function(library, &mpi.true_extent, "PMPI_Type_get_true_extent") || !mpilib_function(library, &mpi.hindexed, "PMPI_Type_create_hindexed") ||
	    !mpilib_function(library, &mpi.commit, "PMPI_Type_commit") || !mpilib_function(library, &mpi.release, "PMPI_Type_free"))
		return false;
	isend_init_function *own = isend_init, **slot = (isend_init_function **)((char *)table + ISEND_INIT * sizeof own);
	if (*slot == NULL || *slot == own)
		return *slot != NULL;
	memcpy(&mpi.next, slot, sizeof mpi.next);
	memcpy(slot, &own, sizeof own);
	return true;
}

/* tag_bits sets the bits of the modes auto, ofi_tag_full and ofi_tag_1, or those of ofi_tag_2, which
 * a user may choose. mpirun passes its option as this variable. */
static void tag_bits(void)
{
	const char *mode = getenv("OMPI_MCA_mtl_ofi_tag_mode");
	bool second = mode != NULL && (strcmp(mode, "ofi_tag_2") == 0 || strcmp(mode, "3") == 0);
	synchronous = second ? UINT64_C(1) << 20 : UINT64_C(1) << 32;
	acknowledges = synchronous << 1;
}

/* learn_layout sets the layout of the tags in the default mode. Versions that were not examined may
 * have another layout. */
static void learn_layout(const struct version *v)
{
	const char *mode = getenv("OMPI_MCA_mtl_ofi_tag_mode");
	bool usual = mode == NULL || strcmp(mode, "auto") == 0 || strcmp(mode, "ofi_tag_full") == 0;
	if (usual && ((v->major == 4 && v->minor == 1) || v->major == 5))
		layout = OR_TAGS_OPEN_MPI;
}

uint32_t openmpi_tags(void) { return layout; }

bool openmpi_correct(void)
{
	static bool done;
	struct version v;
	void *library = done ? NULL : mpilib_open("libmpi.so");
	if (library == NULL)
		return true;
	if (!version_of(library, &v)) {
		done = true; /* another MPI */
		return true;
	}
	learn_layout(&v);
	if (v.major > 4) {
		done = true; /* Open MPI 5 has neither defect */
		return true;
	}
	tag_bits();
	done = !before(&v, 4, 1, 6) || replace_isend_init(library);
	if (!done)
		fprintf(stderr,
			"outrigger: Open MPI %d.%d.%d sends wrong data by MPI_Send_init and MPI_Alltoallw over pml cm, and this build of it cannot be corrected while it runs: use Open MPI 4.1.6 or newer\n",
			v.major, v.minor, v.release);
	return done;
}

/* The user's choice whether Open MPI yields between its polls. mpirun chooses it itself if a node has
 * more ranks than processors. */
#define YIELDS "OMPI_MCA_mpi_yield_when_idle"

/* make_yield has Open MPI yield between its polls, unless the user has chosen otherwise. */
static bool make_yield(void)
{
	const char *chosen = getenv(YIELDS);
	bool (*set)(bool yield);
	if (!mpilib_function(mpilib_open("libopen-pal.so"), &set, "opal_progress_set_yield_when_idle"))
		return false;
	if (!set(true) && chosen != NULL) { /* it did not yield, by the user's choice */
		(void)set(false);
		return false;
	}
	return true;
}

bool openmpi_yields(void)
{
	static bool asked, yields;
	if (!asked)
		yields = make_yield();
	asked = true;
	return yields;
}

bool openmpi_acknowledges(uint64_t tag, uint64_t *answer)
{
	*answer = (tag & ~synchronous) | acknowledges;
	return synchronous != 0 && (tag & synchronous) != 0;
}
