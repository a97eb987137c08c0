/*
 * Programs that are started with another environment than the launcher's. `env -i`, `su -` and
 * `LD_PRELOAD= program` remove this library, and with it every check; the first two remove the
 * sidecar's socket, too, and each rank would be a job of its own that ends well. So the functions
 * that start a program put this library back, and the variables that it reads. Nothing else is put
 * back: a program without MPI runs as its caller wants, and one with an MPI is refused when it
 * starts that.
 *
 * Not seen are programs that a static program starts, those that a setuid program starts for
 * another user (the loader ignores LD_PRELOAD there), and those of system() and popen() in a
 * process that has changed its own environment: libc starts them by calls of its own.
 *
 * A child of vfork has its parent's memory: everything here is on the stack.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "layout.h"
#include "mpilib.h"

/* An environment of more variables is passed on as it is: the copy is on the stack, 16 KiB. */
#define VARIABLES_MAX 2048

#define PRELOAD "LD_PRELOAD="
#define SOCKET OR_NAME_ENV_SOCKET "="
#define RANK OR_NAME_ENV_RANK "="
#define CHECK OR_NAME_ENV_MPI_CHECK "="

/* What this process has inherited, as variables; empty: nothing is put back. */
static struct {
	char preload[sizeof PRELOAD + PATH_MAX], *library; /* library is the path in preload */
	char socket[sizeof SOCKET + PATH_MAX];
	char rank[sizeof RANK + 16];
	char check[sizeof CHECK + 16];
} own;

/* The functions that come next. */
static int (*next_execve)(const char *, char *const[], char *const[]);
static int (*next_execvpe)(const char *, char *const[], char *const[]);
static int (*next_fexecve)(int, char *const[], char *const[]);
typedef int spawning(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]);
static spawning *next_posix_spawn, *next_posix_spawnp;

/* find looks the functions up before a child of vfork could have to. */
static void find(void)
{
	(void)mpilib_function(RTLD_NEXT, &next_execve, "execve");
	(void)mpilib_function(RTLD_NEXT, &next_execvpe, "execvpe");
	(void)mpilib_function(RTLD_NEXT, &next_fexecve, "fexecve");
	(void)mpilib_function(RTLD_NEXT, &next_posix_spawn, "posix_spawn");
	(void)mpilib_function(RTLD_NEXT, &next_posix_spawnp, "posix_spawnp");
}

static void __attribute__((constructor)) remember(void)
{
	Dl_info self;
	find();
	if (!check_wanted() || check_ranks() == 1 || dladdr(&own, &self) == 0 || self.dli_fname[0] != '/')
		return;
	int preload = snprintf(own.preload, sizeof own.preload, PRELOAD "%s", self.dli_fname);
	int socket = snprintf(own.socket, sizeof own.socket, SOCKET "%s", getenv(OR_NAME_ENV_SOCKET));
	int rank = snprintf(own.rank, sizeof own.rank, RANK "%s", check_rank());
	int check = snprintf(own.check, sizeof own.check, CHECK "%s", getenv(OR_NAME_ENV_MPI_CHECK));
	if (preload < (int)sizeof own.preload && socket < (int)sizeof own.socket && rank < (int)sizeof own.rank && check < (int)sizeof own.check)
		own.library = own.preload + strlen(PRELOAD);
}

void check_release(void) { own.library = NULL; }

/* value is that of a variable with a name that ends in "="; NULL: this is another variable. */
static const char *value(const char *variable, const char *name)
{
	size_t length = strlen(name);
	return strncmp(variable, name, length) == 0 ? variable + length : NULL;
}

/* What an environment lacks. */
struct lacks {
	size_t variables;
	const char *preload; /* its LD_PRELOAD without this library; NULL: none */
	bool library, socket, rank, check, any;
};

static struct lacks compare(char *const env[])
{
	struct lacks l = {.library = true, .socket = true, .rank = true, .check = true};
	const char *is, *check = NULL;
	if (own.library == NULL)
		return l;
	for (; env != NULL && env[l.variables] != NULL; l.variables++) {
		const char *variable = env[l.variables];
		if ((is = value(variable, PRELOAD)) != NULL) {
			l.preload = is;
			l.library = strstr(is, own.library) == NULL;
		} else if (value(variable, SOCKET) != NULL) {
			l.socket = false;
		} else if (value(variable, RANK) != NULL) {
			l.rank = false;
		} else if ((is = value(variable, CHECK)) != NULL) {
			l.check = false;
			check = is;
		}
	}
	bool off = check != NULL && strcmp(check, CHECK_OFF) == 0;
	l.any = !off && l.variables <= VARIABLES_MAX && (l.library || l.socket || l.check);
	return l;
}

/* preload_size is how long LD_PRELOAD becomes. */
static size_t preload_size(const struct lacks *l)
{
	return strlen(own.preload) + 1 + (l->preload == NULL ? 0 : strlen(l->preload)) + 1;
}

/* complete writes the environment with what it lacks. */
static char *const *complete(char *const env[], const struct lacks *l, char **into, char *preload)
{
	size_t n = 0;
	for (size_t i = 0; i < l->variables; i++) {
		if (l->library && value(env[i], PRELOAD) != NULL)
			continue;
		if (l->socket && value(env[i], CHECK) != NULL)
			continue; /* it says what follows */
		into[n++] = env[i];
	}
	if (l->library) {
		size_t length = strlen(own.preload);
		memcpy(preload, own.preload, length + 1);
		if (l->preload != NULL && l->preload[0] != 0) {
			preload[length] = ':';
			memcpy(preload + length + 1, l->preload, strlen(l->preload) + 1);
		}
		into[n++] = preload;
	}
	if (l->socket)
		into[n++] = own.socket;
	if (l->socket && l->rank)
		into[n++] = own.rank;
	if (l->socket)
		into[n++] = (char *)CHECK CHECK_CLEARED;
	else if (l->check)
		into[n++] = own.check;
	into[n] = NULL;
	return into;
}

/* Variables that are added at most, and the end of the list. */
#define ADDED 5

/* COMPLETED is an environment with what it lacks, in the frame of the calling function. */
#define COMPLETED(env, lacks)                                                                                       \
	((lacks).any ? complete(env, &(lacks), alloca(((lacks).variables + ADDED) * sizeof(char *)), alloca(preload_size(&(lacks)))) : (env))

EXPORT int execve(const char *path, char *const argv[], char *const env[])
{
	struct lacks l = compare(env);
	if (next_execve == NULL)
		find();
	return next_execve(path, argv, COMPLETED(env, l));
}

EXPORT int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

EXPORT int execvpe(const char *file, char *const argv[], char *const env[])
{
	struct lacks l = compare(env);
	if (next_execvpe == NULL)
		find();
	return next_execvpe(file, argv, COMPLETED(env, l));
}

EXPORT int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

EXPORT int fexecve(int fd, char *const argv[], char *const env[])
{
	struct lacks l = compare(env);
	if (next_fexecve == NULL)
		find();
	return next_fexecve(fd, argv, COMPLETED(env, l));
}

/* count returns how many arguments a list has, without its end; INT_MAX and more are as many. */
static int count(va_list list)
{
	int n = 0;
	while (n < INT_MAX - 2 && va_arg(list, char *) != NULL)
		n++;
	return n;
}

/* collect writes a list of arguments, and its end. */
static void collect(char **argv, const char *first, int n, va_list list)
{
	argv[0] = (char *)first;
	for (int i = 1; i <= n + 1; i++)
		argv[i] = va_arg(list, char *);
}

/* ARGUMENTS are those of a function whose list begins with arg. */
#define ARGUMENTS(argv, list, arg)                                                               \
	va_list list;                                                                            \
	va_start(list, arg);                                                                     \
	int n = count(list);                                                                      \
	va_end(list);                                                                            \
	char **argv = alloca(((size_t)n + 2) * sizeof *argv);                                    \
	va_start(list, arg);                                                                     \
	collect(argv, arg, n, list)

EXPORT int execl(const char *path, const char *arg, ...)
{
	ARGUMENTS(argv, list, arg);
	va_end(list);
	return execve(path, argv, environ);
}

EXPORT int execlp(const char *file, const char *arg, ...)
{
	ARGUMENTS(argv, list, arg);
	va_end(list);
	return execvpe(file, argv, environ);
}

EXPORT int execle(const char *path, const char *arg, ...)
{
	ARGUMENTS(argv, list, arg);
	char *const *env = va_arg(list, char *const *);
	va_end(list);
	return execve(path, argv, env);
}

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const argv[],
	char *const env[])
{
	struct lacks l = compare(env);
	if (next_posix_spawn == NULL)
		find();
	return next_posix_spawn(pid, path, actions, attributes, argv, COMPLETED(env, l));
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const argv[],
	char *const env[])
{
	struct lacks l = compare(env);
	if (next_posix_spawnp == NULL)
		find();
	return next_posix_spawnp(pid, file, actions, attributes, argv, COMPLETED(env, l));
}
