#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pmix.h"

#define LAUNCHER 3

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static void put(const void *data, size_t bytes)
{
	const char *p = data;
	while (bytes > 0) {
		ssize_t n = write(LAUNCHER, p, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			_exit(0); /* the launcher has ended */
		p += n;
		bytes -= (size_t)n;
	}
}

static bool get(void *data, size_t bytes)
{
	char *p = data;
	while (bytes > 0) {
		ssize_t n = read(LAUNCHER, p, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		bytes -= (size_t)n;
	}
	return true;
}

void send_frame(int kind, const void *head, size_t head_bytes, const void *body, size_t bytes)
{
	uint32_t length = (uint32_t)(head_bytes + bytes);
	unsigned char k = (unsigned char)kind;
	if (head_bytes + bytes > FRAME_MAX)
		fail("%zu bytes for one frame", bytes);
	pthread_mutex_lock(&writing);
	put(&length, sizeof length);
	put(&k, 1);
	put(head, head_bytes);
	put(body, bytes);
	pthread_mutex_unlock(&writing);
}

void *receive_frame(int *kind, size_t *bytes)
{
	uint32_t length;
	unsigned char k;
	if (!get(&length, sizeof length) || !get(&k, 1) || length > FRAME_MAX)
		return NULL;
	char *body = malloc((size_t)length + 1);
	if (body == NULL || !get(body, length)) {
		free(body);
		return NULL;
	}
	body[length] = 0;
	*kind = k;
	*bytes = length;
	return body;
}

void fail(const char *format, ...)
{
	char text[512];
	va_list a;
	va_start(a, format);
	vsnprintf(text, sizeof text, format, a);
	va_end(a);
	send_frame(FRAME_ERROR, text, strlen(text), NULL, 0);
	_exit(1);
}
