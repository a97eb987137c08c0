/*
 * liboutrigger-check.so checks that the MPI of a process has selected Outrigger. The launcher
 * preloads it into the ranks of an MPI job and the programs that they start. An MPI that finds
 * another transport selects it without a message, so that a job would run without its encryption,
 * or as N jobs of one rank.
 *
 * - When the MPI starts (MPI_Init, MPI_Init_thread, and mca_pml_base_select of Open MPI, which every
 *   start calls), the process must be attached to its sidecar by the provider, and Open MPI's pml
 *   must be cm. Otherwise the process ends before its first message, and its error names the
 *   setting that chose the other transport.
 * - A rank that mpirun has started on its own host, as by -host localhost, has no sidecar. It ends,
 *   and its error names the options to remove.
 * - A rank whose mpirun is of another MPI ends with the names of both (starter.c).
 * - A program that mpirun has started as one rank (mpirun -n 1) needs no messages, and runs
 *   without a sidecar. With fewer ranks than the job, and more than one, it ends (world.c).
 * - Open MPI uses its pml for messages and its btl for windows: with a user's list of btls, such as
 *   ^openib, windows could use tcp. The list is set back to the launcher's. If Open MPI has a list
 *   from a file of its installation, the process ends (parameter.c).
 * - MPI_Finalize of Open MPI does not sleep for a second.
 * - MPI_Finalize of Intel MPI does not shut down the connection to process management, which the
 *   script's next MPI program needs (inherited.c).
 * - Hints name some mistakes of scripts (hint.c).
 * - A program that is started with another environment has this library nevertheless, and ends when
 *   it starts its MPI if the environment was cleared (exec.c).
 * - A process that has loaded an MPI notifies the sidecar if the launcher asks for that, because the
 *   launcher does not know which programs a script or a static program runs.
 *
 * The library precedes the MPI in the order of symbols, as tools of MPI's profiling interface do
 * (MPI 4.1, 15.2).
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "layout.h"
#include "mpilib.h"

/* notify sends a line to process management, and waits up to answer_ms for an answer; 0: none is
 * expected. Errors are ignored: if the sidecar does not listen, the ranks report that. The sidecar
 * is that of the pod, or the mpirun's for a process that mpirun has started on its own host. */
static void notify(const char *line, int answer_ms)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *path = getenv(OR_NAME_ENV_SOCKET), *suffix = OR_NAME_PMI_SUFFIX;
	if (path == NULL) {
		path = getenv(OR_NAME_ENV_AGENT);
		suffix = "";
	}
	if (path == NULL || (size_t)snprintf(to.sun_path, sizeof to.sun_path, "%s%s", path, suffix) >= sizeof to.sun_path)
		return;
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return;
	struct pollfd answer = {.fd = s, .events = POLLIN};
	if (connect(s, (struct sockaddr *)&to, sizeof to) == 0 && send(s, line, strlen(line), MSG_NOSIGNAL) > 0 && answer_ms > 0)
		(void)poll(&answer, 1, answer_ms);
	(void)close(s);
}

/* How long a process that is refused waits for its sidecar's answer, so that the job has ended with
 * the process's reason before the process exits. */
#define REFUSED_MS 2000

void check_refuse(const char *text)
{
	char line[2048];
	fprintf(stderr, "outrigger: rank %s: %s\n", check_rank(), text);
	fflush(NULL);
	int n = snprintf(line, sizeof line - 1, "cmd=outrigger_refused rank=%s message=%s", check_rank(), text);
	n = n < (int)sizeof line - 1 ? n : (int)sizeof line - 2;
	for (char *at = line; *at != 0; at++)
		if (*at == '\n')
			*at = ' ';
	line[n] = '\n';
	line[n + 1] = 0;
	notify(line, REFUSED_MS);
	_exit(EXIT_FAILURE);
}

/* Settings that choose an MPI's transport, and the values that the launcher sets
 * (sidecar/internal/mpi); NULL: none. */
static const struct setting {
	const char *name, *value;
	bool openmpi, mpich, intel; /* the MPIs that read it */
} settings[] = {
	{"OMPI_MCA_pml", "cm", true, false, false},
	{"OMPI_MCA_mtl", "ofi", true, false, false},
	{"OMPI_MCA_mtl_ofi_provider_include", "outrigger", true, false, false},
	{"OMPI_MCA_mtl_ofi_provider_exclude", NULL, true, false, false},
	{"OMPI_MCA_opal_common_ofi_provider_include", NULL, true, false, false},
	{"OMPI_MCA_opal_common_ofi_provider_exclude", NULL, true, false, false},
	{"MPIR_CVAR_CH4_NETMOD", "ofi", false, true, true},
	{"I_MPI_FABRICS", "ofi", false, false, true},
	{"I_MPI_OFI_PROVIDER", "outrigger", false, false, true},
	{"FI_PROVIDER", "outrigger", true, true, true},
};
#define SETTINGS (sizeof settings / sizeof *settings)

bool check_how(const char *value)
{
	const char *how = getenv(OR_NAME_ENV_MPI_CHECK);
	return how != NULL && strcmp(how, value) == 0;
}

bool check_wanted(void) { return getenv(OR_NAME_ENV_SOCKET) != NULL && getenv(OR_NAME_ENV_MPI_CHECK) != NULL && !check_how(CHECK_OFF); }

const char *check_rank(void)
{
	static const char *const names[] = {OR_NAME_ENV_RANK, "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (getenv(names[i]) != NULL)
			return getenv(names[i]);
	return "?";
}

/* provider_hidden reports whether none of the folders in FI_PROVIDER_PATH has the provider. A folder
 * may have libfabric's prefix @ or +. */
static bool provider_hidden(void)
{
	char path[PATH_MAX];
	const char *at = getenv("FI_PROVIDER_PATH");
	if (at == NULL)
		return false;
	for (;;) {
		size_t length = strcspn(at, ":");
		size_t sign = length > 0 && (at[0] == '@' || at[0] == '+') ? 1 : 0;
		int n = snprintf(path, sizeof path, "%.*s/liboutrigger-fi.so", (int)(length - sign), at + sign);
		if (n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0)
			return false;
		if (at[length] == 0)
			return true;
		at += length + 1;
	}
}

/* differs reports whether a setting that this process's MPI reads is not the launcher's. */
static bool differs(const struct setting *s)
{
	const char *value = getenv(s->name);
	bool read = mpilib_open("libmpi.so.40") != NULL ? s->openmpi : check_intel() ? s->intel : s->mpich;
	return value != NULL && read && (s->value == NULL || strcmp(value, s->value) != 0);
}

static bool checked; /* the start of the MPI was checked */

/* parameters writes the parameters of Open MPI that choose another transport, and the files that set
 * them. */
static void parameters(char *text, size_t bytes)
{
	static const char *const frameworks[] = {"pml", "mtl", "btl"}, *const ours[] = {"cm", "ofi", "self,ofi"};
	for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++) {
		const char *value, *file;
		size_t used = strlen(text);
		if (check_parameter(frameworks[i], &value, &file) && value != NULL && file != NULL && strcmp(value, ours[i]) != 0)
			snprintf(text + used, bytes - used, "%s%s = %s of %s", used == 0 ? "" : ", ", frameworks[i], value, file);
	}
}

/* refuse ends the process; its error names the settings that differ from the launcher's. */
static void refuse(const char *selected)
{
	char others[1024] = "", text[1536];
	for (size_t i = 0; i < SETTINGS; i++) {
		size_t used = strlen(others);
		if (differs(&settings[i]))
			snprintf(others + used, sizeof others - used, "%s%s=%s", used == 0 ? "" : ", ", settings[i].name, getenv(settings[i].name));
	}
	if (checked) /* before that Open MPI has no parameters, and mca_base_var_find crashes */
		parameters(others, sizeof others);
	if (provider_hidden()) {
		size_t used = strlen(others);
		snprintf(others + used, sizeof others - used, "%sFI_PROVIDER_PATH=%s", used == 0 ? "" : ", ", getenv("FI_PROVIDER_PATH"));
	}
	snprintf(text, sizeof text, "its MPI took another transport: %s; remove %s%s, use an MPI that is built with libfabric, or name the program's MPI with --mpi (docs/mpi.md)", selected,
		others[0] != 0 ? "" : "the option or the parameter file that chooses the transport", others);
	check_refuse(text);
}

/* own_memory notifies the sidecar if the ranks of a pod communicate by MPICH's own shared memory
 * (MPIR_CVAR_NOLOCAL is not set, so that MPICH does not treat each rank as a node). The engine does
 * not see these messages. */
static void own_memory(void)
{
	char text[8192] = ""; /* MPI_MAX_LIBRARY_VERSION_STRING of MPICH */
	int length = 0;
	int (*version)(char *text, int *length);
	const char *ranks = getenv("MPI_LOCALNRANKS"), *none = getenv("MPIR_CVAR_NOLOCAL");
	if (ranks == NULL || atoi(ranks) < 2 || (none != NULL && atoi(none) != 0))
		return;
	if (mpilib_function(mpilib_open("libmpi.so.12"), &version, "PMPI_Get_library_version") && version(text, &length) == 0 && strncmp(text, "MPICH", 5) == 0)
		notify("cmd=outrigger_local\n", 0);
}

static bool attached(void)
{
	bool (*provider)(void);
	return mpilib_function(mpilib_open("liboutrigger-fi.so"), &provider, "outrigger_fi_attached") && provider();
}

/* used reports whether the process has ever been attached. */
static bool used(void)
{
	bool (*provider)(void);
	return mpilib_function(mpilib_open("liboutrigger-fi.so"), &provider, "outrigger_fi_used") && provider();
}

/* Offsets of the names of the framework and of the component in mca_base_component_2_1_0_t
 * (opal/mca/mca.h). They are the same in Open MPI 3 to 5. */
#define FRAMEWORK_AT 40
#define COMPONENT_AT 84
#define COMPONENT_MAX 64

/* pml returns the name of the pml that Open MPI has selected; "": this is another MPI. */
static const char *pml(void)
{
	const char *component;
	if (!mpilib_function(mpilib_open("libmpi.so"), &component, "mca_pml_base_selected_component") || strcmp(component + FRAMEWORK_AT, "pml") != 0)
		return "";
	return component[COMPONENT_AT + COMPONENT_MAX - 1] == 0 ? component + COMPONENT_AT : "";
}

static void check(void)
{
	char selected[256];
	const char *btl;
	checked = true;
	if (!check_wanted())
		return;
	const char *name = pml();
	if (name[0] != 0 && strcmp(name, "cm") != 0) {
		snprintf(selected, sizeof selected, "pml %s instead of cm", name);
		refuse(selected);
	}
	if (!attached())
		refuse("it is not libfabric's provider outrigger");
	if (name[0] != 0 && check_windows_elsewhere(&btl)) {
		snprintf(selected, sizeof selected, "btl %.200s instead of self,ofi, by which its windows go", btl);
		refuse(selected);
	}
	own_memory();
}

/* names reports whether a list in the syntax of MPIs or libfabric has a word: a,word and a:word do. */
static bool names(const char *list, const char *word)
{
	size_t length = strlen(word);
	for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
		if ((at == list || strchr(",:^", at[-1]) != NULL) && (at[length] == 0 || strchr(",:", at[length]) != NULL))
			return true;
	return false;
}

/* on_mpirun_host reports whether an mpirun has started this process as one of several ranks, and
 * not by the daemon of a pod, whose environment names the sidecar's socket. */
static bool on_mpirun_host(void)
{
	return getenv(OR_NAME_ENV_AGENT) != NULL && getenv(OR_NAME_ENV_SOCKET) == NULL && check_world() > 1;
}

/* The error of a process whose environment a wrapper has cleared. */
static const char cleared[] =
	"a wrapper has cleared its environment (env -i, su -, sudo), and each rank would run as a job of its own: start the program without that, or by a wrapper "
	"that keeps the environment (su without -, sudo -E); if each rank is to run it as a job of its own, give it " OR_NAME_ENV_MPI_CHECK "=" CHECK_OFF " (docs/mpi.md)";

/* before_start makes the checks that must precede the start of the MPI: hosts that are not the job's,
 * and settings with which the MPI cannot find the provider, in which case the MPI would end the
 * process with an error that names no setting. */
static void before_start(void)
{
	if (on_mpirun_host())
		check_refuse("mpirun has started it on its own host, where it has no sidecar: the hosts are those of the job; remove -host, -hosts, -hostfile, -machinefile or -launcher fork from the line (docs/mpi.md)");
	if (check_wanted() && check_how(CHECK_CLEARED))
		check_refuse(cleared);
	check_option();
	check_starter();
	check_management();
	if (check_world_of_one()) {
		check_release();
		for (size_t i = 0; i < SETTINGS; i++)
			(void)unsetenv(settings[i].name);
		(void)unsetenv("OMPI_MCA_btl");
		(void)unsetenv("OMPI_MCA_osc");
		(void)unsetenv(OR_NAME_ENV_SOCKET);
	}
	check_pod();
	if (check_wanted() && provider_hidden())
		refuse("its settings leave Outrigger out");
	for (size_t i = 0; check_wanted() && i < SETTINGS; i++) {
		const struct setting *s = &settings[i];
		if (!differs(s))
			continue;
		const char *value = getenv(s->name);
		if (s->value == NULL && strstr(s->name, "_exclude") != NULL && names(value, "outrigger"))
			refuse("its settings leave Outrigger out");
		if (s->value == NULL)
			continue;
		if (value[0] != 0 && names(value, s->value) == (value[0] == '^'))
			refuse("its settings leave Outrigger out");
	}
}

static int after_start(int rc)
{
	if (rc == 0)
		check();
	return rc;
}

int check_missing(const char *name)
{
	fprintf(stderr, "outrigger: the program calls %s, which its MPI does not have\n", name);
	return 1;
}

EXPORT int mca_pml_base_select(bool progress, bool threads);

int mca_pml_base_select(bool progress, bool threads)
{
	int (*next)(bool, bool);
	if (!mpilib_next(&next, "mca_pml_base_select"))
		return check_missing("mca_pml_base_select");
	return after_start(next(progress, threads));
}

#define STARTS(name, parameters, arguments)                                                      \
	EXPORT int name parameters;                                                              \
	int name parameters                                                                      \
	{                                                                                        \
		int(*next) parameters;                                                           \
		if (!mpilib_next(&next, #name))                                                  \
			return check_missing(#name);                                                   \
		before_start();                                                                  \
		return after_start(next arguments);                                              \
	}

/* The function of Open MPI that its MPI_Init calls, for programs that look MPI_Init up by dlsym. */
STARTS(ompi_mpi_init, (int argc, char **argv, int required, int *provided, bool again), (argc, argv, required, provided, again))
STARTS(MPI_Init, (int *argc, char ***argv), (argc, argv))
STARTS(PMPI_Init, (int *argc, char ***argv), (argc, argv))
STARTS(MPI_Init_thread, (int *argc, char ***argv, int required, int *provided), (argc, argv, required, provided))
STARTS(PMPI_Init_thread, (int *argc, char ***argv, int required, int *provided), (argc, argv, required, provided))

/* Open MPI calls sleep(1) when it closes btl ofi, for libfabric's provider sockets. Outrigger does
 * not need that, and each job would take a second longer. */
static _Thread_local unsigned closing;

EXPORT int ompi_mpi_finalize(void);

/* finalizing notifies the sidecar that this rank has entered or left MPI_Finalize, where Open MPI
 * waits for all ranks by PMIx. PMIx reports the ranks of a pod together, and would not name the
 * ranks for which the others wait. */
static void finalizing(int over)
{
	char line[64];
	if (!check_wanted())
		return;
	snprintf(line, sizeof line, "cmd=outrigger_finalize rank=%s over=%d\n", check_rank(), over);
	notify(line, 0);
}

int ompi_mpi_finalize(void)
{
	int (*next)(void);
	if (!mpilib_next(&next, "ompi_mpi_finalize"))
		return check_missing("ompi_mpi_finalize");
	finalizing(0);
	closing++;
	int rc = next();
	closing--;
	finalizing(1);
	return rc;
}

EXPORT unsigned sleep(unsigned seconds);

unsigned sleep(unsigned seconds)
{
	static unsigned (*_Atomic next)(unsigned);
	unsigned (*found)(unsigned) = next;
	if (closing > 0 && seconds == 1 && check_wanted())
		return 0;
	if (found == NULL && mpilib_function(RTLD_NEXT, &found, "sleep"))
		next = found;
	return found == NULL ? seconds : found(seconds);
}

/* loaded notifies the sidecar, once, that this process has loaded an MPI. */
static void loaded(void)
{
	static bool notified;
	char path[PATH_MAX];
	if (notified || !check_how(CHECK_LOADED) || !mpilib_loaded(path))
		return;
	notified = true;
	notify("cmd=outrigger_loaded\n", 0);
}

__attribute__((constructor)) static void begin(void)
{
	if (check_wanted() && getenv("OMPI_MCA_btl") != NULL)
		(void)setenv("OMPI_MCA_btl", "self,ofi", 1);
	/* An Open MPI without memory hooks, such as PyPI's Open MPI 5, ends a rank that uses btl ofi
	 * and has these settings. The provider needs no registered memory, so that they gain nothing. */
	if (check_wanted()) {
		(void)unsetenv("OMPI_MCA_mpi_leave_pinned");
		(void)unsetenv("OMPI_MCA_mpi_leave_pinned_pipeline");
	}
	loaded();
}

/* unseen_start refuses an MPI that has not used the provider and whose start this library has not
 * intercepted, for example because the program looked the function up by dlsym. */
static void unseen_start(void)
{
	char path[PATH_MAX];
	int started = 0;
	int (*initialized)(int *flag);
	if (!check_wanted() || checked || !mpilib_loaded(path) || check_ranks() == 1)
		return;
	if (!mpilib_function(dlopen(path, RTLD_LAZY | RTLD_NOLOAD), &initialized, "PMPI_Initialized") || initialized(&started) != 0 || started == 0)
		return;
	if (!used())
		check_how(CHECK_CLEARED) ? check_refuse(cleared) : refuse("it is not libfabric's provider outrigger");
}

/* end repeats the checks at exit, for an MPI that the program has loaded later. */
__attribute__((destructor)) static void end(void)
{
	loaded();
	unseen_start();
}
