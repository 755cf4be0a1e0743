/* A call through the loader: the program calls lazy() of the library, which is bound then, by code that never returns. */
#include <stdio.h>

#define APART __attribute__((noipa))

#ifdef LIBRARY
volatile unsigned long sink;

APART static void spin(void)
{
	puts("ready");
	fflush(stdout);
	for (;;)
		sink++;
}

static void *resolver(void)
{
	spin();
	return NULL;
}

int lazy(int x) __attribute__((ifunc("resolver")));
#else
int lazy(int x);

APART int calls_it(int x) { return lazy(x + 1) + 1; }

int main(int argc, char **argv) { return calls_it(argc) + (argv[argc] != NULL); }
#endif
