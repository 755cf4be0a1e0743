// As known_chains.c, with exceptions: MODE ACTION TIMES.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>

#define APART __attribute__((noipa))

volatile unsigned long sink;
void *volatile kept;
static const char *action;

extern "C" {

APART void tick(unsigned long value) { sink = sink + value; }
APART void probed(unsigned long value) { sink = sink - value; }

APART void leaf()
{
	timespec pause = { 0, 2000000 };

	switch (*action) {
	case 'b':
		for (int i = 0; i < 20; i++)
			tick(i);
		break;
	case 's':
		probed(sink);
		nanosleep(&pause, nullptr);
		break;
	case 'm':
		kept = malloc(100);
		break;
	}
	sink = sink + 1;
}

} // extern "C"

struct Guard {
	int value;
	APART ~Guard() { leaf(); sink = sink + value; }
};

APART int throws(int x)
{
	if (x)
		throw std::runtime_error(std::string(20, 'x'));
	return x + 1;
}

APART int passes_on(int x)
{
	volatile long pad[20];
	pad[x] = x;
	return throws(x) + pad[x];
}

// The exception goes through it.
APART int cleans_up(int x)
{
	Guard guard = { x };
	return passes_on(x) + 1;
}

APART int swallows(int x)
{
	try {
		return cleans_up(x) + 1;
	} catch (const std::exception &error) {
		return x + std::strlen(error.what());
	}
}

// leaf() runs while the exception is held.
APART int catches(int x)
{
	volatile long pad[10];
	pad[x] = x;
	try {
		return passes_on(x) + 1;
	} catch (const std::exception &error) {
		leaf();
		return pad[x] + std::strlen(error.what());
	}
}

APART int outer(int (*call)(int), int x) { return call(x) + 1; }

static bool is_over(long done, long times)
{
	timespec used;

	if (*action != 'b')
		return done >= times;
	if (done % 100)
		return false;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000 + used.tv_nsec / 1000000 >= times;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	action = argv[2];
	int (*call)(int) = std::strcmp(argv[1], "cleanup") ? catches : swallows;
	for (long done = 0; !is_over(done, std::atol(argv[3])); done++)
		sink = sink + outer(call, 1);
	return 0;
}
