// control.hpp: the controls of the fake driver and the questions that tests ask it, beside the driver's interface.
// Thread-safe.
//
// A setting is a text of statements, each on a line or ended by a semicolon. The variable FAKE_CUDA holds the first one
// (or @PATH, a file's). Devices are numbers, or * for all.
//
//   gpus N                  devices (2)                version V         of CUDA, cuDriverGetVersion's answer (13000)
//   sm S                    compute capability (90)    multiprocessors N of each device (16)
//
//   memory_mb N             of each device (4096)      attribute G NUMBER VALUE   CU_DEVICE_ATTRIBUTE_* by number
//
//   p2p A B 0|1|lies        may A reach B (1); lies: yes, but one process never sees the other's writes
//
//   nvlink G LINK B|switch|down|hidden  an NVLink of G: to B, to a switch, to one that a virtual machine does not see
//
//   fabric G CLIQUE         the device is in an NVLink domain, with those of this clique on all hosts (* for all)
//
//   imex 0|1                an IMEX channel, without which fabric handles are not permitted (1)
//
//   c2c G LINKS MBS         NVLink-C2C to the cpu      lost G            NVML lists the device, but it fell off the bus
//
//   fault NAME K CODE       the K-th call of the function fails (0: every one)
//
//   fault NAME K sleep MS   or sleeps
//   fault NAME K dies       or is killed in it, with all its process
//
//   queue N                 work that a stream holds before a call that adds to it waits (1024)
//
//   queues N                hardware queues of a context, which streams share (0: one for each stream)
//
//                           A launch leaves its queue when it begins, an event or a wait for one when it is done.
//
//   sync NAME 0|1           the function waits for the work of the current context, as a real one may (0)
//
//   stack PREFIX BYTES      of a thread of the kernels whose names begin so (0)
//
//   local_memory BYTES      stack that a context has for each thread (1024). A launch that needs more waits for the
//                           context's work, then the context has as much.
//
//   slices FILE MS          processes with this file take turns of MS: blocks of one process run at a time. The file is new.
//                           Its first 8 bytes count the turns.
//
//   multicast N             devices of a multicast object at least (2); devices have attribute 132, too
//
//   leaks fatal             a leak at the end of the process: exit status 86
#pragma once
#include <string>

namespace weft::internal::fake {

// Forgets everything and begins anew, uninitialised, with this setting. Returns what was not given back, a line for
// each; empty if nothing. Work that never ends is a hang here: tests end it first.
std::string reset(const std::string& setting);
// Further statements, of faults above all, counted from now.
void add_setting(const std::string& statements);
// The leaks at this moment.
std::string leaks();
// How often the function was called: cuMemAlloc, without version.
int calls(const std::string& function);
// Of all functions.
int calls();
// Blocks of kernels that run on the device at this moment.
int running_blocks(int device);
// A CUcontext beside the device's primary one, as cuCtxCreate makes, which has another form in each version of CUDA. Not
// made current. Its streams are destroyed before it.
void* make_context(int device);
void destroy_context(void* context);
// How many streams have been destroyed while they had work to do, which goes on.
int streams_destroyed_early();
// How often a function was given the handle of a destroyed stream, for which CUDA defines no behaviour.
int uses_of_destroyed_streams();
// Of the kernel launched last.
int last_blocks();
// Of the kernel launched last; INT_MIN: its stream's.
int last_priority();

}  // namespace weft::internal::fake
