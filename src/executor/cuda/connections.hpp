// connections.hpp: where the connections of a communicator's step machines lie, and the programs that run over them.
// Each rank has an area in memory that all its peers of its host reach; agreed facts alone say what lies where in it,
// so that each rank reckons the addresses of both ends of a connection by itself. Ends whose peer is on another host,
// *abroad*, lie in host memory of the rank's own, where the proxy meets its kernels. Knows no driver.
//
// Every algorithm has connections of its own: their messages are counted from operation to operation, and who has ended
// one operation may fill slots for the next, by another algorithm, while a peer still empties those of the first.
#pragma once
#include <span>
#include <vector>

#include "src/executor/cuda/kernel_arguments.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::cuda {

// An end whose peer is abroad: what the proxy must know of it.
struct AbroadEnd {
    size_t group;       // the how many-th algorithm
    size_t block;       // of the rank's schedule
    bool incoming;      // the peer sends
    ConnectionEnd end;  // as the host addresses it; without count
};

// A value; made the same on all ranks.
class Connections {
  public:
    // hosts: by rank; empty: all are on one.
    explicit Connections(std::vector<int32_t> hosts = {}) : hosts_(std::move(hosts)) {}

    // A block copies 20 bytes a nanosecond at most, and a flag takes a microsecond or two from one device to the other:
    // with smaller slots flags would count, with larger ones the memory.
    static constexpr size_t slot_bytes = 256 << 10;

    // One algorithm more, of which these are the schedules by rank, which the device can run (program.hpp).
    void add(std::vector<Schedule> schedules);

    size_t area_bytes() const { return area_bytes_; }        // of each rank; zero before the first operation
    size_t program_bytes() const { return program_bytes_; }  // of each rank, for its own kernels
    // Of each rank, in pinned host memory; zero before the first operation. Slots, which need not be, come behind.
    size_t abroad_bytes() const { return abroad_words_bytes_ + abroad_slots_bytes_; }
    size_t abroad_words_bytes() const { return abroad_words_bytes_; }
    // What a rank's kernels find at their program memory. areas: by rank, as these kernels address them; null of ranks
    // abroad. abroad: the rank's own host memory, likewise.
    std::vector<std::byte> programs(int rank, std::span<std::byte* const> areas, std::byte* abroad = nullptr) const;
    // abroad: as the host addresses it.
    std::vector<AbroadEnd> abroad_ends(int rank, std::byte* abroad) const;
    const Schedule& schedule(size_t group, int rank) const { return groups_[group].schedules[size_t(rank)]; }
    size_t groups() const { return groups_.size(); }
    uint32_t depth(size_t group) const { return groups_[group].depth; }
    // The program of the algorithm that was the `index`-th to be added. `programs`: that memory.
    void bind(KernelArguments& arguments, size_t index, const std::byte* programs) const;

  private:
    struct Group {
        std::vector<Schedule> schedules;    // by rank
        size_t words, slots, program;       // offsets
        size_t abroad_words, abroad_slots;  // the latter from behind all words
        uint32_t depth;
    };
    static size_t step_blocks_offset(const Schedule& schedule);
    bool together(int one, int other) const { return hosts_.empty() || hosts_[size_t(one)] == hosts_[size_t(other)]; }
    bool is_abroad(const Schedule& schedule, size_t block, bool incoming) const;
    // Ends abroad of the blocks before this one, and of the block itself the incoming one if this is the outgoing.
    size_t abroad_before(const Schedule& schedule, size_t block, bool incoming) const;
    // Incoming slots in the rank's area of the blocks before this one.
    size_t receiving(const Schedule& schedule, size_t blocks) const;
    ConnectionEnd abroad_end(const Group& group, const Schedule& schedule, size_t block, bool incoming,
                             std::byte* abroad) const;
    StepBlock with_connections(const Group& group, const Schedule& schedule, size_t index,
                               std::span<std::byte* const> areas, std::byte* abroad) const;

    std::vector<int32_t> hosts_;
    std::vector<Group> groups_;
    size_t area_bytes_ = 0, program_bytes_ = 0;
    size_t abroad_words_bytes_ = 0, abroad_slots_bytes_ = 0;
};

}  // namespace weft::cuda
