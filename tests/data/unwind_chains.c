/* Chains that are known: a mode each, all of which end in spin(), which calls leaf() for ever. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define APART __attribute__((noipa))

volatile unsigned long sink;

APART void leaf(unsigned long times)
{
	for (unsigned long i = 0; i < times; i++)
		sink += i;
}

APART int spin(void)
{
	puts("ready");
	fflush(stdout);
	for (;;) {
		leaf(30);
		leaf(1);
	}
}

APART int inner(int x) { return spin() + x; }
APART int middle(int x, char *text) { return inner(x + 1) + (int)strlen(text); }
APART int outer(int x)
{
	char text[300];
	snprintf(text, sizeof text, "%d", x);
	return middle(x, text) + text[1];
}

APART int deep(int depth)
{
	int result = depth ? deep(depth - 1) : inner(3);
	sink += result;
	return result;
}

APART int with_alloca(int bytes)
{
	char *memory = alloca(bytes);
	memset(memory, 1, bytes);
	return inner(memory[3]) + memory[bytes - 1];
}

APART int realigned(int x)
{
	_Alignas(128) char text[256];
	memset(text, x, sizeof text);
	return inner(text[7]) + text[200];
}

APART int realigned_alloca(int x)
{
	_Alignas(64) char text[64];
	char *memory = alloca(x);
	memset(text, x, sizeof text);
	memset(memory, x, x);
	return with_alloca(text[7] + 100) + text[20] + memory[x - 1];
}

void on_signal(int number) { sink += spin() + number; }

APART int busy(int x)
{
	for (;;) {
		leaf(x);
		sink += x;
	}
}

APART int by_signal(int flags, void (*raises)(void))
{
	static char other_stack[1 << 16];
	stack_t stack = { .ss_sp = other_stack, .ss_size = sizeof other_stack };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	sigaltstack(&stack, NULL);
	sigaction(SIGALRM, &action, NULL);
	raises();
	return busy(5) + 1;
}

APART void by_raise(void) { raise(SIGALRM); sink++; }
APART void by_timer(void)
{
	struct itimerval soon = { .it_value = { .tv_usec = 20000 } };
	setitimer(ITIMER_REAL, &soon, NULL);
	sink++;
}

APART int compare(const void *a, const void *b) { return inner(*(const char *)a) - *(const char *)b; }
APART int by_qsort(int x)
{
	char bytes[3] = { x, 2, 1 };
	qsort(bytes, 3, 1, compare);
	return bytes[0];
}

APART void *thread_routine(void *text) { return outer(2) + (char *)text; }
APART int by_thread(int x)
{
	pthread_t thread;
	pthread_create(&thread, NULL, thread_routine, "x");
	pthread_join(thread, NULL);
	return x + 1;
}

APART void never_returns(int x) { sink += inner(x); exit(1); }
APART int calls_it(int x)
{
	if (x)
		never_returns(x);
	return x + 2;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int result = 1;
	if (!strcmp(mode, "plain"))
		result = outer(argc);
	else if (!strcmp(mode, "deep"))
		result = deep(300);
	else if (!strcmp(mode, "alloca"))
		result = with_alloca(argc * 500);
	else if (!strcmp(mode, "realigned"))
		result = realigned(argc);
	else if (!strcmp(mode, "both"))
		result = realigned_alloca(argc * 40);
	else if (!strcmp(mode, "raise"))
		result = by_signal(0, by_raise);
	else if (!strcmp(mode, "timer"))
		result = by_signal(0, by_timer);
	else if (!strcmp(mode, "altstack"))
		result = by_signal(SA_ONSTACK, by_timer);
	else if (!strcmp(mode, "qsort"))
		result = by_qsort(argc);
	else if (!strcmp(mode, "thread"))
		result = by_thread(argc);
	else if (!strcmp(mode, "noreturn"))
		result = calls_it(argc);
	sink += result; /* main is left for nobody */
	return result;
}
