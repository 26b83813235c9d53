/* weft.h: the C interface of Weft. Every weftX takes what ncclX takes, in the same order.
 *
 * Results: a call returns weftSuccess (0) or an error code. After an error weftGetLastError says in one sentence what
 * happened and what to do. A text that Weft returns is valid until this thread's next Weft call.
 * Arguments: `comm` is a communicator that was made and not destroyed. `datatype` is the type of every element of a
 * call. `stream` is described under Streams. NULL is refused where it is not said to be accepted. The caller guarantees
 * that a pointer leads to as much memory as the counts say.
 * Units: counts and displacements are elements. An argument is in bytes if its name ends in bytes, and so is
 * peerWinOffset, which has NCCL's name.
 * Memory: buffers are host memory, or memory of the communicator's device: the one that was current when the
 * communicator was made. All buffers of a call are of one kind. Managed memory is device memory if there is a device.
 * Streams: host memory with NULL: the call returns when it is done. Host memory with a stream of weftStreamCreate: the
 * call is queued and returns. Device memory with a CUDA stream of that device: the call is enqueued and returns; NULL
 * is the legacy stream. Calls of one communicator run in their order on any streams. A capturing stream records them.
 * Blocking: on a communicator with config.blocking = 0, calls on host memory without a stream return weftInProgress,
 * and weftCommGetAsyncError tells when they are done.
 * Threads: thread-safe: any number of threads at a time. Thread-bound: one thread for each communicator at a time; a
 * second one is refused with weftInvalidUsage.
 * Errors: weftInvalidArgument: an argument is wrong, nothing was done. weftInvalidUsage: the call is wrong at this
 * place (a second thread, an open group, a finalized communicator, a child after fork). weftMismatch: the ranks' calls
 * differ. weftRemoteError: a rank died, left or aborted. weftTimeout: no progress for the communicator's timeoutMs.
 * These two and weftSystemError name the rank or the resource.
 * Failure: after weftMismatch, weftRemoteError, weftTimeout, weftSystemError, weftUnhandledCudaError or the id
 * group.refused-call in a communication call, the communicator is dead on all ranks and received data is undefined.
 * Destroy it; the process may make new ones. A failed call returns when no running peer uses its buffers. A call on
 * device memory may fail after it has returned: weftCommGetAsyncError and the next call report that.
 * Process: a child of fork() makes its own communicators; calls on the parent's return weftInvalidUsage. No call is a
 * cancellation point; none may be made with PTHREAD_CANCEL_ASYNCHRONOUS.
 * Guide: docs/guide explains each subject: porting, launching, errors, groups and streams, windows, GPUs. */
#ifndef WEFT_H
#define WEFT_H

#include <weft/types.h>

#if defined(__cplusplus) && __cplusplus >= 201703L
#define WEFT_CHECKED [[nodiscard]]
#elif defined(__GNUC__)
#define WEFT_CHECKED __attribute__((warn_unused_result))
#else
#define WEFT_CHECKED
#endif

#if defined(__GNUC__)
#define WEFT_API WEFT_CHECKED __attribute__((visibility("default")))
#else
#define WEFT_API WEFT_CHECKED
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Information ---- */

/* Writes the version of the loaded library to `version`: 10000 * major + 100 * minor + patch.
 * Errors: weftInvalidArgument.
 * Thread-safe. */
WEFT_API weftResult_t weftGetVersion(int* version);

/* Returns a short constant English text for `result`. It is never NULL, also for an unknown code.
 * Thread-safe. */
WEFT_API const char* weftGetErrorString(weftResult_t result);

/* Returns the sentence of the newest error of `comm`, or of the calling thread if comm is NULL.
 * It ends with the error's id in brackets, as [mismatch.count]; `weft explain mismatch.count` explains the id.
 * It is empty if there was no error, never NULL, and valid until this thread's next Weft call.
 * Thread-safe. */
WEFT_API const char* weftGetLastError(weftComm_t comm);
/* Writes the id and the facts of the same error as data, into `info`.
 * comm  NULL: the newest error of the calling thread
 * info  initialised by WEFT_ERROR_INFO_INITIALIZER; the texts in it are constant
 * If there was no error, the id is empty and the code is weftSuccess. Thread-safe.
 * Errors: weftInvalidArgument (null, info not initialised). */
WEFT_API weftResult_t weftGetLastErrorInfo(weftComm_t comm, weftErrorInfo_t* info);

/* Writes the number of CUDA devices that this process sees to `count`; 0 without a driver, or in a build without GPU
 * support. It opens the driver, but makes no context.
 * Errors: weftInvalidArgument.
 * Thread-safe. */
WEFT_API weftResult_t weftGetDeviceCount(int* count);

/* Writes `text` to Weft's log, if the log shows INFO lines of the subsystem INIT: for libraries on top of Weft.
 * Errors: weftInvalidArgument.
 * Thread-safe. */
WEFT_API weftResult_t weftLogInfo(const char* text);

/* ---- Communicators ---- */

/* Makes an `id` for one communicator. One rank calls it and sends the 128 bytes to all other ranks.
 * The id holds a secret: send it over a private channel. It serves for one communicator.
 * The calling process opens a TCP port for ranks of other hosts and must live until all ranks have joined.
 * Errors: weftInvalidArgument (id is NULL, a wrong WEFT_SOCKET_ option), weftSystemError.
 * Thread-safe. */
WEFT_API weftResult_t weftGetUniqueId(weftUniqueId* id);

/* Joins the communicator of `id` as `rank`, 0 <= rank < nranks. `comm` receives its handle, or NULL after a failure.
 * Blocks until all `nranks` ranks have joined; inside a group weftGroupEnd does. The device whose primary context is
 * current in this thread (cudaSetDevice) becomes the communicator's, unless config.device names another one or none.
 * Weft does not initialise CUDA to find the current one.
 * config  settings from WEFT_CONFIG_INITIALIZER, or NULL; with blocking = 0 the call returns weftInProgress
 * Errors: weftInvalidArgument, weftMismatch (rank taken, other nranks or version), weftTimeout (names the missing
 * ranks), weftRemoteError (a rank or the id's process ended), weftSystemError.
 * Thread-safe. */
WEFT_API weftResult_t weftCommInitRankConfig(weftComm_t* comm, int nranks, weftUniqueId id, int rank,
                                             const weftConfig_t* config);
/* The same without a config. */
WEFT_API weftResult_t weftCommInitRank(weftComm_t* comm, int nranks, weftUniqueId id, int rank);

/* Makes `ndev` communicators in this process, ranks 0 to ndev - 1 of one group, and writes them to the array `comms`.
 * One thread drives them inside weftGroupStart and weftGroupEnd, or each has a thread of its own.
 * devlist  the CUDA device of each rank, or NULL for ranks without a device
 * Errors: weftInvalidArgument, weftTimeout, weftSystemError, weftUnhandledCudaError.
 * Thread-safe. */
WEFT_API weftResult_t weftCommInitAll(weftComm_t* comms, int ndev, const int* devlist);

/* Joins the communicator that the launcher's environment describes and writes it to `comm`.
 * Launchers: weft run, torchrun, Open MPI, MPICH, Intel MPI, PMI, PMIx, srun, Horovod, Kubernetes Indexed Jobs.
 * Without one it makes a communicator of one rank. Each call makes the job's next communicator, in the order of the
 * calls, so all ranks call it equally often. `config` may be NULL.
 * Errors: weftInvalidUsage (an incomplete set of variables, named), weftInvalidArgument, weftMismatch, weftTimeout,
 * weftRemoteError, weftSystemError.
 * Thread-safe. */
WEFT_API weftResult_t weftCommInitFromEnvironment(weftComm_t* comm, const weftConfig_t* config);

/* Makes new communicators from the ranks of comm: ranks with the same `color` >= 0 form one, ordered by `key`.
 * A negative color (WEFT_SPLIT_NOCOLOR) sets *newcomm to NULL. All ranks of comm call it, in one order with their other
 * calls. Blocks until the new communicator is made; inside a group weftGroupEnd does. Parent and child are independent.
 * newcomm  receives the new communicator; it has comm's device
 * config   may be NULL; undefined fields are as comm has them
 * Errors: weftInvalidArgument, weftInvalidUsage, weftTimeout (initTimeoutMs), weftMismatch, weftRemoteError,
 * weftSystemError. Thread-bound. */
WEFT_API weftResult_t weftCommSplit(weftComm_t comm, int color, int key, weftComm_t* newcomm,
                                    const weftConfig_t* config);

/* Makes `newcomm` from the ranks of comm without `excludeRanksList`, in their order. Only the remaining ranks call it.
 * excludeRanksList, excludeRanksCount  different ranks, at least one, the same on all callers; they may be dead
 * config       as for weftCommSplit
 * shrinkFlags  WEFT_SHRINK_DEFAULT: comm is healthy and stays usable. WEFT_SHRINK_ABORT: comm may have failed; calls in
 *              progress on it end with weftRemoteError, and only weftCommDestroy is left for it
 * Errors: weftInvalidArgument, weftInvalidUsage, weftTimeout (comm stays as it was), weftMismatch, weftRemoteError,
 * weftSystemError. Thread-bound. */
WEFT_API weftResult_t weftCommShrink(weftComm_t comm, int* excludeRanksList, int excludeRanksCount, weftComm_t* newcomm,
                                     const weftConfig_t* config, int shrinkFlags);

/* Waits until this rank's calls on device memory have ended, and for no other rank. It is not needed before
 * weftCommDestroy. Afterwards comm accepts queries, local settings, weftCommDestroy and weftCommAbort only.
 * Errors: weftInvalidUsage (finalized before, a group holds calls on comm), the error of a communicator that failed.
 * Thread-bound. */
WEFT_API weftResult_t weftCommFinalize(weftComm_t comm);

/* Leaves and frees the communicator. Calls that peers can still complete succeed. Blocks until this rank's calls on
 * device memory have ended; graphs with such calls must have finished and must not be launched again.
 * NULL is accepted. Using the handle afterwards is weftInvalidArgument.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage.
 * Thread-bound. */
WEFT_API weftResult_t weftCommDestroy(weftComm_t comm);

/* Stops the communicator on all ranks and frees it: calls in progress return weftRemoteError on other ranks and
 * weftInvalidUsage here. Returns when no call is inside any more. For a child of a split abort the parent first.
 * Errors: weftInvalidArgument (NULL, destroyed or aborted before), weftInvalidUsage (inside the group that makes comm, or
 * in a reduction function of a thread that executes calls on comm).
 * Thread-safe: also while another thread is inside a call on comm. */
WEFT_API weftResult_t weftCommAbort(weftComm_t comm);

/* Writes the error that has hit comm to `asyncError`, weftSuccess if there is none. Does not wait for calls.
 * If comm does not block, asyncError is weftInProgress while comm is made or has unfinished calls without a stream; the
 * first error of such calls is returned once. Between hosts the first report of a failure may take a second.
 * Errors: weftInvalidArgument, weftInvalidUsage (a child after fork).
 * Thread-safe. */
WEFT_API weftResult_t weftCommGetAsyncError(weftComm_t comm, weftResult_t* asyncError);

/* Writes the number of ranks of comm to `count`.
 * Errors: weftInvalidArgument, weftInvalidUsage (a child after fork).
 * Thread-safe. */
WEFT_API weftResult_t weftCommCount(const weftComm_t comm, int* count);

/* Writes this process's rank in comm to `rank`.
 * Errors: weftInvalidArgument, weftInvalidUsage (a child after fork).
 * Thread-safe. */
WEFT_API weftResult_t weftCommUserRank(const weftComm_t comm, int* rank);

/* Writes the number of comm's CUDA device in this process to `device`.
 * Errors: weftInvalidArgument, weftInvalidUsage (comm has no device, a child after fork).
 * Thread-safe. */
WEFT_API weftResult_t weftCommCuDevice(const weftComm_t comm, int* device);

/* Sets what later calls on comm ask for; `config` NULL returns to the communicator's own settings. Calls that were made
 * before keep theirs. `algo` and `channels` apply to collectives of equal parts and must be equal on all ranks.
 * `timeoutMs` applies to every call, `priority` to kernels on device memory.
 * Errors: weftInvalidArgument (no such algorithm, channels out of range, not initialised), weftInvalidUsage (more than
 * 255 different settings).
 * Thread-bound. */
WEFT_API weftResult_t weftCommSetCallConfig(weftComm_t comm, const weftCallConfig_t* config);

/* ---- Groups ---- */

/* Opens a group on this thread: the calls that follow begin together at weftGroupEnd. Groups nest; the outermost
 * counts. One thread drives several ranks in this way. The calls of one communicator go to one stream, or all to none.
 * A call with wrong arguments fails at once and is left out; the others are carried out.
 * Errors: weftSystemError (out of memory).
 * Thread-safe. */
WEFT_API weftResult_t weftGroupStart(void);

/* Closes a group. The outermost end carries its calls out; without streams it blocks until all are done.
 * Returns the first error of the calls; weftGetLastError names the call and its communicator.
 * Errors: weftInvalidUsage (no open group; a refused call would leave another rank of this thread waiting), and those
 * of the calls.
 * Thread-safe. */
WEFT_API weftResult_t weftGroupEnd(void);

/* Writes to `calls` how many calls, successful or not, the outermost group had that this thread ended last; 0 if none.
 * Calls of nested groups are included. weftPreparedStart counts as one call inside a group, and as a group of its own
 * outside one.
 * Errors: weftInvalidArgument.
 * Thread-safe. */
WEFT_API weftResult_t weftGroupGetCallCount(uint64_t* calls);

/* Tells how one call of that group ended.
 * call     its number, from 0, in the order in which the calls were made
 * result   receives weftSuccess, its error, or weftInProgress if a stream has not finished it. A call that failed
 *          because of another one has that one's code. On device memory weftSuccess means enqueued
 * message  NULL, or receives its sentence: empty without an error, valid until this thread's next Weft call
 * Errors: weftInvalidArgument (NULL, no such call).
 * Thread-safe. */
WEFT_API weftResult_t weftGroupGetCallError(uint64_t call, weftResult_t* result, const char** message);

/* Ends the outermost group and keeps its calls as `prepared` instead of carrying them out. It checks them once; their
 * buffers, streams and call configs stay as they are now. Local: no communication. The group must not make
 * communicators.
 * Errors: weftInvalidArgument, weftInvalidUsage (no open group, an inner one, it makes a communicator); after an error
 * the group is over all the same.
 * Thread-bound. */
WEFT_API weftResult_t weftGroupPrepare(weftPrepared_t* prepared);

/* Carries the calls of `prepared` out, as weftGroupEnd would; inside an open group they become part of that group.
 * All ranks start theirs in one order with their other calls.
 * Errors: weftInvalidArgument (it or its communicator was destroyed), weftInvalidUsage, and those of the calls.
 * Thread-bound, to the communicators of the calls. */
WEFT_API weftResult_t weftPreparedStart(weftPrepared_t prepared);

/* Frees `prepared`. Calls that were started and are in streams are still carried out. NULL is accepted.
 * Errors: weftInvalidArgument (destroyed before), weftInvalidUsage (a child after fork).
 * Thread-bound. */
WEFT_API weftResult_t weftPreparedDestroy(weftPrepared_t prepared);

/* ---- Streams for host memory ---- */

/* Makes a `stream` for calls on host memory: a queue and a thread that carries them out in order. A queued call checks
 * its arguments and returns. Its buffers and its reduction's scalar must stay valid until it is done; counts are
 * copied. An error of a queued call is reported by its communicator, and once by the stream, which continues.
 * priority  0, the highest, to WEFT_STREAM_LOWEST_PRIORITY: the nice value of the stream's thread
 * Errors: weftInvalidArgument, weftSystemError (no thread can be started).
 * Thread-safe. */
WEFT_API weftResult_t weftStreamCreateWithPriority(weftHostStream_t* stream, int priority);
/* The same with priority 0. */
WEFT_API weftResult_t weftStreamCreate(weftHostStream_t* stream);

/* Blocks until the stream's calls are done and frees it. NULL is accepted.
 * Errors: an error of its calls that was not reported yet (the stream is freed all the same), weftInvalidArgument
 * (destroyed before, not of weftStreamCreate), weftInvalidUsage (called by a function that the stream runs).
 * Thread-safe. */
WEFT_API weftResult_t weftStreamDestroy(weftHostStream_t stream);

/* Writes to `mark` how many calls the stream was given so far; a group is one call. The calls of an open group are not
 * counted. Errors: weftInvalidArgument (destroyed before, not of weftStreamCreate), weftInvalidUsage.
 * Thread-safe. */
WEFT_API weftResult_t weftStreamMark(weftHostStream_t stream, uint64_t* mark);

/* Returns weftSuccess if the stream has done its calls up to `mark`, else weftInProgress. Does not wait.
 * mark  of weftStreamMark, or WEFT_STREAM_ALL for all calls so far
 * Errors: the first error of these calls that was not reported yet, weftInvalidArgument, weftInvalidUsage.
 * Thread-safe. */
WEFT_API weftResult_t weftStreamTest(weftHostStream_t stream, uint64_t mark);

/* Blocks until the stream has done its calls up to `mark`, as weftStreamTest counts them.
 * timeoutMs  milliseconds to wait, then weftTimeout, after which nothing is broken; negative: as long as it takes
 * Errors: the first error of these calls that was not reported yet, weftTimeout, weftInvalidArgument, weftInvalidUsage
 * (called by a function that the stream runs).
 * Thread-safe. */
WEFT_API weftResult_t weftStreamWait(weftHostStream_t stream, uint64_t mark, int64_t timeoutMs);

/* ---- Reductions ---- */

/* Makes a reduction, `op`, that sums scalar_r * x_r: each rank r multiplies its elements by its own scalar.
 * scalar     one element of datatype, in the memory that residence names
 * residence  weftScalarHostImmediate: host memory, read at once; or weftScalarDevice: memory of the communicator's
 *            device, read by each call when it runs. Such a reduction is for calls on device memory only
 * Local: no communication. The product is rounded to the datatype.
 * Errors: weftInvalidArgument, weftInvalidUsage.
 * Thread-bound. */
WEFT_API weftResult_t weftRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t datatype,
                                               weftScalarResidence_t residence, weftComm_t comm);

/* Makes a reduction, `op`, from a C function, for elements in host memory. Local: no communication. All ranks use such
 * a reduction for a call, or none does, with the same `commutative`.
 * function     see weftRedOpFunction_t
 * context      is passed to the function; host memory or NULL
 * commutative  1: operands in any order; 0: in rank order, rank 0 on the left
 * Errors: weftInvalidArgument, weftInvalidUsage.
 * Thread-bound. */
WEFT_API weftResult_t weftRedOpCreate(weftRedOp_t* op, weftRedOpFunction_t function, void* context,
                                      weftDataType_t datatype, int commutative, weftComm_t comm);

/* Frees `op`, made by weftRedOpCreate or weftRedOpCreatePreMulSum on comm. weftCommDestroy frees it too.
 * Errors: weftInvalidArgument (not made so), weftInvalidUsage (a group holds calls with it).
 * Thread-bound. */
WEFT_API weftResult_t weftRedOpDestroy(weftRedOp_t op, weftComm_t comm);

/* ---- Collectives ---- */

/* Reduces `count` elements across all ranks; every rank receives the same bits.
 * sendbuff, recvbuff   count elements each, host memory or device memory; equal (in place) or disjoint; NULL only if
 *                      count is 0
 * count, datatype, op  equal on all ranks, otherwise weftMismatch names both ranks
 * stream               host memory: NULL or a host stream; device memory: a CUDA stream, asynchronous
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftAllReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                                    weftRedOp_t op, weftComm_t comm, weftStream_t stream);

/* Copies the `count` elements of rank `root` to every rank.
 * sendbuff  count elements on the root, host or device memory, may be its recvbuff; ignored on other ranks, may be NULL
 * recvbuff  count elements on every rank
 * Host memory without a stream: returns when this rank's part is done.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftBroadcast(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                                    int root, weftComm_t comm, weftStream_t stream);
/* The same with one buffer, `buff`, on every rank. */
WEFT_API weftResult_t weftBcast(void* buff, size_t count, weftDataType_t datatype, int root, weftComm_t comm,
                                weftStream_t stream);

/* Reduces `count` elements across all ranks with `op`; rank `root` receives the result.
 * sendbuff  count elements on every rank, host or device memory
 * recvbuff  count elements on the root, may be its sendbuff; ignored on other ranks, may be NULL
 * Host memory without a stream: returns when this rank's part is done.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftReduce(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                                 weftRedOp_t op, int root, weftComm_t comm, weftStream_t stream);

/* Gathers the elements of all ranks on every rank, in rank order.
 * sendbuff  `sendcount` elements, host or device memory
 * recvbuff  nranks * sendcount elements; in place if sendbuff is part `rank` of it
 * Host memory without a stream: returns when this rank's part is done.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, weftDataType_t datatype,
                                    weftComm_t comm, weftStream_t stream);

/* Reduces across all ranks with `op`; rank r receives part r of the result.
 * sendbuff  nranks * recvcount elements, host or device memory
 * recvbuff  `recvcount` elements; in place if it is part `rank` of sendbuff
 * Host memory without a stream: returns when this rank's part is done.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, weftDataType_t datatype,
                                        weftRedOp_t op, weftComm_t comm, weftStream_t stream);

/* Copies part q of rank p's sendbuff to part p of rank q's recvbuff, for all ranks p and q.
 * sendbuff, recvbuff  nranks * `count` elements each, host or device memory; disjoint
 * Host memory without a stream: returns when this rank's part is done.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftAlltoAll(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype,
                                   weftComm_t comm, weftStream_t stream);

/* Gathers the elements of all ranks on rank `root`, in rank order.
 * sendbuff  `count` elements, host or device memory
 * recvbuff  nranks * count elements on the root, in place there if sendbuff is part root of it. Other ranks: ignored
 * Host memory without a stream: returns when this rank's part is done.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftGather(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype, int root,
                                 weftComm_t comm, weftStream_t stream);

/* Copies part r of rank `root`'s sendbuff to rank r, for all ranks r.
 * sendbuff  nranks * `count` elements on the root, host or device memory; ignored on other ranks
 * recvbuff  count elements; in place on the root if it is part root of sendbuff
 * Host memory without a stream: returns when this rank's part is done.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftScatter(const void* sendbuff, void* recvbuff, size_t count, weftDataType_t datatype, int root,
                                  weftComm_t comm, weftStream_t stream);

/* Ends when every rank has called it.
 * stream  NULL: a barrier of the host, blocking; a host stream: the same, queued; a CUDA stream: work behind it begins
 *         when the streams of all ranks have reached it. The legacy CUDA stream is CU_STREAM_LEGACY here, not NULL
 * All ranks use a CUDA stream, or none does, otherwise weftMismatch.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftBarrier(weftComm_t comm, weftStream_t stream);

/* ---- Messages between two ranks ---- */

/* Sends `count` elements to rank `peer`. The n-th send to a rank matches that rank's n-th receive from this one; both
 * have one count and datatype, otherwise weftMismatch. A rank that sends to itself receives in the same group.
 * sendbuff  host or device memory, as the receiver's buffer is; NULL if count is 0
 * Host memory without a stream, outside a group: returns when sendbuff may be reused. Messages of a group go on side by
 * side, in any order. On device memory a group or weftSendRecv is needed if both ranks send to each other.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftSend(const void* sendbuff, size_t count, weftDataType_t datatype, int peer, weftComm_t comm,
                               weftStream_t stream);

/* Receives `count` elements from rank `peer`, as weftSend matches them.
 * recvbuff  host or device memory, as the sender's buffer is; NULL if count is 0
 * Host memory without a stream, outside a group: returns when the data is there.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftRecv(void* recvbuff, size_t count, weftDataType_t datatype, int peer, weftComm_t comm,
                               weftStream_t stream);

/* Sends and receives at once, as a group of weftSend and weftRecv does.
 * sendbuff, sendcount, dest    elements, host or device memory, to rank dest
 * recvbuff, recvcount, source  elements from rank source; the buffers are disjoint
 * dest and source may be equal, and may be this rank.
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftSendRecv(const void* sendbuff, size_t sendcount, int dest, void* recvbuff, size_t recvcount,
                                   int source, weftDataType_t datatype, weftComm_t comm, weftStream_t stream);

/* ---- Windows: one-sided calls ---- */

/* Makes this rank's memory part of a window, `win`, that all ranks can access. Blocks until all ranks have registered;
 * all call it, in one order with their other calls. In a group, or if comm does not block, *win is set at once.
 * buff, bytes  host memory (fastest: of weftHostAlloc) or device memory; sizes may differ; NULL if bytes is 0
 * winFlags     WEFT_WIN_DEFAULT; NCCL's values 1 and 2 are accepted and change nothing
 * Errors: weftInvalidArgument, weftInvalidUsage (memory that no window can have; comm stays usable), weftMismatch,
 * weftRemoteError, weftTimeout, weftSystemError, weftUnhandledCudaError. *win is NULL or names no window then.
 * Thread-bound. */
WEFT_API weftResult_t weftCommWindowRegister(weftComm_t comm, void* buff, size_t bytes, weftWindow_t* win,
                                             int winFlags);

/* Ends `win`. Blocks until all ranks have called it and every put has arrived; then the memory may be freed.
 * On a dead communicator it waits two seconds at most, and only for ranks that access this rank's part.
 * Graphs that use the window must not be launched any more.
 * Errors: weftInvalidArgument (no window of comm), weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout,
 * weftSystemError, weftUnhandledCudaError.
 * Thread-bound. */
WEFT_API weftResult_t weftCommWindowDeregister(weftComm_t comm, weftWindow_t win);

/* Writes the address of this rank's part of `win` to `outUserPtr`; it is the host or device memory that was registered.
 * Errors: weftInvalidArgument (no window of comm, deregistered before).
 * Thread-safe. */
WEFT_API weftResult_t weftWinGetUserPtr(weftComm_t comm, weftWindow_t win, void** outUserPtr);

/* Writes `count` elements of localbuff to rank `peer`'s part of a window. Returns, or completes in its stream, when
 * localbuff may be reused. The data is visible at the peer when it has waited for a later signal of this rank.
 * localbuff               host or device memory, as the window's is; equal to the target or disjoint
 * peerWin, peerWinOffset  this rank's handle of the window, and bytes from the start of the peer's part
 * Errors: weftInvalidArgument (nothing was written), weftInvalidUsage (not registered yet), weftRemoteError,
 * weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftPut(const void* localbuff, size_t count, weftDataType_t datatype, int peer,
                              weftWindow_t peerWin, size_t peerWinOffset, weftComm_t comm, weftStream_t stream);

/* Puts `count` elements of localbuff as weftPut does, then sends signal `sigIdx` of context `ctx` to rank `peer`.
 * localbuff               host or device memory, as the window's is
 * peerWin, peerWinOffset  this rank's handle of the window, and bytes from the start of the peer's part
 * sigIdx, ctx             0 to WEFT_SIGNALS - 1 and 0 to WEFT_SIGNAL_CONTEXTS - 1
 * flags                   0
 * Errors: weftInvalidArgument, weftInvalidUsage, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftPutSignal(const void* localbuff, size_t count, weftDataType_t datatype, int peer,
                                    weftWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
                                    weftComm_t comm, weftStream_t stream);

/* Reads `count` elements of rank `peer`'s part of a window into localbuff. Returns, or completes in its stream, when
 * the data is there. It sees what this rank has put there before.
 * localbuff               host or device memory, as the window's is; equal to the source or disjoint
 * peerWin, peerWinOffset  this rank's handle of the window, and bytes from the start of the peer's part
 * Errors: weftInvalidArgument, weftInvalidUsage (not registered yet), weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftGet(void* localbuff, size_t count, weftDataType_t datatype, int peer, weftWindow_t peerWin,
                              size_t peerWinOffset, weftComm_t comm, weftStream_t stream);

/* Sends signal `sigIdx` of context `ctx` to rank `peer`, behind all earlier puts and signals of this rank to it.
 * comm must have had a window. `flags` is 0. With a CUDA stream it is a signal of device memory, else of host memory.
 * Errors: weftInvalidArgument, weftInvalidUsage (no window was registered), weftRemoteError, weftTimeout,
 * weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftSignal(int peer, int sigIdx, int ctx, unsigned int flags, weftComm_t comm,
                                 weftStream_t stream);

/* Waits for the signals that the `nDesc` entries of `signalDescs` (copied) describe, and subtracts them from their
 * counters. Everything that their senders put before is visible then. Signals sent with device data, or on a CUDA
 * stream, are waited for on a CUDA stream.
 * Errors: weftInvalidArgument, weftInvalidUsage (no window was registered), weftRemoteError, weftTimeout (names the
 * sender), weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftWaitSignal(int nDesc, const weftWaitSignalDesc_t* signalDescs, weftComm_t comm,
                                     weftStream_t stream);

/* ---- Collectives of uneven parts ---- */

/* Copies part q of rank p's sendbuff to part p of rank q's recvbuff, for all ranks p and q.
 * sendcounts, sdispls  part q: sendcounts[q] elements from element sdispls[q] of sendbuff; host memory, copied
 * recvcounts, rdispls  the same of recvbuff; received parts do not overlap; both sides of a part have one count
 * sendbuff, recvbuff   host or device memory; disjoint
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch (names both counts), weftRemoteError, weftTimeout,
 * weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftAlltoAllv(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[],
                                    void* recvbuff, const size_t recvcounts[], const size_t rdispls[],
                                    weftDataType_t datatype, weftComm_t comm, weftStream_t stream);
/* The same on device memory, with the four arrays of elements there too: a kernel reads them in the stream's order, at
 * each replay of a graph again. The host does not wait for them. Arrays and buffers stay valid until the call has run.
 * Other ranks may call weftAlltoAllv. Wrong counts are found when the kernel runs: then the communicator is dead.
 * Errors: weftInvalidArgument (memory that is not the device's), weftInvalidUsage, weftMismatch, weftRemoteError,
 * weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftAlltoAllvDeviceCounts(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[],
                                                void* recvbuff, const size_t recvcounts[], const size_t rdispls[],
                                                weftDataType_t datatype, weftComm_t comm, weftStream_t stream);

/* Gathers a part of each rank on rank `root`.
 * sendbuff, sendcount  elements of this rank, host or device memory
 * recvcounts, displs   part r: recvcounts[r] elements at element displs[r] of recvbuff; host memory, copied
 * recvbuff             on the root, in place if sendbuff is its part; the last three are ignored on other ranks
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftGatherv(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t recvcounts[],
                                  const size_t displs[], weftDataType_t datatype, int root, weftComm_t comm,
                                  weftStream_t stream);

/* Copies a part of rank `root`'s sendbuff to each rank.
 * sendcounts, displs   part r: sendcounts[r] elements at element displs[r] of sendbuff; host memory, copied
 * sendbuff             on the root, host or device memory; these three are ignored on other ranks
 * recvbuff, recvcount  elements of this rank; in place on the root if recvbuff is its part of sendbuff
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftScatterv(const void* sendbuff, const size_t sendcounts[], const size_t displs[],
                                   void* recvbuff, size_t recvcount, weftDataType_t datatype, int root, weftComm_t comm,
                                   weftStream_t stream);

/* Gathers a part of each rank on every rank.
 * sendbuff, sendcount  elements of this rank, host or device memory; in place if it is its part of recvbuff
 * recvcounts, displs   part r: recvcounts[r] elements at element displs[r] of recvbuff; host memory, copied
 * recvbuff             holds all parts
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t recvcounts[],
                                     const size_t displs[], weftDataType_t datatype, weftComm_t comm,
                                     weftStream_t stream);

/* Reduces across all ranks with `op`; rank r receives part r. The parts lie in sendbuff one behind the other.
 * sendbuff    the sum of recvcounts in elements, host or device memory
 * recvbuff    recvcounts[rank] elements; in place if it is this rank's part of sendbuff
 * recvcounts  elements of each rank's part, equal on all ranks; host memory, copied
 * Errors: weftInvalidArgument, weftInvalidUsage, weftMismatch, weftRemoteError, weftTimeout, weftSystemError.
 * Thread-bound. */
WEFT_API weftResult_t weftReduceScatterv(const void* sendbuff, void* recvbuff, const size_t recvcounts[],
                                         weftDataType_t datatype, weftRedOp_t op, weftComm_t comm, weftStream_t stream);

/* ---- Memory ---- */

/* Allocates `bytes` of device memory, not zeroed, on the CUDA device that is current in this thread, and writes its
 * address to `ptr`. All GPUs of this process with peer access reach it, and other processes of the host can map it.
 * Its size is rounded up to whole pages of the device, usually 2 MiB. May be called during a capture.
 * Errors: weftInvalidArgument, weftInvalidUsage (no device: weftHostAlloc allocates host memory), weftSystemError (out
 * of memory), weftUnhandledCudaError.
 * Thread-safe. */
WEFT_API weftResult_t weftMemAlloc(void** ptr, size_t bytes);

/* Allocates `bytes` of host memory, zeroed, in whole pages, that other ranks of this host can map, and writes its
 * address to `ptr`. Calls on it save a copy, from a few KiB on. Allocate it before the first call on a communicator.
 * Errors: weftInvalidArgument, weftSystemError (out of memory).
 * Thread-safe. */
WEFT_API weftResult_t weftHostAlloc(void** ptr, size_t bytes);

/* Frees `ptr`, host memory of weftHostAlloc or device memory of weftMemAlloc. NULL is accepted. No call may be using
 * the memory, and it must not be registered any more.
 * Errors: weftInvalidArgument (not of these calls, or freed before).
 * Thread-safe. */
WEFT_API weftResult_t weftMemFree(void* ptr);

/* Registers a buffer of `bytes` bytes that is used often. Local: it waits for no rank. Registered device memory is
 * mapped by the other processes of the host soon afterwards, and large messages are then reduced in place. If peers
 * are reached by RDMA, registered host memory is pinned, and messages of at least 32 KiB are sent and received without
 * a copy. If a call fails, buffers that the network may still write to are registered no more.
 * buff    device memory of cudaMalloc, weftMemAlloc or cuMemCreate, or host memory; other memory is accepted
 * handle  receives the argument of weftCommDeregister
 * Errors: weftInvalidArgument, weftInvalidUsage.
 * Thread-bound. */
WEFT_API weftResult_t weftCommRegister(const weftComm_t comm, void* buff, size_t bytes, void** handle);

/* Ends a registration; call it before the buffer is freed, on all ranks, then a barrier of the host.
 * For device memory it waits for this rank's calls and until no other process maps the buffer. Graphs that use the
 * buffer must not be launched any more.
 * handle  of weftCommRegister, for host or device memory
 * Errors: weftInvalidArgument (no handle of comm), weftTimeout (peers still wait in calls after two seconds: the buffer
 * must stay, and the call may be repeated), weftInvalidUsage.
 * Thread-bound. */
WEFT_API weftResult_t weftCommDeregister(const weftComm_t comm, void* handle);

/* ---- Explanation ---- */

/* Writes a text with the algorithms that can serve a collective, one per line: the predicted time, the choice, and why.
 * collective                 all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, gather, scatter or
 *                            barrier
 * count, datatype, op, root  as the call takes them: count in elements; op and root are read if the call has them
 * text, capacityBytes        receives at most capacityBytes bytes with the final 0; NULL if capacityBytes is 0
 * neededBytes                NULL, or receives the size of the whole text in bytes with the final 0
 * Errors: weftInvalidArgument, weftInvalidUsage.
 * Thread-bound. */
WEFT_API weftResult_t weftCommExplainCollective(weftComm_t comm, const char* collective, size_t count,
                                                weftDataType_t datatype, weftRedOp_t op, int root, char* text,
                                                size_t capacityBytes, size_t* neededBytes);
/* The same for an all-reduce. */
WEFT_API weftResult_t weftCommExplain(weftComm_t comm, size_t count, weftDataType_t datatype, weftRedOp_t op,
                                      char* text, size_t capacityBytes, size_t* neededBytes);

/* Writes to `bytes` how much memory of the kind `stat` this communicator holds on this rank.
 * Errors: weftInvalidArgument (no such kind), weftInvalidUsage.
 * Thread-bound. */
WEFT_API weftResult_t weftCommMemStats(weftComm_t comm, weftMemStat_t stat, uint64_t* bytes);

#ifdef __cplusplus
}
#endif
#endif
