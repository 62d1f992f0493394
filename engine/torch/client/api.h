/* The C functions that the Python half of the client (elastic_ai_torch) calls by ctypes. All else goes by torch's dispatcher.
 *
 * Each function that returns int gives 0, or -1 with the reason in eat_error(). No function keeps a pointer that it was given.
 * ctypes releases the interpreter's lock (CDLL, not PyDLL) while a function runs: eat_connect, eat_synchronize, eat_rng_get and
 * eat_event_synchronize wait for the network; they look for signals (Ctrl-C) by the interpreter and then return -1 with
 * kind EAT_INTERRUPTED: the caller lets Python raise KeyboardInterrupt (any byte code does).
 * Device numbers are the program's, after CUDA_VISIBLE_DEVICES; -1 means the current device.
 */
#ifndef EAT_API_H
#define EAT_API_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of an error, as on the wire (shared/wire.h); EAT_INTERRUPTED is of this side only. */
enum {
  EAT_RUNTIME = 0, EAT_INDEX = 1, EAT_TYPE = 2, EAT_VALUE = 3, EAT_NOT_IMPLEMENTED = 4, EAT_LINALG = 5,
  EAT_OUT_OF_MEMORY = 6, EAT_ACCELERATOR = 7, EAT_ENGINE = 8, EAT_INTERRUPTED = 100
};

/* Text and kind of this thread's last failure; valid until its next failing call. */
const char *eat_error(void);
int eat_error_kind(void);

/* Registers kernels, guard, hooks, allocator and generators for `devices` devices. Opens nothing and needs no server. May be called again
 * as long as nothing is connected: then only the devices and servers change. 0 devices: CUDA is built, but not available.
 * where_json: {"servers": ["host:port", ...], "tokens": ["token of the server", ...], "devices": [[server, index there], ...],
 *              "sync": false, "timeout_s": 0, "transport": "tcp" or "verbs"}
 * "devices" gives for each device of the program its server (position in "servers") and the number there, so that
 * CUDA_VISIBLE_DEVICES is the caller's to read; it may be left out: then device i is the first one of server i.
 * "sync" waits after each operator (ELASTIC_AI_TORCH_SYNC=1). "timeout_s": a wait that is longer ends with an error that
 * names the server; 0 waits as long as the connection lives (a cut network is found by keep-alive in 30 s). */
int eat_register(int devices, const char *where_json);

/* How many operators the last eat_register gave our kernel; eat_foreign lists operators (one a line) whose CUDA kernel is not ours:
 * "" is right; torch must be imported whole before. */
int eat_registered(void);
const char *eat_foreign(void);

/* Connects the current device's server; each other one is at the first use of a device of it. The error names the server, why, and
 * what next. */
int eat_connect(void);
/* 1 once connected to any, 0 before. */
int eat_is_initialized(void);

int eat_device_count(void);
int eat_device(void);
/* -1 "CUDA error: invalid device ordinal" where there is no such device. A negative number changes nothing. */
int eat_set_device(int device);

/* JSON of the device as its server told it in WELCOME (connects when needed); with "torch_version" and "server" ("host:port") added.
 * NULL on failure. Valid as long as the process. */
const char *eat_properties(int device);

/* Waits until all that was asked of the device is done; an error of an earlier operator that was not yet told is this call's. */
int eat_synchronize(int device);

/* Memory of the device in bytes, counted here, without a wait: allocated, peak, reserved, peak reserved, allocations, frees,
 * total (the lease's part; 0 before the connection), requests refused for lack of memory. */
int eat_memory(int device, int64_t out[8]);
int eat_memory_reset_peak(int device);
int eat_empty_cache(void);

/* Random numbers: eat_rng_get gives CUDA's state (16 bytes: seed, offset); it writes at most *length bytes and sets *length.
 * These act on the device's default generator; torch.Generator objects go by torch itself. */
int eat_seed(int device, uint64_t seed);
int eat_initial_seed(int device, uint64_t *seed);
int eat_rng_get(int device, uint8_t *bytes, size_t *length);
int eat_rng_set(int device, const uint8_t *bytes, size_t length);

/* The same without a wait and without bytes: keep gives a number for the state of now, use sets it, drop forgets it. */
int eat_rng_keep(int device, uint32_t *state);
int eat_rng_use(int device, uint32_t state);
int eat_rng_drop(int device, uint32_t state);

/* Groups of sessions of the lease's servers (together.h). member: JSON, the device's session as a member; NULL where the servers do
 * not know each other. join waits until all are there, and gives the group's number. A collective is begun by the operator
 * elastic_ai::collective; wait_work lets what follows on the device come after it. work_stream: this thread's current stream
 * stands for that work, so that an event recorded there is reached with it; 0: the device's own again. */
const char *eat_member(int device);
int eat_join(int device, const char *request, uint32_t *group);
int eat_leave(int device, uint32_t group);
int eat_wait_work(int device, uint32_t work);
int eat_work_stream(int device, uint32_t work);

/* Events of the device's one stream (torch.Event uses the same by the guard). record: *event 0 makes one, else records that
 * again. query: 1 done, 0 not yet, -1 error. */
int eat_event_record(int device, uint32_t *event);
int eat_event_query(int device, uint32_t event);
int eat_event_synchronize(int device, uint32_t event);
int eat_event_elapsed(int device, uint32_t from, uint32_t to, double *ms);
int eat_event_drop(int device, uint32_t event);

/* In the child after fork: closes the connections here without a word to the servers; every later use is the error
 * "Cannot re-initialize CUDA in forked subprocess. ...". */
void eat_after_fork(void);
/* 1 in such a child. */
int eat_in_bad_fork(void);

/* Waits for what was sent, closes the connections. For atexit; safe to call twice and never raises. */
void eat_shutdown(void);

/* Counters since the start: calls, waits, signatures, bytes up, bytes down, messages' bytes sent, learned (answers waited for),
 * meta kernel failed, local allocations, signatures forgotten, shape rules used, known values read without a wait, asks, uploads sent ahead, of these used,
 * uploads sent as bytes with tables, bytes that were ahead and used, runs of whole graphs, values that came along with
 * another's answer, values computed here, known values that were compared with the server's, of these wrong; the rest is 0. */
int eat_stats(int64_t out[24]);

/* Python functions that C++ calls, set once after eat_register:
 * warn(text): raises torch's warning of an operator (holds the interpreter's lock when it is called). */
typedef void (*eat_warn_fn)(const char *text);
void eat_set_warn(eat_warn_fn warn);

#ifdef __cplusplus
}
#endif
#endif
