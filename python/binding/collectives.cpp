// collectives.cpp: the collectives of weft.Communicator. They check sizes, because the library takes counts only.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "python/binding/bindings.hpp"
#include "python/binding/call.hpp"
#include "python/binding/reduction.hpp"

namespace weft::python {

namespace {

// The counts or displacements of all ranks.
std::vector<size_t> sizes(nb::handle values, const char* name, size_t ranks) {
    std::vector<size_t> found;
    for (nb::handle value : nb::borrow<nb::object>(values)) {
        nb::object number = nb::steal(PyNumber_Index(value.ptr()));
        const Py_ssize_t size = number.is_valid() ? PyLong_AsSsize_t(number.ptr()) : -1;
        if (PyErr_Occurred()) throw nb::python_error();
        if (size < 0) refuse("python.size", std::string(name) + " has a negative number. Pass elements, from 0");
        found.push_back(size_t(size));
    }
    if (found.size() != ranks)
        refuse("python.size", std::string(name) + " has " + std::to_string(found.size()) + " numbers for " +
                                  std::to_string(ranks) + " ranks. Give one for each rank");
    return found;
}

// One part for each rank: counts, and where the parts begin. Checked against the array.
struct Parts {
    Parts(const Array& array, const char* name, nb::handle given_counts, nb::handle given_displacements, size_t ranks)
        : counts(sizes(given_counts, "counts", ranks)) {
        if (given_displacements.is_none()) {
            size_t begin = 0;
            for (const size_t count : counts) {
                displacements.push_back(begin);
                begin += count;
            }
        } else {
            displacements = sizes(given_displacements, "displacements", ranks);
        }
        for (size_t rank = 0; rank < ranks; ++rank)
            if (counts[rank] > array.count() || displacements[rank] > array.count() - counts[rank])
                refuse("python.size", "the part of rank " + std::to_string(rank) + " ends at element " +
                                          std::to_string(displacements[rank] + counts[rank]) + ", but " + name +
                                          " has " + std::to_string(array.count()) +
                                          " elements. Correct the counts or the array");
    }
    std::vector<size_t> counts, displacements;
};

constexpr const char* as_x = "as x";
constexpr const char* each_rank = "as many as x for each rank";

// The other ranks' argument of a rooted call.
void check_root(Comm& comm, int root) {
    if (root < 0 || root >= comm.size())
        refuse("argument.rank",
               "root is " + std::to_string(root) + "; it must be a rank from 0 to " + std::to_string(comm.size() - 1));
}

nb::object all_reduce(Comm& comm, nb::handle x, nb::handle out, nb::handle op_object, nb::handle stream) {
    // One object in place is read once.
    if (x.is(out)) {
        Array array(x, "x", Access::write);
        const OpArgument op(op_object, array);
        Array kept = Array::keeping(op.kept);
        run(
            comm, stream,
            [data = array.data(), count = array.count(), type = array.type(), number = op.op](weftComm_t handle,
                                                                                              weftStream_t queue) {
                return weftAllReduce(data, data, count, type, number, handle, queue);
            },
            array, kept);
        return nb::borrow(out);
    }
    Array from(x, "x", Access::read), to(out, "out", Access::write);
    check_alike(from, "x", to, "out");
    check_count(to, "out", from.count(), as_x);
    const OpArgument op(op_object, from);
    Array kept = Array::keeping(op.kept);
    run(
        comm, stream,
        [source = from.data(), target = to.data(), count = from.count(), type = from.type(), number = op.op](
            weftComm_t handle, weftStream_t queue) {
            return weftAllReduce(source, target, count, type, number, handle, queue);
        },
        from, to, kept);
    return nb::borrow(out);
}

// `x` may be None on ranks that are not the root.
nb::object broadcast(Comm& comm, nb::handle x, nb::handle out, int root, nb::handle stream) {
    check_root(comm, root);
    Array to(out, "out", Access::write);
    Array from;
    const void* source = to.data();
    if (!x.is(out) && comm.rank() == root) {
        from = Array(x, "x", Access::read);
        check_alike(from, "x", to, "out");
        check_count(to, "out", from.count(), as_x);
        source = from.data();
    }
    run(
        comm, stream,
        [source, target = to.data(), count = to.count(), type = to.type(), root](weftComm_t handle,
                                                                                 weftStream_t queue) {
            return weftBroadcast(source, target, count, type, root, handle, queue);
        },
        from, to);
    return nb::borrow(out);
}

// `out` may be None on ranks that are not the root.
nb::object reduce(Comm& comm, nb::handle x, nb::handle out, nb::handle op_object, int root, nb::handle stream) {
    check_root(comm, root);
    const bool is_root = comm.rank() == root;
    Array from(x, "x", is_root && x.is(out) ? Access::write : Access::read);
    Array to;
    void* target = nullptr;
    if (is_root && x.is(out)) {
        target = from.data();
    } else if (is_root) {
        to = Array(out, "out", Access::write);
        check_alike(from, "x", to, "out");
        check_count(to, "out", from.count(), as_x);
        target = to.data();
    }
    const OpArgument op(op_object, from);
    Array kept = Array::keeping(op.kept);
    run(
        comm, stream,
        [source = from.data(), target, count = from.count(), type = from.type(), number = op.op, root](
            weftComm_t handle, weftStream_t queue) {
            return weftReduce(source, target, count, type, number, root, handle, queue);
        },
        from, to, kept);
    return nb::borrow(out);
}

nb::object all_gather(Comm& comm, nb::handle x, nb::handle out, nb::handle stream) {
    Array from(x, "x", Access::read), to(out, "out", Access::write);
    check_alike(from, "x", to, "out");
    check_count(to, "out", from.count() * size_t(comm.size()), each_rank);
    run(
        comm, stream,
        [source = from.data(), target = to.data(), count = from.count(), type = from.type()](weftComm_t handle,
                                                                                             weftStream_t queue) {
            return weftAllGather(source, target, count, type, handle, queue);
        },
        from, to);
    return nb::borrow(out);
}

nb::object reduce_scatter(Comm& comm, nb::handle x, nb::handle out, nb::handle op_object, nb::handle stream) {
    Array from(x, "x", Access::read), to(out, "out", Access::write);
    check_alike(from, "x", to, "out");
    check_count(from, "x", to.count() * size_t(comm.size()), "as many as out for each rank");
    const OpArgument op(op_object, from);
    Array kept = Array::keeping(op.kept);
    run(
        comm, stream,
        [source = from.data(), target = to.data(), count = to.count(), type = to.type(), number = op.op](
            weftComm_t handle, weftStream_t queue) {
            return weftReduceScatter(source, target, count, type, number, handle, queue);
        },
        from, to, kept);
    return nb::borrow(out);
}

nb::object all_to_all(Comm& comm, nb::handle x, nb::handle out, nb::handle stream) {
    Array from(x, "x", Access::read), to(out, "out", Access::write);
    check_alike(from, "x", to, "out");
    check_count(to, "out", from.count(), as_x);
    const size_t ranks = size_t(comm.size());
    if (from.count() % ranks)
        refuse("python.size", "x has " + std::to_string(from.count()) + " elements, which are no equal parts for " +
                                  std::to_string(ranks) + " ranks. Use all_to_all_v");
    run(
        comm, stream,
        [source = from.data(), target = to.data(), count = from.count() / ranks, type = from.type()](
            weftComm_t handle, weftStream_t queue) { return weftAlltoAll(source, target, count, type, handle, queue); },
        from, to);
    return nb::borrow(out);
}

nb::object gather(Comm& comm, nb::handle x, nb::handle out, int root, nb::handle stream) {
    check_root(comm, root);
    Array from(x, "x", Access::read), to;
    if (comm.rank() == root) {
        to = Array(out, "out", Access::write);
        check_alike(from, "x", to, "out");
        check_count(to, "out", from.count() * size_t(comm.size()), each_rank);
    }
    run(
        comm, stream,
        [source = from.data(), target = to.data(), count = from.count(), type = from.type(), root](weftComm_t handle,
                                                                                                   weftStream_t queue) {
            return weftGather(source, target, count, type, root, handle, queue);
        },
        from, to);
    return nb::borrow(out);
}

nb::object scatter(Comm& comm, nb::handle x, nb::handle out, int root, nb::handle stream) {
    check_root(comm, root);
    Array from, to(out, "out", Access::write);
    if (comm.rank() == root) {
        from = Array(x, "x", Access::read);
        check_alike(from, "x", to, "out");
        check_count(from, "x", to.count() * size_t(comm.size()), "as many as out for each rank");
    }
    run(
        comm, stream,
        [source = from.data(), target = to.data(), count = to.count(), type = to.type(), root](weftComm_t handle,
                                                                                               weftStream_t queue) {
            return weftScatter(source, target, count, type, root, handle, queue);
        },
        from, to);
    return nb::borrow(out);
}

void barrier(Comm& comm, nb::handle stream) {
    run(comm, stream, [](weftComm_t handle, weftStream_t queue) { return weftBarrier(handle, queue); });
}

nb::object all_gather_v(Comm& comm, nb::handle x, nb::handle out, nb::handle counts, nb::handle displacements,
                        nb::handle stream) {
    Array from(x, "x", Access::read), to(out, "out", Access::write);
    check_alike(from, "x", to, "out");
    const Parts parts(to, "out", counts, displacements, size_t(comm.size()));
    check_count(from, "x", parts.counts[size_t(comm.rank())], "the count of this rank");
    run(
        comm, stream,
        [&, source = from.data(), target = to.data(), count = from.count(), type = from.type()](weftComm_t handle,
                                                                                                weftStream_t queue) {
            return weftAllGatherv(source, count, target, parts.counts.data(), parts.displacements.data(), type, handle,
                                  queue);
        },
        from, to);
    return nb::borrow(out);
}

nb::object reduce_scatter_v(Comm& comm, nb::handle x, nb::handle out, nb::handle counts, nb::handle op_object,
                            nb::handle stream) {
    Array from(x, "x", Access::read), to(out, "out", Access::write);
    check_alike(from, "x", to, "out");
    const Parts parts(from, "x", counts, nb::none(), size_t(comm.size()));
    check_count(to, "out", parts.counts[size_t(comm.rank())], "the count of this rank");
    const OpArgument op(op_object, from);
    Array kept = Array::keeping(op.kept);
    run(
        comm, stream,
        [&, source = from.data(), target = to.data(), type = from.type(), number = op.op](weftComm_t handle,
                                                                                          weftStream_t queue) {
            return weftReduceScatterv(source, target, parts.counts.data(), type, number, handle, queue);
        },
        from, to, kept);
    return nb::borrow(out);
}

nb::object all_to_all_v(Comm& comm, nb::handle x, nb::handle send_counts, nb::handle out, nb::handle receive_counts,
                        nb::handle send_displacements, nb::handle receive_displacements, nb::handle stream) {
    Array from(x, "x", Access::read), to(out, "out", Access::write);
    check_alike(from, "x", to, "out");
    const Parts sent(from, "x", send_counts, send_displacements, size_t(comm.size()));
    const Parts received(to, "out", receive_counts, receive_displacements, size_t(comm.size()));
    run(
        comm, stream,
        [&, source = from.data(), target = to.data(), type = from.type()](weftComm_t handle, weftStream_t queue) {
            return weftAlltoAllv(source, sent.counts.data(), sent.displacements.data(), target, received.counts.data(),
                                 received.displacements.data(), type, handle, queue);
        },
        from, to);
    return nb::borrow(out);
}

// The four arrays of counts are device memory, which the host cannot check.
nb::object all_to_all_v_device_counts(Comm& comm, nb::handle x, nb::handle send_counts, nb::handle send_displacements,
                                      nb::handle out, nb::handle receive_counts, nb::handle receive_displacements,
                                      nb::handle stream) {
    Array from(x, "x", Access::read), to(out, "out", Access::write);
    check_alike(from, "x", to, "out");
    Array numbers[] = {Array(send_counts, "send_counts", Access::read),
                       Array(send_displacements, "send_displacements", Access::read),
                       Array(receive_counts, "receive_counts", Access::read),
                       Array(receive_displacements, "receive_displacements", Access::read)};
    const size_t* data[4];
    for (int i = 0; i < 4; ++i) {
        if (!numbers[i].on_device() || (numbers[i].type() != weftUint64 && numbers[i].type() != weftInt64))
            refuse("python.device", "counts and displacements are " + numbers[i].text() +
                                        ". They must be uint64 or int64 on the device of the communicator");
        check_count(numbers[i], "an array of counts", size_t(comm.size()), "one for each rank");
        data[i] = static_cast<const size_t*>(numbers[i].data());
    }
    run(
        comm, stream,
        [&, source = from.data(), target = to.data(), type = from.type()](weftComm_t handle, weftStream_t queue) {
            return weftAlltoAllvDeviceCounts(source, data[0], data[1], target, data[2], data[3], type, handle, queue);
        },
        from, to, numbers[0], numbers[1], numbers[2], numbers[3]);
    return nb::borrow(out);
}

nb::object gather_v(Comm& comm, nb::handle x, nb::handle out, nb::handle counts, nb::handle displacements, int root,
                    nb::handle stream) {
    check_root(comm, root);
    Array from(x, "x", Access::read), to;
    std::vector<size_t> part_counts, begins;
    if (comm.rank() == root) {
        to = Array(out, "out", Access::write);
        check_alike(from, "x", to, "out");
        Parts parts(to, "out", counts, displacements, size_t(comm.size()));
        check_count(from, "x", parts.counts[size_t(root)], "the count of this rank");
        part_counts = std::move(parts.counts);
        begins = std::move(parts.displacements);
    }
    run(
        comm, stream,
        [&, source = from.data(), target = to.data(), count = from.count(), type = from.type()](weftComm_t handle,
                                                                                                weftStream_t queue) {
            return weftGatherv(source, count, target, part_counts.data(), begins.data(), type, root, handle, queue);
        },
        from, to);
    return nb::borrow(out);
}

nb::object scatter_v(Comm& comm, nb::handle x, nb::handle counts, nb::handle displacements, nb::handle out, int root,
                     nb::handle stream) {
    check_root(comm, root);
    Array from, to(out, "out", Access::write);
    std::vector<size_t> part_counts, begins;
    if (comm.rank() == root) {
        from = Array(x, "x", Access::read);
        check_alike(from, "x", to, "out");
        Parts parts(from, "x", counts, displacements, size_t(comm.size()));
        check_count(to, "out", parts.counts[size_t(root)], "the count of this rank");
        part_counts = std::move(parts.counts);
        begins = std::move(parts.displacements);
    }
    run(
        comm, stream,
        [&, source = from.data(), target = to.data(), count = to.count(), type = to.type()](weftComm_t handle,
                                                                                            weftStream_t queue) {
            return weftScatterv(source, part_counts.data(), begins.data(), target, count, type, root, handle, queue);
        },
        from, to);
    return nb::borrow(out);
}

}  // namespace

void bind_collectives(nb::module_& module) {
    // A Python object of any type: Array and the other arguments say in a sentence what is wrong with it.
    const auto any = nb::arg().none();
    const nb::arg comm, root;
    module.def("all_reduce", &all_reduce, comm, any, any, any, any, InFrame());
    module.def("broadcast", &broadcast, comm, any, any, root, any, InFrame());
    module.def("reduce", &reduce, comm, any, any, any, root, any, InFrame());
    module.def("all_gather", &all_gather, comm, any, any, any, InFrame());
    module.def("reduce_scatter", &reduce_scatter, comm, any, any, any, any, InFrame());
    module.def("all_to_all", &all_to_all, comm, any, any, any, InFrame());
    module.def("gather", &gather, comm, any, any, root, any, InFrame());
    module.def("scatter", &scatter, comm, any, any, root, any, InFrame());
    module.def("barrier", &barrier, comm, any, InFrame());
    module.def("all_gather_v", &all_gather_v, comm, any, any, any, any, any, InFrame());
    module.def("reduce_scatter_v", &reduce_scatter_v, comm, any, any, any, any, any, InFrame());
    module.def("all_to_all_v", &all_to_all_v, comm, any, any, any, any, any, any, any, InFrame());
    module.def("all_to_all_v_device_counts", &all_to_all_v_device_counts, comm, any, any, any, any, any, any, any,
               InFrame());
    module.def("gather_v", &gather_v, comm, any, any, any, any, root, any, InFrame());
    module.def("scatter_v", &scatter_v, comm, any, any, any, any, root, any, InFrame());
}

}  // namespace weft::python
