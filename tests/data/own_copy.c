/* Puts a copy of a page of its code in the place of that page, as those do that want large pages for their code, and
   makes system calls in it: COUNT from the file, and COUNT from the copy. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096

extern char __start_copied_code[];

__attribute__((section("copied_code"), aligned(PAGE), noinline)) long copied(long number)
{
    long result = syscall(SYS_getppid, number);
    __asm__ volatile(".rept 512\n nop\n .endr");
    return result + number;
}

/* The next page. */
__attribute__((section("other_code"), aligned(PAGE), used)) long behind(void)
{
    return 0;
}

int main(int count, char **words)
{
    static char copy[PAGE];
    long number, calls = count > 1 ? atol(words[1]) : 1;

    for (number = 0; number < calls; number++)
        copied(number);
    memcpy(copy, __start_copied_code, PAGE);
    if (mmap(__start_copied_code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
             -1, 0) != __start_copied_code)
        return 1;
    memcpy(__start_copied_code, copy, PAGE);
    if (mprotect(__start_copied_code, PAGE, PROT_READ | PROT_EXEC) != 0)
        return 1;
    for (number = 0; number < calls; number++) {
        copied(number);
        usleep(100000);
    }
    return 0;
}
