// calls.hpp: a drawn call of any collective (tests/executor/local_ranks.hpp) on the devices of a communicator's ranks:
// its buffers there, or on the host, and how it is enqueued.
#pragma once
#include "tests/device/ranks.hpp"
#include "tests/executor/local_ranks.hpp"

namespace weft::internal::test {

// The buffers of one call of these ranks, a process's or all, with bytes around them that must stay.
class Buffers {
  public:
    Buffers(const Ranks& ranks, const Call& call, DeviceBuffer::Kind kind = DeviceBuffer::Kind::plain);
    bool on_host() const { return DeviceBuffer::on_host(kind_); }
    const void* send(int rank) const { return at(rank).send; }
    void* receive(int rank) const { return at(rank).receive; }
    // By rank, after the call, those of this process's ranks.
    std::vector<Bytes> results() const;
    // Of ranks that do not call in place, behind what their streams have.
    void forget_results(const Ranks& ranks) const;
    // The first rank of which something was written that is not its result; -1: none.
    int spoilt(const Call& call) const;

  private:
    struct RankBuffers {
        std::unique_ptr<DeviceBuffer> first, second;  // in place the first alone
        size_t first_bytes, second_bytes;             // in front of their margins
        void *send, *receive;                         // null: the rank has no use for it
        size_t send_offset, receive_offset, receive_bytes;
        bool in_place;
    };
    const RankBuffers& at(int rank) const { return rank_buffers_[size_t(rank)]; }
    DeviceBuffer::Kind kind_;
    int first_;
    std::vector<RankBuffers> rank_buffers_;
};

// The reduction that the ranks pass to a call. It is made as long as this lives, if it scales.
class Reductions {
  public:
    // `scalars`: of all ranks, for premul. by_function: a C function that does what `op` does, for host memory.
    Reductions(const Ranks& ranks, int op, weftDataType_t type, const std::vector<Bytes>& scalars, bool by_function);
    Reductions(const Reductions&) = delete;
    ~Reductions();
    weftRedOp_t of(int rank) const { return ops_[size_t(rank)]; }

  private:
    const Ranks& ranks_;
    bool made_;
    std::vector<weftRedOp_t> ops_;
};

// On every rank, in a group; on the host it is done then.
void enqueue(const Ranks& ranks, const Call& call, const Buffers& buffers);

}  // namespace weft::internal::test
