/* Modules, libraries, functions of the emulated driver. */
#ifndef ELASTIC_AI_CODE_H
#define ELASTIC_AI_CODE_H

#include "current.h"
#include "image.h"

struct function {
    enum kind kind; /* FUNCTION, or KERNEL: of a library, in whatever context */
    struct code *code;
    const struct host_kernel *kernel;
    int static_shared, most_shared; /* most_shared: dynamic, that a launch may ask for */
};

void code_forget(const struct context *context);
CUresult function_of(CUfunction handle, struct function **found); /* in the current context */
struct function *kernel_of(CUkernel kernel); /* NULL: none */
int function_target(const struct function *function); /* 70: its PTX is for sm_70 */

#endif
