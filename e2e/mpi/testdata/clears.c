/* Starts a program without an environment by the function that its first argument names, or, with
 * "loads", loads an MPI library and does not start it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int spawned(int rc, pid_t pid)
{
	int status;
	if (rc != 0 || waitpid(pid, &status, 0) != pid)
		return 2;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

int main(int argc, char **argv)
{
	char *env[] = {NULL};
	const char *how = argc > 2 ? argv[1] : "";
	char **line = argv + 2;
	pid_t pid = 0;
	if (strcmp(how, "loads") == 0)
		return dlopen(line[0], RTLD_NOW | RTLD_GLOBAL) == NULL;
	if (strcmp(how, "execve") == 0)
		execve(line[0], line, env);
	if (strcmp(how, "execvpe") == 0)
		execvpe(line[0], line, env);
	if (strcmp(how, "execle") == 0)
		execle(line[0], line[0], NULL, env);
	if (strcmp(how, "fexecve") == 0)
		fexecve(open(line[0], O_RDONLY | O_CLOEXEC), line, env);
	if (strcmp(how, "posix_spawn") == 0)
		return spawned(posix_spawn(&pid, line[0], NULL, NULL, line, env), pid);
	if (strcmp(how, "posix_spawnp") == 0)
		return spawned(posix_spawnp(&pid, line[0], NULL, NULL, line, env), pid);
	if (strcmp(how, "vfork") == 0 && (pid = vfork()) == 0) {
		execve(line[0], line, env);
		_exit(4);
	}
	if (pid > 0)
		return spawned(0, pid);
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
