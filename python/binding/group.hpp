// group.hpp: weft.group() and weft.prepare(): the open group of a thread, and prepared calls.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/weft.h>

#include <memory>
#include <vector>

#include "python/binding/array.hpp"

namespace weft::python {

class Comm;
class HostStream;
struct StreamArgument;

// Memory, communicators and streams that the calls of a group need until they are done.
struct GroupContents {
    // Shared with the streams, which must not keep themselves. It keeps the communicators, too.
    std::shared_ptr<std::vector<Array>> arrays = std::make_shared<std::vector<Array>>();
    std::vector<nb::object> comms;    // each once
    std::vector<nb::object> made;     // communicators that the group makes
    std::vector<nb::object> streams;  // each once

    std::vector<Comm*> targets() const;
    void add(Comm& comm);
    int visit(visitproc visit, void* arg) const;
};

// The group that is open on this thread. Needs the GIL.
class OpenGroup {
  public:
    // Null outside a group.
    static OpenGroup* mine();

    void keep(Comm& comm);
    void keep_made(Comm& comm);
    void keep(Comm& comm, const StreamArgument& stream, std::vector<Array> arrays);

  private:
    friend void bind_group(nb::module_& module);
    static void start();
    static void end();
    static void discard();
    friend class PreparedCalls;

    int depth_ = 0;
    GroupContents contents_;
};

// Owns a weftPrepared_t and the contents of its calls. Needs the GIL.
class PreparedCalls {
  public:
    // Ends the thread's group and keeps its calls.
    PreparedCalls();
    PreparedCalls(const PreparedCalls&) = delete;
    ~PreparedCalls();
    void start();
    void close();
    int visit(visitproc visit, void* arg) const { return contents_.visit(visit, arg); }

  private:
    weftPrepared_t handle_ = nullptr;
    int process_;
    GroupContents contents_;
};

void bind_group(nb::module_& module);

}  // namespace weft::python
