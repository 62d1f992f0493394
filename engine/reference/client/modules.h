/* Modules, libraries, functions and kernels of the program. */
#ifndef ELASTIC_AI_MODULES_H
#define ELASTIC_AI_MODULES_H

#include "client.h"

struct module {
    struct object o;
    struct function *functions; /* asked for so far */
};

/* Its parameters, attributes: asked once. */
struct function {
    struct object o;
    struct function *next;
    struct module *module;
    char *name;
    struct function_info info;
    struct parameter *parameter;
    size_t parameter_bytes;
};

/* A library is its image, which becomes a module in each context that uses it. */
struct library {
    struct object o;
    struct image *image;
    struct placed *placed;
    struct kernel *kernels;
};

struct kernel {
    struct object o;
    struct kernel *next;
    struct library *library;
    char *name;
    struct object *context; /* where it was used last, */
    unsigned life;
    struct function *function; /* as which function */
};

struct function *function_of(CUfunction handle); /* or of a kernel, in the current context; NULL: no such */

#endif
