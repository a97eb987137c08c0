/* Starts a program without an environment by the function that the first argument names. With
 * "loads" it loads a library and does not start its MPI; with "stack" it starts a program with
 * environments of many variables and of long ones, in a thread with the smallest stack. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int spawned(int rc, const pid_t *pid)
{
	int status;
	if (rc != 0 || waitpid(*pid, &status, 0) != *pid)
		return 2;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

#define VARIABLES 4096

static char *large[VARIABLES + 2], preload[1 << 16];
static char **large_line;

static void *starts(void *unused)
{
	pid_t pid = 0;
	(void)unused;
	return (void *)(long)spawned(posix_spawn(&pid, large_line[0], NULL, NULL, large_line, large), &pid);
}

/* spawn_large starts a program with a number of variables and an LD_PRELOAD of a length. */
static int spawn_large(int variables, int length)
{
	pthread_t thread;
	pthread_attr_t small;
	void *rc;
	int n = 0;
	snprintf(preload, sizeof preload, "LD_PRELOAD=%*s", length, "");
	large[n++] = preload;
	while (n < variables)
		large[n++] = "A=1";
	large[n] = NULL;
	if (pthread_attr_init(&small) != 0 || pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN) != 0 || pthread_create(&thread, &small, starts, NULL) != 0 ||
	    pthread_join(thread, &rc) != 0)
		return 6;
	return (int)(long)rc;
}

static int spawn_all(void)
{
	static const int variables[] = {1, 256, 510, 512, 513, 1000, 2000, VARIABLES}, lengths[] = {0, 1000, 3500, 7500, 16000, 60000};
	for (size_t v = 0; v < sizeof variables / sizeof *variables; v++)
		for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
			int rc = spawn_large(variables[v], lengths[l]);
			if (rc != 0)
				return rc;
		}
	return 0;
}

int main(int argc, char **argv)
{
	char *env[] = {NULL};
	const char *how = argc > 2 ? argv[1] : "";
	char **line = argv + 2;
	pid_t pid = 0;
	if (strcmp(how, "loads") == 0)
		return dlopen(line[0], RTLD_NOW | RTLD_GLOBAL) == NULL;
	if (strcmp(how, "stack") == 0) {
		large_line = line;
		return spawn_all();
	}
	if (strcmp(how, "execve") == 0)
		execve(line[0], line, env);
	if (strcmp(how, "execvpe") == 0)
		execvpe(line[0], line, env);
	if (strcmp(how, "execle") == 0)
		execle(line[0], line[0], NULL, env);
	if (strcmp(how, "fexecve") == 0)
		fexecve(open(line[0], O_RDONLY | O_CLOEXEC), line, env);
	if (strcmp(how, "execveat") == 0)
		execveat(AT_FDCWD, line[0], line, env, 0);
	if (strcmp(how, "posix_spawn") == 0)
		return spawned(posix_spawn(&pid, line[0], NULL, NULL, line, env), &pid);
	if (strcmp(how, "posix_spawnp") == 0)
		return spawned(posix_spawnp(&pid, line[0], NULL, NULL, line, env), &pid);
	if (strcmp(how, "vfork") == 0 && (pid = vfork()) == 0) {
		execve(line[0], line, env);
		_exit(4);
	}
	if (pid > 0)
		return spawned(0, &pid);
	clearenv();
	if (strcmp(how, "execv") == 0)
		execv(line[0], line);
	if (strcmp(how, "execvp") == 0)
		execvp(line[0], line);
	if (strcmp(how, "execl") == 0)
		execl(line[0], line[0], NULL);
	if (strcmp(how, "execlp") == 0)
		execlp(line[0], line[0], NULL);
	return 5;
}
