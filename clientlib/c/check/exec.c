/*
 * Keeps this library in programs that are started with a changed environment. `env -i`, `su -` and
 * `LD_PRELOAD= program` remove this library, and with it every check. The first two remove the
 * sidecar's socket, too: each rank would be a job of its own, and succeed. So the functions that
 * start a program add this library to the environment, and the variables that it reads. They add
 * nothing else: a program without MPI runs as its caller wants, and one with an MPI is refused when
 * it starts the MPI.
 *
 * Not covered are programs that a static program starts, those that a setuid program starts for
 * another user (the loader ignores LD_PRELOAD there), those of system() and popen() in a process
 * that has changed its own environment (libc starts them by internal calls), those that are started
 * by raw system calls (by Go programs and some container launchers) or by pidfd_spawn, and those
 * with an environment that is too large for the copy below.
 *
 * A child of vfork shares its parent's memory: all data that is written here is on the stack.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "layout.h"
#include "mpilib.h"

/* An environment with more variables, or whose copy is larger, is passed on unchanged: the copy is on
 * the stack, which may be the smallest stack of a thread, 16 KiB. The copy consists of the pointers
 * to the variables and the text of those that become longer. */
#define VARIABLES_MAX 512
#define COPY_MAX ((size_t)2 * PATH_MAX)

#define PRELOAD "LD_PRELOAD="
/* A program that was built with AddressSanitizer refuses to start if a library precedes its runtime
 * in the order of loading, unless this option is set. The launcher sets it, too
 * (sidecar/internal/mpi/wishes.go). */
#define SANITIZER "ASAN_OPTIONS="
#define SANITIZER_ALLOWS "verify_asan_link_order=0"
#define SOCKET OR_NAME_ENV_SOCKET "="
#define RANK OR_NAME_ENV_RANK "="
#define CHECK OR_NAME_ENV_MPI_CHECK "="

/* The variables that this process has inherited; library NULL: nothing is added. */
static struct {
	char preload[sizeof PRELOAD + PATH_MAX], *library; /* library is the path in preload */
	char socket[sizeof SOCKET + PATH_MAX];
	char rank[sizeof RANK + 16];
	char check[sizeof CHECK + 16];
} own;

/* The next functions of these names in the order of symbols. */
static int (*next_execve)(const char *, char *const[], char *const[]);
static int (*next_execvpe)(const char *, char *const[], char *const[]);
static int (*next_fexecve)(int, char *const[], char *const[]);
static int (*next_execveat)(int, const char *, char *const[], char *const[], int); /* NULL: glibc before 2.34 */
typedef int spawning(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]);
static spawning *next_posix_spawn, *next_posix_spawnp;

/* find looks the functions up at the start, because a child of vfork must not. */
static void find(void)
{
	(void)mpilib_function(RTLD_NEXT, &next_execve, "execve");
	(void)mpilib_function(RTLD_NEXT, &next_execvpe, "execvpe");
	(void)mpilib_function(RTLD_NEXT, &next_fexecve, "fexecve");
	(void)mpilib_function(RTLD_NEXT, &next_execveat, "execveat");
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

/* value returns the value of a variable, if its name is name, which ends in "="; otherwise NULL. */
static const char *value(const char *variable, const char *name)
{
	size_t length = strlen(name);
	return strncmp(variable, name, length) == 0 ? variable + length : NULL;
}

/* lacks describes what an environment lacks, and the size of its completed copy. */
struct lacks {
	size_t variables;
	const char *preload;   /* its LD_PRELOAD without this library; NULL: none */
	const char *sanitizer; /* its ASAN_OPTIONS; NULL: none */
	bool library, socket, rank, check, any;
	size_t pointers, text; /* sizes in bytes */
};

/* The most variables that are added, and the end of the list. */
#define ADDED 6

/* joined returns the size of a variable to which the environment's value is joined; NULL: none. */
static size_t joined(const char *variable, const char *own_value)
{
	return strlen(variable) + 1 + (own_value == NULL ? 0 : strlen(own_value)) + 1;
}

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
		} else if ((is = value(variable, SANITIZER)) != NULL) {
			l.sanitizer = is;
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
	l.pointers = (l.variables + ADDED) * sizeof(char *);
	l.text = l.library ? joined(own.preload, l.preload) + joined(SANITIZER SANITIZER_ALLOWS, l.sanitizer) : 0;
	l.any = !off && (l.library || l.socket || l.check) && l.variables <= VARIABLES_MAX && l.pointers + l.text <= COPY_MAX;
	return l;
}

/* replaced reports whether the copy of an environment has another value of a variable, or none. */
static bool replaced(const char *variable, const struct lacks *l)
{
	if (l->library && (value(variable, PRELOAD) != NULL || value(variable, SANITIZER) != NULL))
		return true;
	return l->socket && value(variable, CHECK) != NULL; /* complete writes CHECK_CLEARED instead */
}

/* join writes before, the environment's value and after, which may be empty, with a colon between
 * values, and returns the end of the text. It does not use printf, which a child of a program with
 * threads must not call. */
static char *join(char *text, const char *before, const char *own_value, const char *after)
{
	bool some = own_value != NULL && own_value[0] != 0;
	text = stpcpy(text, before);
	if (some && after[0] == 0)
		*text++ = ':';
	if (some)
		text = stpcpy(text, own_value);
	if (some && after[0] != 0)
		*text++ = ':';
	return stpcpy(text, after);
}

/* complete writes the environment and adds the variables that it lacks. */
static char *const *complete(char *const env[], const struct lacks *l, char **into, char *text)
{
	size_t n = 0;
	for (size_t i = 0; i < l->variables; i++)
		if (!replaced(env[i], l))
			into[n++] = env[i];
	if (l->library) {
		into[n++] = text;
		text = join(text, own.preload, l->preload, "") + 1;
		into[n++] = text; /* if an option has several values, the last one holds */
		(void)join(text, SANITIZER, l->sanitizer, SANITIZER_ALLOWS);
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

/* COMPLETED sets whole to env with the variables that it lacks, in the frame of the calling function.
 * It is a macro because alloca must not be called among a function's arguments. */
#define COMPLETED(whole, env)                                                                    \
	struct lacks l = compare(env);                                                           \
	char **into = l.any ? alloca(l.pointers) : NULL;                                         \
	char *text = l.any ? alloca(l.text) : NULL;                                              \
	char *const *whole = l.any ? complete(env, &l, into, text) : env

EXPORT int execve(const char *path, char *const argv[], char *const env[])
{
	COMPLETED(whole, env);
	if (next_execve == NULL)
		find();
	return next_execve(path, argv, whole);
}

EXPORT int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

EXPORT int execvpe(const char *file, char *const argv[], char *const env[])
{
	COMPLETED(whole, env);
	if (next_execvpe == NULL)
		find();
	return next_execvpe(file, argv, whole);
}

EXPORT int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

EXPORT int fexecve(int fd, char *const argv[], char *const env[])
{
	COMPLETED(whole, env);
	if (next_fexecve == NULL)
		find();
	return next_fexecve(fd, argv, whole);
}

EXPORT int execveat(int dir, const char *path, char *const argv[], char *const env[], int flags)
{
	COMPLETED(whole, env);
	if (next_execveat == NULL)
		find();
	if (next_execveat == NULL)
		return (int)syscall(SYS_execveat, dir, path, argv, whole, flags);
	return next_execveat(dir, path, argv, whole, flags);
}

/* count returns the number of arguments of a list without its end, at most INT_MAX. */
static int count(va_list list)
{
	int n = 0;
	while (n < INT_MAX - 2 && va_arg(list, char *) != NULL)
		n++;
	return n;
}

/* collect writes a list of arguments and its end to argv. */
static void collect(char **argv, const char *first, int n, va_list list)
{
	argv[0] = (char *)first;
	for (int i = 1; i <= n + 1; i++)
		argv[i] = va_arg(list, char *);
}

/* ARGUMENTS sets argv to the arguments of a variadic function, of which arg is the first. */
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
	COMPLETED(whole, env);
	if (next_posix_spawn == NULL)
		find();
	return next_posix_spawn(pid, path, actions, attributes, argv, whole);
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const argv[],
	char *const env[])
{
	COMPLETED(whole, env);
	if (next_posix_spawnp == NULL)
		find();
	return next_posix_spawnp(pid, file, actions, attributes, argv, whole);
}
