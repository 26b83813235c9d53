// connections.hpp: where the connections of a communicator's step machines lie, and the programs that run over them.
// Each rank has an area in memory that all its peers of its host reach; agreed facts alone say what lies where in it,
// so that each rank reckons the addresses of both ends of a connection by itself. Ends whose peer is on another host,
// *remote*, lie in host memory of the rank's own, where the proxy meets its kernels. Knows no driver.
//
// A connection serves all programs that want one from there to there with so many slots: each leaves it empty, its
// messages are counted from operation to operation, and kernels of a rank run one after the other. So algorithms and
// roots cost programs, some kilobytes each, and not slots.
#pragma once
#include <map>
#include <span>
#include <vector>

#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal::cuda {

// A rank's end of a connection whose peer is remote: what the proxy must know of it.
struct RemoteEnd {
    int channel;
    bool incoming;      // the peer sends
    ConnectionEnd end;  // as the host addresses it; without count
    // Of messages, which take several slots: by slot, bytes of the whole message.
    uint64_t* wholes = nullptr;
};

// A value; made alike on all ranks.
class Connections {
  public:
    static constexpr int all_ranks = -1;
    // rank: whose programs are wanted; all_ranks: of each. hosts: by rank; empty: all are on one.
    explicit Connections(int rank = all_ranks, std::vector<int32_t> hosts = {})
        : rank_(rank), hosts_(std::move(hosts)) {}

    // A block copies 20 bytes a nanosecond at most, and a flag takes a microsecond or two from one device to the other:
    // with smaller slots flags would count, with larger ones the memory.
    static constexpr size_t slot_bytes = 256 << 10;

    // One program more, an algorithm's, for one root if it has one: its schedules by rank, which the device can run
    // (program.hpp). The first has number 0.
    void add(std::vector<Schedule> schedules);
    size_t programs() const { return groups_.size(); }

    size_t area_bytes() const;  // of each rank; zero before the first operation
    // Of each rank, for its own kernels.
    size_t program_bytes() const { return program_bytes_; }
    // Of each rank, in pinned host memory; zero before the first operation. Slots, which need not be, come behind.
    size_t remote_bytes() const { return remote_words_bytes() + most_.remote_slots * slot_bytes; }
    size_t remote_words_bytes() const;
    // Of each rank, where its kernels keep Buffer::scratch: on its own device, for its own programs.
    size_t scratch_bytes() const { return scratch_bytes_; }
    // The largest tile, of a part, that a schedule's messages and its scratch allow.
    static constexpr uint32_t depth_max = 16;  // slots of a connection
    static size_t most_tile_bytes(const Schedule& schedule);
    // What a rank's kernels find at their program memory. areas: by rank, as these kernels address them; null of ranks
    // remote. remote: the rank's own host memory, likewise.
    std::vector<std::byte> programs(int rank, std::span<std::byte* const> areas, std::byte* remote = nullptr) const;
    // In an order of their own, always the same. remote: as the host addresses it; null: ends have no addresses yet.
    std::vector<RemoteEnd> remote_ends(int rank, std::byte* remote) const;
    // Of a program of this rank's.
    const Schedule& schedule(size_t index, int rank) const { return groups_[index].schedules[size_t(rank)]; }
    // The `index`-th program. `programs`: that memory.
    void bind(KernelArguments& arguments, size_t index, const std::byte* programs) const;

  private:
    struct ConnectionKey {
        int channel, sender, receiver;
        uint32_t depth;
        auto operator<=>(const ConnectionKey&) const = default;
    };
    // Of what lies before it where its rank has such: ends, remote ends, and slots there.
    struct End {
        size_t place, remote, remote_slots;
    };
    struct KernelConnection {
        End sender, receiver;
        size_t slots;  // in the receiver's area before its own; both on one host
    };
    // What a rank has, or any of them at most.
    struct Extent {
        size_t ends = 0, slots = 0, remote = 0, remote_slots = 0;
    };
    struct ProgramGroup {
        std::vector<Schedule> schedules;  // by rank; empty where it is nobody's who is wanted
        size_t program;                   // offset
    };
    static size_t step_blocks_offset(const Schedule& schedule);
    static uint32_t depth_of(const Schedule& schedule);
    bool wanted(int rank) const { return rank_ == all_ranks || rank == rank_; }
    bool together(int one, int other) const { return hosts_.empty() || hosts_[size_t(one)] == hosts_[size_t(other)]; }
    End next_end(int rank, bool remote, uint32_t depth);
    void connect(const ConnectionKey& key);
    ConnectionEnd end_of(const ConnectionKey& key, const KernelConnection& connection, bool incoming,
                         std::span<std::byte* const> areas, std::byte* remote) const;
    ConnectionEnd remote_end(const ConnectionKey& key, const KernelConnection& connection, bool incoming,
                             std::byte* remote) const;

    int rank_;
    std::vector<int32_t> hosts_;
    std::map<ConnectionKey, KernelConnection> connections_;
    std::vector<Extent> extents_;  // by rank
    Extent most_;
    std::vector<ProgramGroup> groups_;
    size_t program_bytes_ = 0, scratch_bytes_ = 0;
};

}  // namespace weft::internal::cuda
