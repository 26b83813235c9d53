// call.hpp: the frame of a call: in a group it is queued there, in a stream it is queued, and otherwise it blocks.
#pragma once
#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "python/binding/communicator.hpp"
#include "python/binding/group.hpp"
#include "python/binding/stream.hpp"

namespace weft::python {

namespace detail {
template <class... Arrays>
std::vector<Array> together(Arrays&... arrays) {
    std::vector<Array> all;
    all.reserve(sizeof...(arrays));
    (all.push_back(std::move(arrays)), ...);
    return all;
}
}  // namespace detail

// Makes `call(handle, stream)`. The arrays stay until the call is done: in the stream, in the group, or here.
template <class Call, class... Arrays>
void run(Comm& comm, nb::handle stream_object, Call&& call, Arrays&... arrays) {
    const StreamArgument stream(stream_object);
    const weftComm_t handle = comm.handle();
    if (OpenGroup* const group = OpenGroup::mine()) [[unlikely]] {
        comm.check(call(handle, stream.handle));
        group->keep(comm, stream, detail::together(arrays...));
    } else if (stream.host) {
        comm.check(unlocked([&] { return call(handle, stream.handle); }));
        stream.host->keep(comm, detail::together(arrays...));
    } else {
        Interruptible* const comms[] = {&comm};
        comm.check(without_gil(comms, [&] { return call(handle, stream.handle); }));
    }
}

}  // namespace weft::python
