/* Chains of calls that are known: MODE ACTION TIMES. Each ends in leaf(), which does what ACTION says; main() goes through
 * the whole chain again and again. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#define APART __attribute__((noipa))

volatile unsigned long sink;
void *volatile kept;
static const char *action;

APART void tick(unsigned long value) { sink += value; }
APART void probed(unsigned long value) { sink -= value; }

APART void leaf(void)
{
	struct timespec pause = { .tv_nsec = 2000000 };

	switch (*action) {
	case 'b': /* busy */
		for (int i = 0; i < 20; i++)
			tick(i);
		break;
	case 's': /* sleep */
		probed(sink);
		nanosleep(&pause, NULL);
		break;
	case 'm': /* malloc */
		kept = malloc(100);
		break;
	}
	sink++;
}

APART int inner(int x) { leaf(); return sink + x; }
APART int middle(int x, char *text) { return inner(x + 1) + (int)strlen(text); }
APART int outer(int x)
{
	char text[300];

	memset(text, x + '0', 20);
	text[20] = 0;
	return middle(x, text) + text[1];
}

/* Its frame has 64 bytes at least. */
APART int deep(int depth)
{
	volatile long pad[6];

	pad[depth % 6] = depth;
	int result = depth ? deep(depth - 1) : inner(3);
	sink += result;
	return result + pad[depth % 6];
}

APART int with_alloca(int bytes)
{
	char *memory = alloca(bytes);

	memset(memory, 1, bytes);
	return inner(memory[3]) + memory[bytes - 1];
}

APART int realigned(int x)
{
	_Alignas(64) char text[64];
	char *memory = alloca(x);

	memset(text, x, sizeof text);
	memset(memory, x, x);
	return with_alloca(text[7] + 100) + text[20] + memory[x - 1];
}

APART void on_signal(int number) { leaf(); sink += number; }
APART int by_signal(int x) { raise(SIGUSR1); return sink + x; }

/* The first instruction of faults() is one that no CPU knows. It lies right behind a function of another name, and on_fault()
 * steps over it. */
#ifdef __aarch64__
#define FAULT ".inst 0\n"
#define FAULT_BYTES 4
#define FAULT_PC(context) ((ucontext_t *)(context))->uc_mcontext.pc
#else
#define FAULT "ud2\n"
#define FAULT_BYTES 2
#define FAULT_PC(context) ((ucontext_t *)(context))->uc_mcontext.gregs[REG_RIP]
#endif
void faults(void);
__asm__(".text\n"
	".p2align 4\n"
	".type neighbour, %function\n"
	"neighbour:\n.cfi_startproc\nret\n.cfi_endproc\n"
	".size neighbour, .-neighbour\n"
	".globl faults\n"
	".type faults, %function\n"
	"faults:\n.cfi_startproc\n" FAULT "ret\n.cfi_endproc\n"
	".size faults, .-faults\n");

APART void on_fault(int number, siginfo_t *info, void *context)
{
	leaf();
	FAULT_PC(context) += FAULT_BYTES;
	sink += number + info->si_signo;
}
APART int by_fault(int x) { faults(); return sink + x; }

APART int compare(const void *a, const void *b) { return inner(*(const char *)a) - *(const char *)b; }
APART int by_qsort(int x)
{
	char bytes[2] = { x, 1 };

	qsort(bytes, 2, 1, compare);
	return bytes[0];
}

APART void *thread_routine(void *text) { return outer(2) + (char *)text; }
APART int by_thread(int x)
{
	pthread_t thread;

	pthread_create(&thread, NULL, thread_routine, NULL);
	pthread_join(thread, NULL);
	return x + 1;
}

static int is_over(long done, long times)
{
	struct timespec used;

	if (*action != 'b')
		return done >= times;
	if (done % 100)
		return 0;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000 + used.tv_nsec / 1000000 >= times;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*call)(int);
		int value;
	} modes[] = {
		{ "deep", deep, 299 },
		{ "alloca", with_alloca, 500 },
		{ "realigned", realigned, 40 },
		{ "signal", by_signal, 1 },
		{ "fault", by_fault, 1 },
		{ "qsort", by_qsort, 2 },
		{ "thread", by_thread, 1 },
		{ "plain", outer, 1 },
	};
	const int count = sizeof modes / sizeof *modes;
	int mode = 0;

	if (argc != 4)
		return 2;
	action = argv[2];
	while (mode < count - 1 && strcmp(argv[1], modes[mode].name))
		mode++;
	signal(SIGUSR1, on_signal);
	sigaction(SIGILL, &(struct sigaction){ .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, NULL);
	for (long done = 0; !is_over(done, atol(argv[3])); done++)
		sink += modes[mode].call(modes[mode].value);
	return 0;
}
