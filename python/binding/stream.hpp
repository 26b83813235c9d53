// stream.hpp: weft.Stream, a stream for host memory, and the argument `stream` of calls.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/weft.h>

#include <cstdint>
#include <deque>
#include <list>
#include <vector>

#include "python/binding/array.hpp"

namespace weft::python {

class Comm;

// Owns a host stream, and keeps the memory of its calls until they are done. Needs the GIL.
class HostStream {
  public:
    explicit HostStream(int priority);
    HostStream(const HostStream&) = delete;
    ~HostStream();

    weftStream_t handle() const;
    uint64_t mark() const;
    bool done(uint64_t mark);
    // Python's signal handlers run while it waits. A negative timeout waits without limit.
    void wait(uint64_t mark, int64_t timeout_ms);
    void close();
    // Keeps the memory, and the communicator, of the call that was given last.
    void keep(Comm& comm, std::vector<Array> arrays);

    // Waits a second for the calls of all streams, then aborts the communicators of those that are left.
    static void end_all();

  private:
    struct Call {
        uint64_t mark;
        nb::object comm;
        std::vector<Array> arrays;
    };
    // A stream whose object has ended before its calls: the end of an object waits for no other rank.
    struct Orphan {
        weftHostStream_t handle;
        int process;
        std::deque<Call> calls;
    };
    static std::list<Orphan>& orphans();
    static void destroy(weftHostStream_t handle);
    static void destroy_orphans();
    // Forgets calls that are done. Their first error stays for done() and wait().
    void forget_done();
    void raise_kept();
    [[noreturn]] void raise_newest(weftResult_t result);

    weftHostStream_t handle_ = nullptr;
    int process_;
    std::deque<Call> calls_;
    nb::object error_;
};

// The argument `stream`: None, a weft.Stream, an address, or a CUDA stream of torch, cupy or cuda.core.
struct StreamArgument {
    explicit StreamArgument(nb::handle object);

    weftStream_t handle = nullptr;
    HostStream* host = nullptr;
    nb::object object;  // keeps `host` alive
};

void bind_stream(nb::module_& module);

}  // namespace weft::python
