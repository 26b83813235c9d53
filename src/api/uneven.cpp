// uneven.cpp: checks the arguments of collectives whose parts differ in size and submits them.
#include <algorithm>

#include "src/api/arguments.hpp"
#include "src/api/guard.hpp"
#include "src/calls/submit.hpp"
#include "weft/weft.h"

using namespace weft::internal;

namespace {

// A buffer with its counts and displacements: the part of each rank, in elements.
struct Parts {
    const char *buffer_name, *counts_name, *displacements_name;
    const void* buffer;
    const size_t *counts, *displacements;
};
// A buffer of one part.
struct Part {
    const char *buffer_name, *count_name;
    const void* buffer;
    size_t count;
};

// Adds the buffer of each peer, beginning with the next rank and ending with this one, so that the ranks do not all
// send to the same rank first.
Status add_parts(std::vector<PeerBuffer>& peer_buffers, const Parts& parts, size_t element, int rank, int ranks) {
    if (!parts.counts || !parts.displacements)
        return fail(error::argument_null, "{} is NULL; it must hold one number per rank",
                    parts.counts ? parts.displacements_name : parts.counts_name);
    for (int i = 1; i <= ranks; ++i) {
        const int peer = (rank + i) % ranks;
        const size_t count = parts.counts[peer], displacement = parts.displacements[peer];
        if (count > (size_t(1) << 48) || displacement > (size_t(1) << 48))
            return fail(error::argument_count,
                        "{}[{}] is {} and {}[{}] {}: together they are more elements than any memory "
                        "holds",
                        parts.counts_name, peer, count, parts.displacements_name, peer, displacement);
        if (count > 0 && !parts.buffer)
            return fail(error::argument_null, "{} is NULL although {}[{}] is {}", parts.buffer_name, parts.counts_name,
                        peer, count);
        const auto address = reinterpret_cast<uintptr_t>(parts.buffer) + (count > 0 ? displacement * element : 0);
        peer_buffers.push_back({peer, reinterpret_cast<void*>(address), count});
    }
    return ok();
}

Status add_part(std::vector<PeerBuffer>& peer_buffers, const Part& part, int peer) {
    WEFT_TRY(check_count(part.count, 1));
    if (part.count > 0 && !part.buffer)
        return fail(error::argument_null, "{} is NULL although {} is {}", part.buffer_name, part.count_name,
                    part.count);
    peer_buffers.push_back({peer, const_cast<void*>(part.buffer), part.count});
    return ok();
}

uintptr_t begin_of(const PeerBuffer& peer_buffer) { return reinterpret_cast<uintptr_t>(peer_buffer.data); }

// Received parts must not overlap.
Status check_disjoint(const std::vector<PeerBuffer>& peer_buffers, const char* counts_name, size_t element) {
    static thread_local std::vector<PeerBuffer> sorted;  // kept, so that a call allocates nothing
    sorted.clear();
    for (const PeerBuffer& peer_buffer : peer_buffers)
        if (peer_buffer.count > 0) sorted.push_back(peer_buffer);
    std::sort(sorted.begin(), sorted.end(),
              [](const PeerBuffer& one, const PeerBuffer& other) { return begin_of(one) < begin_of(other); });
    for (size_t i = 1; i < sorted.size(); ++i) {
        const PeerBuffer &one = sorted[i - 1], &other = sorted[i];
        if (begin_of(other) - begin_of(one) < one.count * element)
            return {error::argument_counts,
                    overlapping_parts(one.peer, other.peer, one.count, (begin_of(other) - begin_of(one)) / element,
                                      counts_name)};
    }
    return ok();
}

// Received parts must not overlap sent parts, except a rank's own part in place.
Status check_apart(const PeerBuffers& peer_buffers, size_t element, int rank, bool may_be_in_place) {
    const auto bounds = [&](const std::vector<PeerBuffer>& list) {
        std::pair<uintptr_t, uintptr_t> range{UINTPTR_MAX, 0};
        for (const PeerBuffer& peer_buffer : list)
            if (peer_buffer.count > 0)
                range = {std::min(range.first, begin_of(peer_buffer)),
                         std::max(range.second, begin_of(peer_buffer) + peer_buffer.count * element)};
        return range;
    };
    const auto sent = bounds(peer_buffers.sends), received = bounds(peer_buffers.receives);
    if (sent.second <= received.first || received.second <= sent.first) return ok();
    const void* own = nullptr;  // the part that the rank sends to itself
    for (const PeerBuffer& from : peer_buffers.sends)
        if (from.peer == rank) own = from.data;
    for (const PeerBuffer& from : peer_buffers.sends)
        for (const PeerBuffer& to : peer_buffers.receives) {
            if (from.count == 0 || to.count == 0 || begin_of(from) + from.count * element <= begin_of(to) ||
                begin_of(to) + to.count * element <= begin_of(from))
                continue;
            if (may_be_in_place && to.peer == rank && to.data == own && from.data == own) continue;
            return {error::argument_overlap,
                    overlapping_buffers(from.peer, to.peer) +
                        (may_be_in_place ? ", but for this rank's own part, which may lie in place" : "")};
        }
    return ok();
}

// One table per thread, so that a call allocates nothing.
PeerBuffers& empty_peer_buffers() {
    static thread_local PeerBuffers peer_buffers;
    peer_buffers.sends.clear();
    peer_buffers.receives.clear();
    peer_buffers.counts = {};
    return peer_buffers;
}

// `fill(peer_buffers, rank, ranks)` writes the parts that this rank sends and receives.
template <Collective collective, class Fill>
weftResult_t run_uneven(const char* function, const void* send, void* receive, const char* receive_counts_name,
                        weftDataType_t type, int root, weftComm_t comm, weftStream_t stream, Fill&& fill,
                        weftRedOp_t op = weftSum) {
    return guarded_call(function, comm, [&]() -> Status {
        constexpr CollectiveFacts facts = facts_of(collective);
        Entered entered(comm);
        if (!entered.entered()) [[unlikely]]
            return entered.refused();
        Communicator& communicator = *comm->communicator;
        const int rank = communicator.rank(), ranks = communicator.ranks();
        UnevenCall uneven{{}, send, receive};
        WEFT_TRY(check_reduction(comm, type, op, uneven.operation, uneven.operand));
        if constexpr (facts.rooted) WEFT_TRY(check_rank("root", root, ranks));
        PeerBuffers& peer_buffers = empty_peer_buffers();
        WEFT_TRY(fill(peer_buffers, rank, ranks));
        const size_t element = size_of(type);
        WEFT_TRY(check_disjoint(peer_buffers.receives, receive_counts_name, element));
        WEFT_TRY(check_apart(peer_buffers, element, rank, !facts.transposes));
        uneven.operation.collective = collective;
        uneven.operation.root = root;
        uneven.peer_buffers = &peer_buffers;
        Call call{.kind = uneven, .stream = stream};
        return submit(entered, comm, {&call, 1}, peer_buffers.counts.sent ? &peer_buffers.counts : nullptr);
    });
}

// The counts of a rank's part to itself must agree; otherwise the other ranks would wait in vain.
Status check_own(const char* counts_name, int rank, size_t in_table, std::string_view other_name, size_t count) {
    if (in_table == count) [[likely]]
        return ok();
    return fail(error::argument_counts,
                "{}[{}] is {} and {} {}: a rank must receive from itself as many elements as "
                "it sends to itself",
                counts_name, rank, in_table, other_name, count);
}

}  // namespace

extern "C" {

weftResult_t weftAlltoAllv(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[], void* recvbuff,
                           const size_t recvcounts[], const size_t rdispls[], weftDataType_t datatype, weftComm_t comm,
                           weftStream_t stream) {
    const auto fill = [&](PeerBuffers& peer_buffers, int rank, int ranks) -> Status {
        const size_t element = size_of(datatype);
        WEFT_TRY(add_parts(peer_buffers.sends, {"sendbuff", "sendcounts", "sdispls", sendbuff, sendcounts, sdispls},
                           element, rank, ranks));
        WEFT_TRY(add_parts(peer_buffers.receives, {"recvbuff", "recvcounts", "rdispls", recvbuff, recvcounts, rdispls},
                           element, rank, ranks));
        if (sendcounts[rank] == recvcounts[rank]) return ok();
        return check_own("sendcounts", rank, sendcounts[rank], fmt::format("recvcounts[{}]", rank), recvcounts[rank]);
    };
    return run_uneven<Collective::all_to_all_v>(__func__, sendbuff, recvbuff, "recvcounts", datatype, 0, comm, stream,
                                                fill);
}

weftResult_t weftAlltoAllvDeviceCounts(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[],
                                       void* recvbuff, const size_t recvcounts[], const size_t rdispls[],
                                       weftDataType_t datatype, weftComm_t comm, weftStream_t stream) {
    const auto fill = [&](PeerBuffers& peer_buffers, int, int) -> Status {
        const std::pair<const char*, const void*> arguments[] = {
            {"sendcounts", sendcounts}, {"sdispls", sdispls}, {"recvcounts", recvcounts}, {"rdispls", rdispls}};
        for (const auto& [name, pointer] : arguments)
            if (!pointer) return fail(error::argument_null, "{} is NULL: it is device memory", name);
        if (sendbuff && sendbuff == recvbuff)
            return fail(error::argument_overlap, "sendbuff and recvbuff are equal; they must be disjoint");
        peer_buffers.counts = {sendcounts, sdispls, recvcounts, rdispls, 0, 0};
        return ok();
    };
    return run_uneven<Collective::all_to_all_v>(__func__, sendbuff, recvbuff, "recvcounts", datatype, 0, comm, stream,
                                                fill);
}

weftResult_t weftGatherv(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t recvcounts[],
                         const size_t displs[], weftDataType_t datatype, int root, weftComm_t comm,
                         weftStream_t stream) {
    const auto fill = [&](PeerBuffers& peer_buffers, int rank, int ranks) -> Status {
        WEFT_TRY(add_part(peer_buffers.sends, {"sendbuff", "sendcount", sendbuff, sendcount}, root));
        if (rank != root) return ok();
        WEFT_TRY(add_parts(peer_buffers.receives, {"recvbuff", "recvcounts", "displs", recvbuff, recvcounts, displs},
                           size_of(datatype), rank, ranks));
        return check_own("recvcounts", rank, recvcounts[rank], "sendcount", sendcount);
    };
    return run_uneven<Collective::gather_v>(__func__, sendbuff, recvbuff, "recvcounts", datatype, root, comm, stream,
                                            fill);
}

weftResult_t weftScatterv(const void* sendbuff, const size_t sendcounts[], const size_t displs[], void* recvbuff,
                          size_t recvcount, weftDataType_t datatype, int root, weftComm_t comm, weftStream_t stream) {
    const auto fill = [&](PeerBuffers& peer_buffers, int rank, int ranks) -> Status {
        WEFT_TRY(add_part(peer_buffers.receives, {"recvbuff", "recvcount", recvbuff, recvcount}, root));
        if (rank != root) return ok();
        WEFT_TRY(add_parts(peer_buffers.sends, {"sendbuff", "sendcounts", "displs", sendbuff, sendcounts, displs},
                           size_of(datatype), rank, ranks));
        return check_own("sendcounts", rank, sendcounts[rank], "recvcount", recvcount);
    };
    return run_uneven<Collective::scatter_v>(__func__, sendbuff, recvbuff, "recvcount", datatype, root, comm, stream,
                                             fill);
}

weftResult_t weftAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t recvcounts[],
                            const size_t displs[], weftDataType_t datatype, weftComm_t comm, weftStream_t stream) {
    const auto fill = [&](PeerBuffers& peer_buffers, int rank, int ranks) -> Status {
        for (int i = 1; i <= ranks; ++i)
            WEFT_TRY(add_part(peer_buffers.sends, {"sendbuff", "sendcount", sendbuff, sendcount}, (rank + i) % ranks));
        WEFT_TRY(add_parts(peer_buffers.receives, {"recvbuff", "recvcounts", "displs", recvbuff, recvcounts, displs},
                           size_of(datatype), rank, ranks));
        return check_own("recvcounts", rank, recvcounts[rank], "sendcount", sendcount);
    };
    return run_uneven<Collective::all_gather_v>(__func__, sendbuff, recvbuff, "recvcounts", datatype, 0, comm, stream,
                                                fill);
}

weftResult_t weftReduceScatterv(const void* sendbuff, void* recvbuff, const size_t recvcounts[],
                                weftDataType_t datatype, weftRedOp_t op, weftComm_t comm, weftStream_t stream) {
    const auto fill = [&](PeerBuffers& peer_buffers, int rank, int ranks) -> Status {
        if (!recvcounts) return fail(error::argument_null, "recvcounts is NULL; it must hold one number per rank");
        static thread_local std::vector<size_t> displacements;
        displacements.assign(size_t(ranks), 0);
        for (size_t peer = 1; peer < size_t(ranks); ++peer)
            displacements[peer] = displacements[peer - 1] + std::min(recvcounts[peer - 1], size_t(1) << 48);
        WEFT_TRY(add_parts(
            peer_buffers.sends,
            {"sendbuff", "recvcounts", "the sum before recvcounts", sendbuff, recvcounts, displacements.data()},
            size_of(datatype), rank, ranks));
        return add_part(peer_buffers.receives, {"recvbuff", "its recvcount", recvbuff, recvcounts[rank]}, rank);
    };
    return run_uneven<Collective::reduce_scatter_v>(__func__, sendbuff, recvbuff, "recvcounts", datatype, 0, comm,
                                                    stream, fill, op);
}
}
