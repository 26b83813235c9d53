// api.hpp: how a test steers the fake libibverbs (fake.hpp says what it does). Programs take these functions by dlsym
// from the library that they gave as WEFT_VERBS_LIBRARY. The variable FAKE_IBVERBS has the same statements, which run
// when the library is loaded. Semicolons separate the statements.
//
// The world. The first `device` replaces the default devices fake0 and fake1.
//   `device NAME [PORTS]`: a device with one port, or so many. The other statements call its port 2 NAME:2.
//   `no_devices`: removes all. None may be open.
//   `layer NAME 1|2`: InfiniBand (LID 1 and up), Ethernet. `transport NAME TYPE`: 0 InfiniBand and RoCE, 1 iWARP.
//   `mtu NAME 1..5`: the active MTU. `speed NAME WIDTH SPEED`: as in ibv_port_attr. `grh NAME 0|1`: requires a GRH.
//   `gid NAME INDEX GROUPS TYPE IFINDEX`: "fe80:0000:...", 0 InfiniBand, 1 RoCE v1, 2 RoCE v2. Replaces the row.
//   `no_gids NAME`: an empty table. `refuse_gid NAME INDEX ERRNO`: no address and no path is made with this GID;
//   0: they are. `refuse_path NAME INDEX ERRNO`: only no path.
//   `pkey NAME INDEX VALUE`: a partition key.
//   `ece_options FIRST SECOND`: the ECE options of queue pairs, in turns as they are made (3 3); -1: they have no ECE.
//   Messages between queue pairs that use different options are lost.
//   `max_qp N; max_inline N; memlock BYTES; ece ERRNO; fork STATUS`: limits and answers.
// Memory of GPUs, which are those of tests/fake_cuda.
//   `dma_buf ERRNO`: registrations of dma-bufs fail so (EBADF: they are taken). `peermem 0|1`: the address of device memory
//   can be registered. `unflushed 0|1`: with 1 kernels see a device's writes only after that device has read something.
// Order and time.
//   `seed N`: of all random choices.
//   `reorder 0|1`: with 1 data lands in pieces, in any order that IBTA allows; with 0 at once.
//   `hold US`: data may wait so long before it lands (50).
//   `late US`: a receive completion may wait so long after its data (0).
// Observation.
//   `watch ADDRESS BYTES`: "watched" counts the bytes that later requests read or write there, on the side that posts, and
//   "landed" those that requests of peers write there.
// Faults, each once, counted from now on.
//   `fail FUNCTION K ERRNO`: the K-th call of it fails: ibv_reg_mr, post_send, poll_cq.
//   `no_failures`: forgets the failures that are left.
//   `complete STATUS K`: the K-th request that succeeds completes with the status, and fails its queue pair.
//   `old_key K`: the K-th write without immediate data has the key of the first one.
//   `lose K COUNT`: COUNT requests from the K-th on are lost on the way.
//   `hole NAME BYTES`: every request on the port with more bytes is lost on the way; 0: none.
//   `port NAME down|up`: also raises the event.
//   `down_status STATUS`: requests to a port that is down fail so at once; 0: after the retries.
//   `event NAME TYPE [QPN]`: raises an asynchronous event. After that of a queue's error, its completions are lost.
//   `overrun NAME K`: the completion queue of the K-th queue pair that becomes ready to receive overruns then.
//   `remove NAME [loses]`: the device is gone; with the word, before data that it acknowledged is in memory.
//   `restore NAME`: it is there again.
//   `no_faults`: forgets the faults and statements that have not come yet.
//   `after K STATEMENT`: runs the statement when this process sends its K-th request.
#pragma once

extern "C" {
// 0, or the position (from 1) of the first statement that it does not know.
int fake_ibverbs_do(const char* statements);
// Objects that exist now: contexts, domains, regions, channels, queues and queue pairs.
int fake_ibverbs_objects();
// Events that every test of recovery wants to see: "lost", "resent", "duplicate", "rnr", "reordered". "watched", "landed";
// "held": writes to the memory of GPUs that waited for a flush, and "flushes".
// The name of a device: the requests that this process has sent on it.
unsigned long fake_ibverbs_count(const char* what);
}
