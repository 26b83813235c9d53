// worker_collectives.cpp: one collective, of equal parts or of uneven ones.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/faults/worker.hpp"

using namespace worker;

weftResult_t worker::collective(Worker& self, const std::string& name, size_t count, int root, weftDataType_t type,
                                weftRedOp_t op) {
    if (name == "all_reduce") return reduce(self, count, type, op);
    if (name == "barrier") return weftBarrier(self.comm, nullptr);
    const auto ranks = size_t(self.ranks);
    const auto [send, receive] = buffers(self, ranks * count * sizeof(int));
    auto *in = static_cast<int*>(send), *out = static_cast<int*>(receive);
    std::fill_n(in, ranks * count, self.rank + 1);
    std::fill_n(out, ranks * count, -1);
    const bool to_root = name == "reduce" || name == "gather";
    const bool parts = name == "all_gather" || name == "all_to_all" || name == "gather";
    const int sum = self.ranks * (self.ranks + 1) / 2;
    weftResult_t code = weftInternalError;
    if (name == "broadcast") code = weftBroadcast(in, out, count, type, root, self.comm, nullptr);
    if (name == "reduce") code = weftReduce(in, out, count, type, op, root, self.comm, nullptr);
    if (name == "all_gather") code = weftAllGather(in, out, count, type, self.comm, nullptr);
    if (name == "reduce_scatter") code = weftReduceScatter(in, out, count, type, op, self.comm, nullptr);
    if (name == "all_to_all") code = weftAlltoAll(in, out, count, type, self.comm, nullptr);
    if (name == "gather") code = weftGather(in, out, count, type, root, self.comm, nullptr);
    if (name == "scatter") code = weftScatter(in, out, count, type, root, self.comm, nullptr);
    const bool known = type == weftInt32 && op == weftSum;
    if (code != weftSuccess || !known || (to_root && self.rank != root)) return code;
    for (size_t i = 0; i < count * (parts ? ranks : 1); ++i) {
        const int expected = parts ? int(i / count) + 1 : name.rfind("reduce", 0) == 0 ? sum : root + 1;
        if (out[i] == expected) continue;
        tell("wrong result at " + std::to_string(i));
        _exit(3);
    }
    return code;
}

// call=NAME,COUNT[,ROOT[,TYPE[,OP]]], of a type of four bytes
void worker::step_call(Worker& self, const Values& values) {
    tell("call", collective(self, values[0], size_t(number(values, 1, 1)), int(number(values, 2, 0)),
                            weftDataType_t(number(values, 3, weftInt32)), weftRedOp_t(number(values, 4, weftSum))));
}

namespace {

// sum or prod; scaled, function, ordered_function: one made for this call, which lasts as long as the communicator.
weftRedOp_t reduction(Worker& self, const std::string& name) {
    const auto add = [](const void* left, const void* right, void* result, size_t count, weftDataType_t, void*) {
        for (size_t i = 0; i < count; ++i)
            static_cast<int*>(result)[i] = static_cast<const int*>(left)[i] + static_cast<const int*>(right)[i];
    };
    weftRedOp_t op = name == "prod" ? weftProd : weftSum;
    int scale = 1;
    weftResult_t result = weftSuccess;
    if (name == "scaled") result = weftRedOpCreatePreMulSum(&op, &scale, weftInt32, weftScalarHostImmediate, self.comm);
    if (name == "function" || name == "ordered_function")
        result = weftRedOpCreate(&op, add, nullptr, weftInt32, name == "function", self.comm);
    if (result != weftSuccess) tell("op", result);
    return op;
}

enum class Uneven { all_to_all_v, all_gather_v, gather_v, scatter_v, reduce_scatter_v };

void step_uneven(Worker& self, const Values& values, Uneven which) {
    std::vector<size_t> counts, places;
    size_t elements = 0;
    for (size_t peer = 0; peer < size_t(self.ranks); ++peer) {
        counts.push_back(size_t(number(values, peer, 0)));
        places.push_back(elements);
        elements += std::min(counts.back(), size_t(1) << 24);
    }
    const auto [send, receive] = buffers(self, elements * sizeof(int));
    const size_t own = counts[size_t(self.rank)];
    const weftComm_t comm = self.comm;
    switch (which) {
        case Uneven::all_to_all_v:
            return tell("all_to_all_v", weftAlltoAllv(send, counts.data(), places.data(), receive, counts.data(),
                                                      places.data(), weftInt32, comm, nullptr));
        case Uneven::all_gather_v:
            return tell("all_gather_v",
                        weftAllGatherv(send, own, receive, counts.data(), places.data(), weftInt32, comm, nullptr));
        case Uneven::gather_v:
            return tell("gather_v",
                        weftGatherv(send, own, receive, counts.data(), places.data(), weftInt32, 0, comm, nullptr));
        case Uneven::scatter_v:
            return tell("scatter_v",
                        weftScatterv(send, counts.data(), places.data(), receive, own, weftInt32, 0, comm, nullptr));
        case Uneven::reduce_scatter_v:
            return tell("reduce_scatter_v",
                        weftReduceScatterv(send, receive, counts.data(), weftInt32,
                                           reduction(self, counts.size() < values.size() ? values.back() : "sum"), comm,
                                           nullptr));
    }
}

}  // namespace

// all_to_all_v=COUNT,COUNT...: with each rank as many elements as it sends us. all_gather_v, gather_v, scatter_v,
// reduce_scatter_v: COUNT elements of each rank, or for each, with the last one's reduction. The root is rank 0.
void worker::step_all_to_all_v(Worker& self, const Values& values) { step_uneven(self, values, Uneven::all_to_all_v); }
void worker::step_all_gather_v(Worker& self, const Values& values) { step_uneven(self, values, Uneven::all_gather_v); }
void worker::step_gather_v(Worker& self, const Values& values) { step_uneven(self, values, Uneven::gather_v); }
void worker::step_scatter_v(Worker& self, const Values& values) { step_uneven(self, values, Uneven::scatter_v); }
void worker::step_reduce_scatter_v(Worker& self, const Values& values) {
    step_uneven(self, values, Uneven::reduce_scatter_v);
}
