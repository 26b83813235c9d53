/* weft.h: the C interface of Weft, in NCCL's shape: every weftX takes what ncclX takes, in the same order.
 *
 * Results: functions return a weftResult_t, but for two that return texts; weftSuccess is 0. After a failure
 * weftGetLastError says in a sentence what went wrong and what to do. Wrong arguments are refused so, too: NULL, numbers
 * out of range, handles that have ended, readable memory that is no handle. That a pointer leads to memory, and to as
 * much as the counts say, is the caller's to see to.
 * Arguments: `comm` is a communicator that was made and not destroyed; where it is a weftComm_t*, it receives one, or
 * NULL after a failure. NULL is refused where it is not said to be accepted.
 * Threads: thread-safe: any number of threads at once. Thread-bound: one thread per communicator at a time (which one
 * may change between calls); two at once is detected and refused with weftInvalidUsage. Different communicators are
 * independent of each other; but on device memory, those on the same GPUs run in one order on all ranks (one stream, or
 * events between streams), unless the kernels of all find room together (WEFT_GPU_BLOCKS; docs/gpu.md): else each may
 * wait for room that the other has, until the deadline.
 * Memory: buffers are host memory, or device memory of the GPU that was current when the communicator was made (see
 * weftCommInitRank). Counts are elements, never bytes, unless a name ends in `bytes`.
 * Death: a collective never hangs in silence: a dead rank, a mismatched call or a passed deadline is an error on every
 * rank. After it the communicator is dead (destroy it); the process may make new ones.
 * A failing call returns when no running peer uses its buffers any more. A peer that was stopped (SIGSTOP) inside a
 * call is waited for two seconds: continued later, it may still write one block into buffers that lie in weftMemAlloc's
 * memory or that the kernel copies; so do not reuse a failed call's buffers while such a process exists. On a GPU a
 * call returns before it has run. What happens to it afterwards is told by weftCommGetAsyncError, by the next call and
 * on every rank; the stream goes on without a result, so it never hangs either.
 * Fork: a child made by fork() may live, but its calls on the parent's communicators fail with weftInvalidUsage.
 * Process: no function is a cancellation point (pthread_cancel), and none may be called with
 * PTHREAD_CANCEL_ASYNCHRONOUS. A program closes only descriptors that it has opened itself. docs/process.md. */
#ifndef WEFT_H
#define WEFT_H

#include <weft/types.h>

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Information. Thread-safe. ---- */

/* Writes the library's version, 10000 * major + 100 * minor + patch. Errors: weftInvalidArgument (null). */
WEFT_API weftResult_t weftGetVersion(int* version);

/* A short constant English text for a result code; never NULL. */
WEFT_API const char* weftGetErrorString(weftResult_t result);

/* The sentence of the newest error: of `comm`, or, if comm is NULL, of the calling thread. It ends with the error's id in
 * brackets, `[mismatch.count]`, which `weft explain` explains. Empty if there was no error. The text is the calling thread's: valid until its next failing call, or until it has asked of communicators four times
 * more. */
WEFT_API const char* weftGetLastError(weftComm_t comm);
/* Writes the id and the facts of the same error as data, into `info`.
 * comm  NULL: the newest error of the calling thread
 * info  initialised by WEFT_ERROR_INFO_INITIALIZER; the texts in it are constant
 * If there was no error, the id is empty and the code is weftSuccess. Thread-safe.
 * Errors: weftInvalidArgument (null, info not initialised). */
WEFT_API weftResult_t weftGetLastErrorInfo(weftComm_t comm, weftErrorInfo_t* info);

/* ---- Communicators ---- */

/* Makes an id that names one communicator yet to be made: call it on one rank, hand the 128 bytes to all others by any
 * channel (they hold a secret: a private one), then all call weftCommInitRank with it. An id serves once. The calling
 * process opens a TCP port where ranks of other hosts are met: it must live until all have joined. Where it cannot
 * (its log at INFO says why) the id is for ranks of this host. Thread-safe.
 * Errors: weftInvalidArgument (null, WEFT_SOCKET_IFNAME and the like), weftSystemError. */
WEFT_API weftResult_t weftGetUniqueId(weftUniqueId* id);

/* Joins the communicator `id` of `nranks` ranks as `rank`, 0 <= rank < nranks. Returns when all ranks have joined;
 * inside weftGroupStart/End it returns at once and weftGroupEnd waits. With config.blocking = 0 it is weftInProgress,
 * and a thread of the library's joins: until weftCommGetAsyncError says something else than weftInProgress only that,
 * weftCommDestroy (which waits) and weftCommAbort (which gives up) take the communicator. Thread-safe (each call makes
 * its own communicator). The device whose primary context is current in the calling thread (cudaSetDevice) is the
 * communicator's: calls take its memory as well as the host's if every rank has one (64 ranks at most). CUDA is not
 * loaded or initialised for this: a process that has not done so has no device. docs/gpu.md.
 * Errors: weftInvalidArgument (null, rank out of range, garbled id), weftMismatch (two processes with one rank, other
 * nranks, other library version), weftTimeout (names the ranks that have not come, or why the place where they meet was
 * not reached), weftRemoteError (a rank, a host, or the process that made the id ended meanwhile), weftSystemError. */
WEFT_API weftResult_t weftCommInitRank(weftComm_t* comm, int nranks, weftUniqueId id, int rank);
/* The same with settings; config may be NULL. */
WEFT_API weftResult_t weftCommInitRankConfig(weftComm_t* comm, int nranks, weftUniqueId id, int rank,
                                             const weftConfig_t* config);

/* Makes `ndev` communicators, ranks 0..ndev-1 of one group, all driven by this process, into the array `comms`.
 * `devlist` is NULL for host ranks, or has the device of each. Drive collectives on them inside weftGroupStart/End, or
 * each from a thread of its own. Thread-safe.
 * Errors: weftInvalidArgument (null, ndev or a device out of range), and those of weftCommInitRank. */
WEFT_API weftResult_t weftCommInitAll(weftComm_t* comms, int ndev, const int* devlist);

/* Joins the communicator that the launcher's environment describes, as this process's rank in the job. Launchers:
 * `weft run`, or WEFT_RANK, WEFT_SIZE and WEFT_UNIQUE_ID set by hand; torchrun, and what else sets RANK, WORLD_SIZE,
 * MASTER_ADDR and MASTER_PORT; Horovod; Open MPI; Intel MPI, MPICH and others with PMI; prterun and others with PMIx;
 * Slurm's srun; Kubernetes Indexed Jobs (docs/launch.md). Without any, a communicator of one rank. Every call makes
 * the next communicator of the job, so all ranks call it equally often. config may be NULL. Thread-safe, but the order
 * of the calls says which communicator each makes: call it from one thread.
 * Errors: weftInvalidUsage (a half-set family of variables, named), and those of weftCommInitRank. */
WEFT_API weftResult_t weftCommInitFromEnvironment(weftComm_t* comm, const weftConfig_t* config);

/* Makes communicators out of `comm`: all ranks that give the same `color` >= 0 are one, ordered by `key`, ranks with
 * equal keys as in comm. All ranks of comm call it, in one order with their other calls on comm; with a negative color
 * (WEFT_SPLIT_NOCOLOR) *newcomm is NULL. One color for all makes a duplicate, which costs next to nothing until it
 * is used, and then slots and connections of its own. The new communicators and comm are independent from then on: each
 * is destroyed by itself, in any order, and lives when another fails. They use comm's device. config may be NULL; what
 * it leaves undefined is as comm has it; `algo` counts on the new rank 0. Returns when the new communicator is made;
 * inside weftGroupStart/End weftGroupEnd makes it, in its turn among the calls on comm.
 * If comm or the new one does not block *newcomm is there at once, and taken as one of weftCommInitRank with
 * config.blocking = 0.
 * Errors: weftTimeout (the deadline is initTimeoutMs: who has not called it or has not come), weftMismatch (a rank
 * called something else), after both of which comm is dead; weftRemoteError (a rank died meanwhile); weftInvalidUsage
 * and others (comm is finalized or has failed); weftInvalidArgument (null, config), weftSystemError. Thread-bound. */
WEFT_API weftResult_t weftCommSplit(weftComm_t comm, int color, int key, weftComm_t* newcomm,
                                    const weftConfig_t* config);
/* Makes a communicator, *newcomm, of comm's ranks without those in `excludeRanksList` (`excludeRanksCount` different
 * ones, at least 1, the same on all callers), in their order. Only the others call it; no message needs those that are
 * excluded, which may be dead.
 * shrinkFlags  WEFT_SHRINK_DEFAULT: comm is healthy, calls on device memory are waited for, and comm lives on.
 *              WEFT_SHRINK_ABORT: comm may have failed; what is in progress on it ends with weftRemoteError on every
 *              rank, and all that is left to do with comm is weftCommDestroy
 * config, groups and the new communicator: as weftCommSplit. Where the new communicator has several hosts, one of them
 * must have its leader among the ranks that are left (the process that came first on its host).
 * Errors: as weftCommSplit; if a rank does not come comm stays as it was. Thread-bound. */
WEFT_API weftResult_t weftCommShrink(weftComm_t comm, int* excludeRanksList, int excludeRanksCount, weftComm_t* newcomm,
                                     const weftConfig_t* config, int shrinkFlags);
/* Waits until this rank's calls on device memory have ended; from then on comm takes weftCommDestroy, weftCommAbort,
 * questions, and what concerns this rank alone (its settings, registrations and reductions); each other call, prepared
 * or on a stream, too, is weftInvalidUsage, and peers that wait for it are told at their deadline, or at once if their
 * calls are of the same group (as refused ones are: Groups, below). Waits for no other rank: peers can still complete
 * what this rank has called. Not needed before weftCommDestroy.
 * Errors: weftInvalidUsage (finalized before, or inside a group that holds calls on comm), the error of a communicator
 * that has failed. Thread-bound. */
WEFT_API weftResult_t weftCommFinalize(weftComm_t comm);

/* Frees the communicator: an orderly goodbye; operations that peers can still complete succeed. Returns when its calls
 * on device memory have ended; launches of graphs that hold such calls must have ended before, and none may follow.
 * Using the handle afterwards is weftInvalidArgument, not a crash. NULL is accepted. Thread-bound.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (another thread is inside, a group holds calls on
 * it). */
WEFT_API weftResult_t weftCommDestroy(weftComm_t comm);
/* Tells all ranks to stop: calls in progress on any rank return weftRemoteError there, weftInvalidUsage here. Then the
 * handle is freed as by weftCommDestroy, once no call is inside. Thread-safe: may be called while another thread is
 * inside a collective. Errors: weftInvalidArgument (null, destroyed or aborted before). */
WEFT_API weftResult_t weftCommAbort(weftComm_t comm);

/* The error that has hit the communicator, if any, found without waiting, into `asyncError`; weftSuccess: none. Of a
 * communicator with config.blocking = 0 weftInProgress while it is made or calls without a stream are not done, and the
 * first error of such calls, once. Thread-safe. Errors: weftInvalidArgument (null, destroyed or aborted before),
 * weftInvalidUsage (a child after fork). */
WEFT_API weftResult_t weftCommGetAsyncError(weftComm_t comm, weftResult_t* asyncError);
/* The number of ranks, into `count`, and this communicator's rank, into `rank`. Thread-safe.
 * Errors: as weftCommGetAsyncError. */
WEFT_API weftResult_t weftCommCount(const weftComm_t comm, int* count);
WEFT_API weftResult_t weftCommUserRank(const weftComm_t comm, int* rank);

/* ---- Groups: calls between start and end on this thread are begun together; end drives them all to completion, which
 * is how one thread drives several ranks. Groups nest: the outermost end drives. Calls of one communicator go to one
 * stream or to none. Small all-reduces of a communicator that follow each other are carried out as one
 * (WEFT_JOIN_BYTES), so on host memory every rank groups its calls alike: who does not is told so (weftMismatch); on
 * device memory they are one kernel, and ranks need not. Wrong arguments are refused by the call itself, the others are
 * carried out; where a call waits for one of the same function that this thread was refused on another rank of the
 * communicator, weftGroupEnd ends it with weftInvalidUsage, and the communicator on all ranks. weftGroupEnd returns the
 * first error of all others, and weftGetLastError names the call, "call 3 of the group, weftReduce on communicator
 * trainer (rank 1 of 4): ..", as it does for each communicator's own first error. Thread-safe.
 * Errors: weftInvalidUsage (an end without a start), and those of the calls inside. ---- */
WEFT_API weftResult_t weftGroupStart(void);
WEFT_API weftResult_t weftGroupEnd(void);

/* How many calls the group had that this thread ended last, into `calls`; 0 if there was none. Each function between
 * the start and the end counts that carries something out on ranks or makes a communicator, refused or not, but for
 * those that are refused inside of every group; what inner groups had counts, weftPreparedStart is one call. Outside a
 * group weftPreparedStart counts as the end of a group of the calls as they were prepared, weftGroupPrepare as that of
 * one whose calls, but for those that were refused, have succeeded, or were refused with it. What a reduction's function
 * (weftRedOpCreate) ends meanwhile is before it. Thread-safe: each thread asks of its own.
 * Errors: weftInvalidArgument (null). */
WEFT_API weftResult_t weftGroupGetCallCount(uint64_t* calls);
/* What became of one call of that group.
 * call     its number, in the order in which the calls were made, from 0
 * result   receives weftSuccess, its error, or weftInProgress: a stream, or a thread of a communicator that does not
 *          block, has not done it yet: ask again. On device memory weftSuccess says that the call is enqueued; what
 *          happens afterwards is told by weftCommGetAsyncError. A call that failed with another one, or was never begun
 *          because of it, has that one's code
 * message  may be NULL; else receives the sentence, which names the call and, where another one is the cause, that;
 *          empty without an error; valid until this thread ends another group
 * Thread-safe: each thread asks of its own. Errors: weftInvalidArgument (null, no such call). */
WEFT_API weftResult_t weftGroupGetCallError(uint64_t call, weftResult_t* result, const char** message);

/* Ends the outermost group, too, but keeps its calls, as `prepared`, instead of carrying them out: weftPreparedStart
 * does, as often as it is called. They are checked here, once, and a group of one call starts without a copy. Their
 * buffers, streams, call configs and communicators are those of now; what is in the buffers is read when they are
 * started. Local: no communication. The group must not make communicators. Thread-bound as the calls are.
 * Errors: weftInvalidUsage (no group is open, or it is an inner one; it makes a communicator), weftInvalidArgument
 * (null); the group is over all the same, an inner one's calls are the outer one's. */
WEFT_API weftResult_t weftGroupPrepare(weftPrepared_t* prepared);
/* Carries the calls of `prepared` out as the group would have been: returns when they are done, or, where they have
 * streams, when these have them; inside an open group they become part of it. All ranks start theirs in one order with
 * their other calls. Thread-bound to the calls' communicators. Errors: those of the calls; weftInvalidArgument (null,
 * destroyed before, the communicator was), weftInvalidUsage (a child after fork). */
WEFT_API weftResult_t weftPreparedStart(weftPrepared_t prepared);
/* Frees prepared calls; those that were started and are in streams are carried out all the same. NULL is accepted.
 * Thread-bound. Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (a child after fork). */
WEFT_API weftResult_t weftPreparedDestroy(weftPrepared_t prepared);

/* ---- Streams for host memory ----
 * A stream is a queue and a thread that carries out, one after the other, the calls that name it: any call on host
 * memory that takes a stream. Such a call checks its arguments and returns; its buffers, and the scalar of its
 * reduction, must stay as they are until it is done (arrays of counts are copied). Calls of one communicator are
 * carried out in the order in which they were made, on whatever streams; a call without a stream, and any function that
 * must be alone on the communicator, waits until streams are done with it. A group gives each stream its calls when it
 * ends. An error of a call is its communicator's (weftCommGetAsyncError, weftGetLastError) and the stream's, which goes
 * on: weftStreamTest, weftStreamWait or weftStreamDestroy tells it once. In a child after fork streams are refused
 * (weftInvalidUsage). When the process ends, calls that have not begun are dropped. */

/* Makes a stream. Priority: 0, the highest, as any thread's, to WEFT_STREAM_LOWEST_PRIORITY: how much its thread gives
 * way to others (its nice value), so that what is not urgent does not hold up what is. Thread-safe.
 * Errors: weftInvalidArgument (null, priority out of range), weftSystemError (no thread can be started). */
WEFT_API weftResult_t weftStreamCreate(weftStream_t* stream);
WEFT_API weftResult_t weftStreamCreateWithPriority(weftStream_t* stream, int priority);
/* Waits until the stream is done with its calls and frees it. NULL is accepted. Thread-safe.
 * Errors: of the stream's calls, if nobody has been told yet: the stream is freed all the same; weftInvalidArgument
 * (destroyed before, not made by weftStreamCreate), weftInvalidUsage (called by what the stream runs). */
WEFT_API weftResult_t weftStreamDestroy(weftStream_t stream);
/* Into `mark` how many calls, groups counted as one, the stream has been given so far: it is done with them when it has
 * done as many. Thread-safe. Errors: weftInvalidArgument (null, destroyed before, not made by weftStreamCreate). */
WEFT_API weftResult_t weftStreamMark(weftStream_t stream, uint64_t* mark);
/* Whether the stream is done with all calls up to `mark` (WEFT_STREAM_ALL: all so far): weftSuccess, weftInProgress, or
 * the first error among them that nobody has been told yet. Does not wait. Thread-safe. Errors: also those of
 * weftStreamMark. */
WEFT_API weftResult_t weftStreamTest(weftStream_t stream, uint64_t mark);
/* Waits for what is before `mark`, as weftStreamTest has it; weftTimeout after `timeoutMs` milliseconds of it, after
 * which nothing is broken and it may be called again; negative: as long as it takes, which the calls' own deadlines
 * bound. Calls that an open group holds are not the stream's yet: it does not wait for those, as weftStreamMark and
 * weftStreamTest do not count them, until the outermost weftGroupEnd. Thread-safe. Errors: as weftStreamTest. */
WEFT_API weftResult_t weftStreamWait(weftStream_t stream, uint64_t mark, int64_t timeoutMs);

/* Sets what calls on `comm` ask for from now on, until it is set anew: `config`, or, if that is NULL, nothing but what
 * the communicator has. Calls that were made before, queued, captured or prepared ones too, keep theirs. algo and
 * channels count for collectives of equal parts, and must be alike on all ranks, else the call that differs is a
 * weftMismatch; a rank whose algo leaves no algorithm is refused alone, and the others wait for it. On device memory they
 * choose among what the communicator has (docs/gpu.md): the fused kernels as one_shot and two_shot, and algorithms over
 * connections if WEFT_ALGO, or algo of its config, named them or left nothing else, with the channels that it has; other
 * calls are refused with what is missing. timeoutMs counts for every call, on device memory for each wait of its kernel.
 * priority is for calls on device memory alone, undefined: the stream's; beyond what cudaDeviceGetStreamPriorityRange
 * tells the end of that counts. For host memory streams have priorities (weftStreamCreateWithPriority). Thread-bound.
 * Errors: weftInvalidArgument (names no algorithm, channels out of range, not initialised), weftInvalidUsage (another
 * thread is inside; more than 255 different settings). */
WEFT_API weftResult_t weftCommSetCallConfig(weftComm_t comm, const weftCallConfig_t* config);

/* ---- Reductions ---- */

/* Makes a reduction, `op`, that sums scalar_r * x_r, each rank r with its own scalar of type `datatype`: read at once
 * from host memory (residence weftScalarHostImmediate), or from memory of the communicator's device by each call when
 * it runs (weftScalarDevice: for calls on device memory alone; it stays until they have ended). Local: no
 * communication; the product is rounded to the data type. Thread-bound. Errors: weftInvalidArgument (null, type or
 * residence out of range, a scalar of another residence), weftInvalidUsage (another thread is inside). */
WEFT_API weftResult_t weftRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t datatype,
                                               weftScalarResidence_t residence, weftComm_t comm);
/* Makes a reduction, `op`, of `function`, for elements of type `datatype` in host memory, for all collectives that
 * reduce.
 * function     combines any number of elements at once (types.h). Called in the thread that makes the call (or ends the
 *              group), for each rank that the thread drives, on as many elements at a time as suits the algorithm; it
 *              must be associative, give the same bits for the same operands on all ranks, not call Weft on this
 *              communicator, and return: while it runs, other ranks wait, and name this one at their deadline. A C++
 *              exception that it throws ends the call on all ranks, and the communicator; it must not be left by
 *              longjmp or the thread's end. Elements are never cut in two: what fits into 1, 4 or 8 bytes can travel as
 *              the integer of that size. It runs in Weft's floating-point mode (docs/determinism.md)
 * context      handed to the function as it is
 * commutative  1: operands may come in any order; 0: the ranks' contributions stay in rank order, rank 0's on the left,
 *              which fewer algorithms keep: as with WEFT_DETERMINISTIC
 * Local: no communication. All ranks must use such a reduction for a call if one does, with the same `commutative`,
 * else weftMismatch; that the functions are alike is theirs to see to. Thread-bound.
 * Errors: weftInvalidArgument (null, type out of range, commutative neither 0 nor 1), weftInvalidUsage (another thread
 * is inside). */
WEFT_API weftResult_t weftRedOpCreate(weftRedOp_t* op, weftRedOpFunction_t function, void* context,
                                      weftDataType_t datatype, int commutative, weftComm_t comm);
/* Ends `op`, made by weftRedOpCreate or weftRedOpCreatePreMulSum on this communicator; weftCommDestroy does it too.
 * Thread-bound.
 * Errors: weftInvalidArgument (not made so), weftInvalidUsage (another thread is inside, a group holds calls on it). */
WEFT_API weftResult_t weftRedOpDestroy(weftRedOp_t op, weftComm_t comm);

/* ---- Collectives ---- */

/* Sums, or otherwise combines, the ranks' buffers; every rank ends with the same bits.
 * sendbuff, recvbuff  `count` elements each, both host memory or both memory of the communicator's device (managed
 *                     memory counts as device memory where there is a device); equal (in place) or disjoint; null only
 *                     if count is 0, where all ranks meet all the same
 * count, type, op     elements, not bytes; the same on every rank, else weftMismatch names both ranks on both
 * stream              host memory: NULL, returns when the result is there; or one of weftStreamCreate. Device memory: a
 *                     CUDA stream of that device, or NULL for the legacy stream; the call is enqueued and returns at
 *                     once. Calls of one communicator run in their order even on different streams; in a captured
 *                     stream they become part of the graph (order its launches against other calls yourself). count 0
 *                     without buffers: with a stream it is a call on device memory
 * Errors: weftInvalidArgument (what to change), weftRemoteError (a rank died or aborted), weftMismatch, weftTimeout
 * (which rank is late), weftSystemError; after all but the first, recvbuff is undefined and the communicator is dead: a
 * later call returns what it died of. weftInvalidUsage: another thread is inside, or a child after fork.
 * Threads: thread-bound. */
WEFT_API weftResult_t weftAllReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t type,
                                    weftRedOp_t op, weftComm_t comm, weftStream_t stream);

/* The others have these in common with weftAllReduce: buffers are host memory or memory of the communicator's
 * device (stream as there); counts, type, op and root are the same on every rank; on host memory they return when this
 * rank's part is done, which may be before others' is, so a call that differs may be told by the next one. A buffer
 * that a rank has no use for may be NULL. n ranks; a buffer of n parts has `count` elements for each rank, in the order
 * of ranks. In place is a buffer that lies where the other holds the same: there both are one. Errors and threads: as
 * weftAllReduce. */

/* The buffer of rank `root`, `count` elements, into every rank's recvbuff. sendbuff matters on the root only, and may
 * be its recvbuff. weftBcast: the same with one buffer, `buff`, on every rank. */
WEFT_API weftResult_t weftBroadcast(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t type, int root,
                                    weftComm_t comm, weftStream_t stream);
WEFT_API weftResult_t weftBcast(void* buff, size_t count, weftDataType_t type, int root, weftComm_t comm,
                                weftStream_t stream);

/* As weftAllReduce, but the result is the root's alone. recvbuff matters on the root only, and may be its sendbuff. */
WEFT_API weftResult_t weftReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t type,
                                 weftRedOp_t op, int root, weftComm_t comm, weftStream_t stream);

/* Every rank's `sendcount` elements into every rank's recvbuff of n parts. In place: sendbuff is part `rank` of
 * recvbuff. */
WEFT_API weftResult_t weftAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, weftDataType_t type,
                                    weftComm_t comm, weftStream_t stream);

/* Combines the ranks' sendbuffs of n parts; rank r receives part r, `recvcount` elements. In place: recvbuff is part
 * `rank` of sendbuff. */
WEFT_API weftResult_t weftReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, weftDataType_t type,
                                        weftRedOp_t op, weftComm_t comm, weftStream_t stream);

/* Part q of rank p's sendbuff becomes part p of rank q's recvbuff; `count` elements each. Not in place. */
WEFT_API weftResult_t weftAlltoAll(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t type,
                                   weftComm_t comm, weftStream_t stream);

/* Every rank's `count` elements into the root's recvbuff of n parts. recvbuff matters on the root only; in place there:
 * sendbuff is part `root` of it. */
WEFT_API weftResult_t weftGather(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t type, int root,
                                 weftComm_t comm, weftStream_t stream);

/* Part r of the root's sendbuff into rank r's recvbuff, `count` elements. sendbuff matters on the root only; in place
 * there: recvbuff is part `root` of it. */
WEFT_API weftResult_t weftScatter(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t type, int root,
                                  weftComm_t comm, weftStream_t stream);

/* Ends when every rank has come to it. stream: NULL, or one of weftStreamCreate: a barrier of the host, which returns,
 * or is done in its stream, when every rank has called it. A CUDA stream, for the legacy one CU_STREAM_LEGACY: it is
 * enqueued as weftAllReduce on device memory is, and what is behind it in the stream begins when the streams of all
 * ranks have come to it. All ranks take one kind, else weftMismatch; where a device runs no kernels of Weft's the call
 * waits for its stream and is the host's barrier, and the two kinds meet. */
WEFT_API weftResult_t weftBarrier(weftComm_t comm, weftStream_t stream);

/* ---- Messages between two ranks ----
 * Buffers are host memory (stream NULL or of weftStreamCreate) or memory of the communicator's device (a CUDA stream,
 * or NULL for the legacy stream); both ends' are of one kind. The first send of one rank to
 * another meets the other's first receive from it, the second the second, and so on: these two must agree in count and
 * type, else weftMismatch names both ranks and both calls on every rank. A count may be 0: then the buffer may be NULL,
 * and the message is one all the same (with a CUDA stream: on device memory). On host memory, outside a group, weftSend
 * returns when the buffer may be used again, which for a large one is when it was received, and weftRecv when the data
 * is there. In a group all messages go on side by side, whatever their order, to and from any ranks and on any
 * communicators of the group, and beside its collectives; weftGroupEnd returns when all are done. There a rank may send
 * to itself, if it receives in the same group. On device memory messages are enqueued and the calls return at once.
 * Those of a group and a communicator, at most 8192, go to one stream, as one kernel, before the group's collectives;
 * outside a group each is a kernel, behind the communicator's call before: what two ranks send each other belongs in a
 * group there, or in weftSendRecv. Messages do not disturb the order of collectives: only the two ranks take part.
 * Errors: weftInvalidArgument (what to change), weftInvalidUsage (a message to oneself alone), weftMismatch,
 * weftRemoteError (the peer died, or left without its part), weftTimeout (who has not called what), weftSystemError;
 * after all but the first the communicator is dead. On device memory messages to oneself that do not fit each other are
 * refused on this rank alone, with all of the group's: others wait for it. Threads: thread-bound. */

/* Sends `count` elements of sendbuff to rank `peer`. */
WEFT_API weftResult_t weftSend(const void* sendbuff, size_t count, weftDataType_t type, int peer, weftComm_t comm,
                               weftStream_t stream);
/* Receives `count` elements from rank `peer` into recvbuff. */
WEFT_API weftResult_t weftRecv(void* recvbuff, size_t count, weftDataType_t type, int peer, weftComm_t comm,
                               weftStream_t stream);
/* Both at once, as if in a group: sends `sendcount` elements of sendbuff to rank `dest` and receives `recvcount`
 * elements from rank `source` into recvbuff; dest and source may be the same, or this very rank. The buffers are
 * disjoint. */
WEFT_API weftResult_t weftSendRecv(const void* sendbuff, size_t sendcount, int dest, void* recvbuff, size_t recvcount,
                                   int source, weftDataType_t type, weftComm_t comm, weftStream_t stream);

/* ---- Windows: one-sided calls ----
 * A window is memory of every rank that the others read and write without its help. All ranks register it together;
 * then each puts into any rank's part, or gets from it, and tells by signals that something is there. It is host memory,
 * or device memory of up to 16 ranks of one host whose devices reach each other's (else it is refused with the reason);
 * localbuff is of the same kind. Offsets are bytes from the beginning of the peer's part, counts elements of datatype.
 * Completion: a put returns when its buffer may be used again (with a stream: when that is done with it), a get when
 * the data is there. What was put is in the peer's part when the peer has waited for a signal that this rank sent to it
 * behind the put, or when the window has been deregistered; a barrier does not say so. A signal comes behind everything
 * that its sender has put and signalled to that peer before, on whatever windows. Of what several ranks write to one
 * place at a time, or one writes while another one reads, the result is undefined.
 * Signals: for each pair of ranks WEFT_SIGNAL_CONTEXTS contexts of WEFT_SIGNALS counters each. weftWaitSignal takes
 * what it waits for off its counter: every signal is waited for once. They belong to the communicator, which must have
 * had a window before, and are counted apart for the two kinds of memory: what was sent with data of device memory, or
 * on a CUDA stream, is waited for on one. weftSignal and weftWaitSignal with stream NULL are host memory's.
 * Progress: where the peer's memory can be reached (threads of a process; memory of weftMemAlloc; other memory of this
 * host, where the kernel copies between processes) nothing depends on what the peer does. To other hosts, and where
 * none of these works, a put, signal or get is a message, carried out by the peer inside its Weft calls on this
 * communicator, whatever they are: so such a put returns when the network has taken it, which for the first one to a
 * peer, and for large ones, takes a peer that is in a call, and a get waits for the peer to be in one; a thread that
 * drives several ranks in a group serves those that have calls in it. A group carries these calls out in their order
 * among the communicator's collectives; one that is refused leaves out those behind it on that communicator, not the
 * collectives. A put into memory that is mapped does not notice that its rank has died; who waits for that rank does.
 * On device memory each call is a kernel on the stream: the call returns at once, completion is in the stream's order,
 * and graphs that hold it may be replayed. stream: NULL or one of weftStreamCreate; a CUDA stream for device memory.
 * Errors: weftInvalidArgument (what to change; nothing was written), weftInvalidUsage (the window is not registered
 * yet, or no window was), weftRemoteError (the peer died or left), weftTimeout (who has not sent how many signals, or
 * has not been in a call), weftSystemError; after the last three the communicator is dead. Threads: thread-bound. */

/* Makes `size` bytes from buff on this rank's part of a window, `win`, and returns when all ranks have registered
 * theirs. All ranks call it, in one order with their other calls on comm; sizes may differ, and a rank that lends
 * nothing has size 0 (buff may be NULL). Until the window is deregistered the memory must stay where it is; memory of
 * weftMemAlloc is reached best; device memory is what weftCommRegister takes, of ranks in several processes at most 32
 * allocations at a time, which it takes, too, and to map it may wait for the device: no kernel may wait, on whatever
 * communicator, for what a rank launches after this call. In a group, or where comm does not block, *win is there at
 * once, for calls behind it.
 * winFlags  WEFT_WIN_DEFAULT, or WEFT_WIN_COLL_SYMMETRIC and WEFT_WIN_STRICT_ORDERING, from which nothing follows
 * Errors: weftInvalidArgument (null, flags); weftInvalidArgument or weftInvalidUsage on all ranks, which go on (memory that
 * cannot be in a window or is not served, host memory on one rank and device memory on another); weftTimeout (who has not
 * called it), weftMismatch (a rank called something else), weftRemoteError, weftSystemError, weftUnhandledCudaError, after
 * which comm is dead. *win is NULL then, or names no window if it was there at once. Thread-bound. */
WEFT_API weftResult_t weftCommWindowRegister(weftComm_t comm, void* buff, size_t size, weftWindow_t* win, int winFlags);
/* Ends `win`: returns when all ranks have called it and everything that was put is there; from then on the memory is
 * its owner's. On a communicator that is dead it waits for nobody but those who are just writing to this rank's part or
 * have mapped it (two seconds at most; kernels of ranks of this process that write to device memory are not known). Of
 * device memory it waits for this rank's kernels, and for what is in their streams before them, and for the device as
 * registering does; graphs that use the window must not be launched any more. Windows that are left end with
 * weftCommDestroy, where puts that are still on their way are lost, and on devices may be errors of theirs: so deregister
 * first.
 * Errors: as weftCommWindowRegister, and weftInvalidArgument (no window of comm, deregistered before). Thread-bound. */
WEFT_API weftResult_t weftCommWindowDeregister(weftComm_t comm, weftWindow_t win);
/* Where this rank's own part of `win` begins, into `outUserPtr`. Thread-safe.
 * Errors: weftInvalidArgument (null, no window of comm, deregistered before). */
WEFT_API weftResult_t weftWinGetUserPtr(weftComm_t comm, weftWindow_t win, void** outUserPtr);

/* Writes `count` elements, of type `datatype`, of localbuff into rank `peer`'s part of `peerWin`, from byte
 * peerWinOffset on. peerWin is this rank's own handle of the window; peer may be this very rank; localbuff and
 * what is written are equal or disjoint. */
WEFT_API weftResult_t weftPut(const void* localbuff, size_t count, weftDataType_t datatype, int peer,
                              weftWindow_t peerWin, size_t peerWinOffset, weftComm_t comm, weftStream_t stream);
/* The same, `count` elements of type `datatype` from localbuff to peerWinOffset in peerWin at `peer`, then signal
 * sigIdx of context ctx to it: who has waited for that sees the data. flags is 0. */
WEFT_API weftResult_t weftPutSignal(const void* localbuff, size_t count, weftDataType_t datatype, int peer,
                                    weftWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
                                    weftComm_t comm, weftStream_t stream);
/* Reads `count` elements, of type `datatype`, of rank `peer`'s part of `peerWin`, from byte peerWinOffset on, into
 * localbuff. It sees what this rank has put into that part before. localbuff and what is read are
 * equal or disjoint. */
WEFT_API weftResult_t weftGet(void* localbuff, size_t count, weftDataType_t datatype, int peer, weftWindow_t peerWin,
                              size_t peerWinOffset, weftComm_t comm, weftStream_t stream);
/* Sends rank `peer` signal sigIdx of context ctx, without data. flags is 0. */
WEFT_API weftResult_t weftSignal(int peer, int sigIdx, int ctx, unsigned int flags, weftComm_t comm,
                                 weftStream_t stream);
/* Waits until of each of the `nDesc` signals that signalDescs describes (copied) so many have come as it says, and
 * takes them off. What their senders put before is there then. */
WEFT_API weftResult_t weftWaitSignal(int nDesc, const weftWaitSignalDesc_t* signalDescs, weftComm_t comm,
                                     weftStream_t stream);

/* ---- Collectives of uneven parts ----
 * Counts and displacements (where a part begins, from the start of the buffer) are elements, one for each rank, in host
 * memory, read before the call returns. Buffers are host memory, stream NULL or of weftStreamCreate, or memory of the
 * communicator's device with a CUDA stream. A part may be empty.
 * Parts that are received must not overlap. What one rank says it sends another and that one says it receives must be
 * the same count, else weftMismatch names both on every rank. Every pair of ranks that has something to tell each other
 * does it directly: no rank passes on what is another's. On host memory they return when this rank's part is done.
 * Errors and threads: as weftAllReduce. */

/* Part q of rank p's sendbuff, sendcounts[q] elements from sdispls[q] on, becomes part p of rank q's recvbuff, there
 * recvcounts[p] elements from rdispls[p] on. The buffers are disjoint. */
WEFT_API weftResult_t weftAlltoAllv(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[],
                                    void* recvbuff, const size_t recvcounts[], const size_t rdispls[],
                                    weftDataType_t type, weftComm_t comm, weftStream_t stream);
/* The same on device memory with its counts there too, as routing of tokens to experts computes them: the four arrays,
 * in memory of the communicator's device, are read by a kernel in the stream's order, also at every replay of a graph,
 * so the host neither knows them nor waits; they and the buffers stay until that has run. Counts may be zero; a buffer
 * of which no part has any may be NULL. The other ranks may call either form. Errors as weftAlltoAllv, by that name
 * where two ranks differ, and weftInvalidArgument (memory that is not the device's). Found when the kernel runs: counts
 * that reach beyond the buffer's allocation of cudaMalloc (where it ends is not known of other device memory), a rank
 * that does not take what it gives itself, and parts that are received and overlap each other or what is sent; then
 * nothing of this rank moves, and the communicator is dead on all ranks, with a sentence (weftCommGetAsyncError,
 * weftGetLastError). */
WEFT_API weftResult_t weftAlltoAllvDeviceCounts(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[],
                                                void* recvbuff, const size_t recvcounts[], const size_t rdispls[],
                                                weftDataType_t type, weftComm_t comm, weftStream_t stream);
/* Every rank's `sendcount` elements into the root's recvbuff: those of rank r at displs[r], recvcounts[r] of them.
 * recvbuff, recvcounts and displs matter on the root only; in place there: sendbuff lies at its part of recvbuff. */
WEFT_API weftResult_t weftGatherv(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t recvcounts[],
                                  const size_t displs[], weftDataType_t type, int root, weftComm_t comm,
                                  weftStream_t stream);
/* Of the root's sendbuff sendcounts[r] elements from displs[r] on into rank r's recvbuff of `recvcount`. sendbuff,
 * sendcounts and displs matter on the root only; in place there: recvbuff lies at its part of sendbuff. */
WEFT_API weftResult_t weftScatterv(const void* sendbuff, const size_t sendcounts[], const size_t displs[],
                                   void* recvbuff, size_t recvcount, weftDataType_t type, int root, weftComm_t comm,
                                   weftStream_t stream);
/* Every rank's `sendcount` elements into every rank's recvbuff: those of rank r at displs[r], recvcounts[r] of them. In
 * place: sendbuff lies at its part of recvbuff. */
WEFT_API weftResult_t weftAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t recvcounts[],
                                     const size_t displs[], weftDataType_t type, weftComm_t comm, weftStream_t stream);

/* Combines the ranks' sendbuffs, which have a part for each rank, recvcounts[r] elements for rank r, one behind the
 * other; rank r receives part r. All ranks pass the same counts, type and op. In place: recvbuff lies at its part of
 * sendbuff. The contributions of all ranks to a part are held side by side on its rank until they are added, in rank
 * order: so much memory is kept for the next call. On device memory it is a weftReduce of each part. */
WEFT_API weftResult_t weftReduceScatterv(const void* sendbuff, void* recvbuff, const size_t recvcounts[],
                                         weftDataType_t type, weftRedOp_t op, weftComm_t comm, weftStream_t stream);

/* ---- Memory ---- */

/* Allocates `bytes` of host memory, zeroed, page aligned, that other processes of this host can map, and writes where
 * to `ptr`: an all-reduce whose buffers all come from here copies less from some 8 KiB on; so do other collectives and
 * messages that send from here, from 16 KiB on, if the sender's process had taken some of it before the two ranks first
 * spoke with each other. Thread-safe. Errors: weftInvalidArgument (null), weftSystemError (how much could not be had). */
WEFT_API weftResult_t weftMemAlloc(void** ptr, size_t bytes);
/* Allocates `bytes` of memory, not zeroed, on the CUDA device that is current in the calling thread, and writes its
 * address to `ptr`: virtual memory (cuMemCreate), in whole pages of the device, 2 MiB as a rule, that every GPU of this
 * process with peer access reaches, and that other processes of this host can map (weftCommRegister). On a device
 * without such memory it is of cuMemAlloc. Thread-safe; may be called during a capture. Errors: weftInvalidArgument
 * (null), weftInvalidUsage (no device is current, this build or WEFT_CUDA_LIBRARY has none), weftSystemError (how much
 * could not be had; there is no driver, or it is too old), weftUnhandledCudaError. */
WEFT_API weftResult_t weftMemAllocDevice(void** ptr, size_t bytes);
/* Returns `ptr`, memory of weftMemAlloc or weftMemAllocDevice; NULL is accepted. No collective or kernel may be using
 * it, and it is registered no more. Thread-safe. Errors: weftInvalidArgument (not from these, or freed before). */
WEFT_API weftResult_t weftMemFree(void* ptr);

/* Declares a buffer that will be used often, `bytes` bytes from `buff` on; `handle` receives what weftCommDeregister
 * takes. Host memory of weftMemAlloc needs no registration; other host memory cannot be mapped by peers, is accepted,
 * and works as before. Device memory of cudaMalloc, of weftMemAllocDevice, and other virtual memory (cuMemCreate, as in
 * expandable segments) that may be exported as file descriptors is mapped by the ranks of other processes, some 0.1 s
 * later, and large messages whose buffers are registered on every rank are then reduced where they lie (a graph does
 * for ever as it was captured: capture later than that). Other device memory is accepted and staged, and the log at INFO
 * says why; so are more than 32 allocations of a rank (of virtual memory: buffers, of 512 pieces at most), and virtual
 * memory that is not opened (cuMemSetAccess) for the devices of all ranks of this process. WindowRegistration is each rank's
 * own affair: nobody waits for others. Thread-bound. Errors: weftInvalidArgument (null), weftInvalidUsage (another
 * thread is inside). */
WEFT_API weftResult_t weftCommRegister(const weftComm_t comm, void* buff, size_t bytes, void** handle);
/* Ends what weftCommRegister's `handle` stands for, before the buffer is freed. Device memory: waits for this rank's
 * calls and until no other process maps it, some 0.1 s; but if other ranks have gone on to calls that wait for this
 * one, weftTimeout after two seconds: then the buffer must not be freed yet, and the handle is still good for another
 * try. So deregister on all ranks, and let a barrier of the host follow, before the next call on device memory. Graphs
 * that use the buffer must not be launched any more. weftCommDestroy does it too, as far as two seconds suffice.
 * Thread-bound.
 * Errors: weftInvalidArgument (no handle of this communicator), weftTimeout, weftInvalidUsage (another thread is
 * inside). */
WEFT_API weftResult_t weftCommDeregister(const weftComm_t comm, void* handle);

/* ---- Explanation ---- */

/* Writes, as text with one line per candidate, which algorithms could serve an all-reduce of `count` elements of `type`
 * with `op`, the time predicted for each, and which is chosen and why. Local. At most `capacity` bytes with the final 0
 * are written to text; `needed` (may be NULL) receives the full length with the final 0. Thread-bound.
 * Errors: weftInvalidArgument (no text for the capacity, type or op out of range), weftInvalidUsage (another thread is
 * inside). */
WEFT_API weftResult_t weftCommExplain(weftComm_t comm, size_t count, weftDataType_t type, weftRedOp_t op, char* text,
                                      size_t capacity, size_t* needed);
/* The same for any `collective` whose algorithm is chosen, by its name in logs: all_reduce, broadcast, reduce,
 * all_gather, reduce_scatter, all_to_all, gather, scatter, barrier. `count` as its call takes it; op and root are read
 * where the call has them. Errors: as weftCommExplain, and weftInvalidArgument for another name (the sentence lists
 * them) or root. Thread-bound. */
WEFT_API weftResult_t weftCommExplainCollective(weftComm_t comm, const char* collective, size_t count,
                                                weftDataType_t type, weftRedOp_t op, int root, char* text,
                                                size_t capacity, size_t* needed);

/* How many bytes of memory of the kind `stat` this communicator holds on this rank, into `bytes`. Thread-bound.
 * Errors: weftInvalidArgument (null, no such kind), weftInvalidUsage (another thread is inside). */
WEFT_API weftResult_t weftCommMemStats(weftComm_t comm, weftMemStat_t stat, uint64_t* bytes);

#ifdef __cplusplus
}
#endif
#endif
