/* Opens every TCP stream socket of a program as AF_SMC, so that an unmodified program can be tried over SMC-R.
   SMC negotiates by itself and falls back to TCP without a word: whoever uses this must look at the counters. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define AF_SMC_FAMILY 43 /* linux/socket.h */

int socket(int domain, int type, int protocol)
{
    static int (*next)(int, int, int);
    int smc_protocol = domain == AF_INET6; /* SMCPROTO_SMC6 = 1, SMCPROTO_SMC = 0: linux/net/smc/smc.h */

    if (!next)
        next = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
    if ((domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM)
        return next(AF_SMC_FAMILY, type, smc_protocol);
    return next(domain, type, protocol);
}
