// local_ranks.hpp: the ranks of a segment in one process, driven without a communicator. Plans are made by hand with
// small tiles, so that short messages take every path. One thread runs the ranks in random turns, or each has a thread.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "src/executor/make_run.hpp"
#include "src/registry.hpp"
#include "src/schedule/expand.hpp"
#include "tests/executor/cpu_kernel_data.hpp"
#include "tests/reference/exact.hpp"
#include "tests/reference/interpreter.hpp"

namespace weft::internal::test {

using reference::Bytes;

// How a schedule is run: as the algorithm writes it, or its fused instructions expanded, tile by tile or overlapped.
enum class Form { as_written, expanded, expanded_pipelined };

inline constexpr int premul = weftNumOps;  // among the reductions of a call
// Of a call on elements of the type.
inline std::vector<int> reductions_of(int type) {
    std::vector<int> ops;
    for (int op = 0; op <= premul; ++op)
        if (serves(weftRedOp_t(op), weftDataType_t(type))) ops.push_back(op);
    return ops;
}
inline int any_reduction_of(int type, std::mt19937& random) {
    const std::vector<int> ops = reductions_of(type);
    return ops[random() % ops.size()];
}

struct Call {
    const Algorithm* algorithm = nullptr;
    const std::vector<Schedule>* written = nullptr;  // by rank: these instead of an algorithm's
    int channels = 1;
    int root = -1;                    // of a rooted collective
    std::vector<int32_t> hosts = {};  // by rank; empty: one host. Hosts share the group's memory, but no flag block
    Form form = Form::as_written;
    weftDataType_t type = weftFloat32;
    int op = weftSum;          // or premul
    bool by_function = false;  // the sum is a C function's, where the API is called
    size_t tile_bytes = 64;
    bool pipelined = false;
    bool exports_buffers = false;  // if the ranks can reach each other and nothing is scaled
    bool cma = false;              // with offers: the kernel may copy
    bool zero_copy = false;        // messages lend what lasts, however short
    Stores stores = Stores::ordinary;
    const CpuKernels* cpu_kernels = nullptr;  // null: the best
    std::vector<Bytes> inputs;                // by rank: what it holds of the whole
    std::vector<Bytes> scalars;               // by rank; empty unless premul
    bool extreme = false;  // inputs from extremes(): results are held against a bound, not against bits
    // By rank; empty: none.
    std::vector<bool> in_place;
    std::vector<bool> from_arena;
    size_t send_offset = 0, receive_offset = 0;  // from a line: up to 64

    // A test of device memory may name no algorithm.
    Collective collective() const {
        if (written) return written->front().collective;
        return algorithm ? algorithm->collective : Collective::all_reduce;
    }
    int ranks() const { return int(inputs.size()); }
    int parts() const { return parts_of(collective(), ranks()); }
    Held input_held(int rank) const { return input_of(collective(), rank, root); }
    Held output_held(int rank) const { return output_of(collective(), rank, root); }
    Schedule build(int rank) const {
        return written ? (*written)[size_t(rank)]
                       : algorithm->schedule(layout(rank), {.channels = channels, .root = root});
    }
    size_t bytes() const;  // of a part
    uint64_t tiles() const { return bytes() == 0 ? 1 : (bytes() + tile_bytes - 1) / tile_bytes; }
    bool in_one_place() const { return algorithm && !written && algorithm->sums == Sums::in_rank_order; }
    Layout layout(int rank) const { return {int(inputs.size()), rank, hosts}; }
    // The inputs of a rank's result; for a reduce-scatter its part of them.
    std::vector<Bytes> contributions_to(int rank) const;
    Operation operation() const;
    std::string text() const;
};

// Each rank's result by the interpreter.
std::vector<Bytes> expected(const Call& call, const DirectMode& mode = {});
// "rank 2, element 17" where the bits differ (any NaN equals any other), or nothing.
std::optional<std::string> difference(const Call& call, const std::vector<Bytes>& got,
                                      const std::vector<Bytes>& expected);

enum class Reached {
    threads,
    processes
};  // whether the ranks know each other as threads, or as processes that map arenas
enum class Driver { turns, threads };

class LocalRanks {
  public:
    explicit LocalRanks(int ranks, Reached reached = Reached::threads, bool direct = true);
    ~LocalRanks();

    int ranks() const { return int(flag_blocks_.size()); }
    Segment& segment() { return *segment_; }
    DirectAccess::State direct_access_state(int rank) const { return reaches_[size_t(rank)].state(); }
    Cma::State cma_state(int rank) const { return cma_[size_t(rank)].state(); }
    // The buffers that peers read in place, if these calls export all that they can: for the interpreter.
    DirectMode mode(const Call& call) const;
    size_t reserved(int rank) const { return flag_blocks_[size_t(rank)]->reserved(); }

    // As after so many tiles.
    void go_to(uint32_t tile) {
        for (auto& flag_block : flag_blocks_) flag_block->tile = tile;
    }

    // All calls one after the other on every rank; no rank waits for others between them. Results by call and rank.
    // Fails (throws) if a rank fails, writes beside its buffer, or changes an input that is not in place.
    std::vector<std::vector<Bytes>> run(const std::vector<Call>& calls, Driver driver, std::mt19937& random);
    std::vector<Bytes> run(const Call& call, std::mt19937& random) {
        return run(std::vector{call}, Driver::turns, random)[0];
    }

    // How many tiles the first of `running` has entered on its flag block when these ranks can do no more without the
    // others. The ranks are of no use afterwards.
    int tiles_entered(const Call& call, const std::vector<int>& running);

    // Whether `rank` comes to the end of the call though the others do nothing. They are of no use afterwards.
    bool ends_alone(const Call& call, int rank);

    struct Rank;  // its buffers, plan and run, and how far it has come

  private:
    void connect(const Call& call);
    std::vector<Rank> prepare(const std::vector<Call>& calls);

    std::shared_ptr<Segment> segment_;
    bool direct_;
    std::vector<std::unique_ptr<FlagBlock>> flag_blocks_;
    std::vector<DirectAccess> reaches_;
    std::vector<Cma> cma_;
    std::vector<std::vector<SlotStores>> slot_stores_;  // by writer and reader
    std::vector<uint64_t> tokens_;                      // by rank: what its row says of its process
    std::vector<size_t> heap_used_;
    struct Connection {
        std::unique_ptr<Receiver> receiver;
        std::unique_ptr<Sender> sender;
    };
    std::map<std::tuple<int, int, int, int>, Connection> connections_;  // by channel, sender, receiver, slots
    uint64_t sequence_ = 0;
};

}  // namespace weft::internal::test
