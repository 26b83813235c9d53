#include "src/gpu/domain/reach/reach_test.hpp"

namespace weft::internal::cuda {

namespace {

uint32_t own_number(int rank) { return 0x77656674u + uint32_t(rank); }
uint32_t number_between(int from, int to) { return 0x9e3779b9u * uint32_t(from * ranks_max + to + 1) | 1; }

}  // namespace

Status ReachTest::begin() {
    auto stream = Stream::create(memory_.kernels().context());
    if (!stream) return stream.take_status();
    stream_ = std::move(*stream);
    return ok();
}

Status ReachTest::clear() {
    return fill_async(driver(), tested_.bases[size_t(tested_.rank)], 0, tested_.cleared, stream_.handle());
}

Status ReachTest::write() {
    ReachProbe& probe = memory_.reports().probe;
    probe = {};
    probe.own = own_number(tested_.rank);
    for (const int peer : tested_.ranks) probe.to[peer] = number_between(tested_.rank, peer);
    WEFT_TRY(copy_async(driver(), probe_of(tested_.rank), memory_.reports_address() + offsetof(HostReports, probe),
                        sizeof probe, stream_.handle()));
    return stream_.synchronize();
}

Status ReachTest::write_programs() {
    const std::vector<std::byte> programs = memory_.programs();
    if (programs.empty()) return ok();
    WEFT_TRY(copy_async(driver(), memory_.own().address() + memory_.layout().programs,
                        reinterpret_cast<CUdeviceptr>(programs.data()), programs.size(), stream_.handle()));
    return stream_.synchronize();
}

// Uses a kernel, as messages do: copy engines may take another path.
Status ReachTest::copy_by_kernel(CUdeviceptr to, CUdeviceptr from) {
    KernelArguments arguments{};
    arguments.ranks = 1;
    arguments.op = weftSum;
    arguments.bytes = sizeof(uint32_t);
    arguments.inputs[0] = reinterpret_cast<const std::byte*>(from);
    arguments.receive = reinterpret_cast<std::byte*>(to);
    void* parameters[] = {&arguments};
    return memory_.kernels().copier().launch({.blocks = 1, .threads = 32}, stream_.handle(), parameters);
}

Status ReachTest::access(int peer) {
    const CUdeviceptr own = probe_of(tested_.rank), theirs = probe_of(peer);
    const size_t word = sizeof(uint32_t);
    WEFT_TRY(
        copy_by_kernel(own + offsetof(ReachProbe, seen) + word * size_t(peer), theirs + offsetof(ReachProbe, own)));
    return copy_by_kernel(theirs + offsetof(ReachProbe, from) + word * size_t(tested_.rank),
                          own + offsetof(ReachProbe, to) + word * size_t(peer));
}

Status ReachTest::check(RankBits& unreached, Status& fault) {
    const ReachProbe& probe = memory_.reports().probe;
    WEFT_TRY(copy_async(driver(), memory_.reports_address() + offsetof(HostReports, probe), probe_of(tested_.rank),
                        sizeof probe, stream_.handle()));
    WEFT_TRY(stream_.synchronize());
    for (const int peer : tested_.ranks) {
        if (peer == tested_.rank) continue;
        const bool reads = probe.seen[peer] == own_number(peer),
                   is_written = probe.from[peer] == number_between(peer, tested_.rank);
        if (!reads) unreached.add(peer);
        if (!is_written) unreached.add(tested_.rank);
        if (!fault || (reads && is_written)) continue;
        fault = reads
                    ? fail(error::gpu_peer_access, "what rank {} wrote into its device memory did not arrive", peer)
                    : fail(error::gpu_peer_access, "reads wrong values where rank {}'s device memory is mapped", peer);
    }
    return ok();
}

}  // namespace weft::internal::cuda
