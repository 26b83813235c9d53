// connections.hpp: the memory layout of the connections of a communicator's step machines, and the programs that use
// them. Each rank has an area that all peers of its host can access. Its layout follows from agreed facts, so each rank
// computes the addresses of both ends of a connection. An end whose peer is on another host is *remote*: its words are
// in the rank's own host memory, where the proxy meets the rank's kernels. Its slots are in host memory, too, or on the
// device, where NICs access them. Knows no driver.
//
// All programs share the connections with the same ranks, channel and depth. Each program leaves a connection empty,
// message numbers continue from operation to operation, and kernels of a rank run one after the other. Therefore
// another algorithm or root costs a program of a few kilobytes, but no slots.
#pragma once
#include <map>
#include <span>
#include <vector>

#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal::cuda {

// A rank's end of a connection whose peer is remote, for the proxy.
struct RemoteEnd {
    int channel;
    bool incoming;      // the peer sends
    ConnectionEnd end;  // addresses in the host; without count
    // For messages, which take several slots: by slot, the bytes of the whole message.
    uint64_t* wholes = nullptr;
};

// A rank's memory for its remote ends, as addressed by its kernels or by the host. Null: the ends have no such address.
struct RemoteEndMemory {
    std::byte* words = nullptr;                      // pinned host memory
    std::byte *sent = nullptr, *received = nullptr;  // slots, by direction
};

// A value, equal on all ranks.
class Connections {
  public:
    static constexpr int all_ranks = -1;
    // rank: the programs of this rank are needed; all_ranks: those of all. hosts: by rank; empty: all are on one host.
    explicit Connections(int rank = all_ranks, std::vector<int32_t> hosts = {})
        : rank_(rank), hosts_(std::move(hosts)) {}

    // A block copies at most 20 bytes per nanosecond, and a flag takes 1 to 2 us between devices. Smaller slots would
    // make flags expensive, larger ones would waste memory.
    static constexpr size_t slot_bytes = 256 << 10;

    // Adds a program: the schedules of an algorithm, for one root if it has roots, by rank. The device must be able to
    // run them (program.hpp). The first program has number 0.
    void add(std::vector<Schedule> schedules);
    size_t programs() const { return groups_.size(); }

    size_t area_bytes() const;  // per rank; zero before the first operation
    // Per rank, for its own kernels.
    size_t program_bytes() const { return program_bytes_; }
    // Per rank: of RemoteEndMemory::words, which must be zero before the first operation, and of the slots.
    size_t remote_words_bytes() const;
    size_t sent_bytes() const { return most_.sent_slots * slot_bytes; }
    size_t received_bytes() const { return most_.received_slots * slot_bytes; }
    // Per rank: Buffer::scratch of its kernels, on its own device.
    size_t scratch_bytes() const { return scratch_bytes_; }
    // The largest tile of a part that a schedule's slots and scratch allow.
    static constexpr uint32_t depth_max = 16;  // slots of a connection
    static size_t most_tile_bytes(const Schedule& schedule);
    // The contents of a rank's program memory. areas: by rank, as addressed by its kernels; null for remote ranks.
    // remote: as addressed by the rank's kernels.
    std::vector<std::byte> programs(int rank, std::span<std::byte* const> areas,
                                    const RemoteEndMemory& remote = {}) const;
    // In a fixed order. remote: as addressed by the host.
    std::vector<RemoteEnd> remote_ends(int rank, const RemoteEndMemory& remote) const;
    // The schedule of a program of this rank.
    const Schedule& schedule(size_t index, int rank) const { return groups_[index].schedules[size_t(rank)]; }
    // Sets the arguments of a program. `programs`: the rank's program memory.
    void bind(KernelArguments& arguments, size_t index, const std::byte* programs) const;

  private:
    struct ConnectionKey {
        int channel, sender, receiver;
        uint32_t depth;
        auto operator<=>(const ConnectionKey&) const = default;
    };
    // The number of ends, of remote ends, and of remote slots of this direction before this end in its rank's area.
    struct End {
        size_t place, remote, remote_slots;
    };
    struct KernelConnection {
        End sender, receiver;
        size_t slots;  // slots before it in the receiver's area; only if both ranks are on one host
    };
    // The size of a rank's area, or the largest of all ranks.
    struct Extent {
        size_t ends = 0, slots = 0, remote = 0, sent_slots = 0, received_slots = 0;
    };
    struct ProgramGroup {
        std::vector<Schedule> schedules;  // by rank; empty for ranks whose programs are not needed
        size_t program;                   // the offset in program memory
    };
    static size_t step_blocks_offset(const Schedule& schedule);
    static uint32_t depth_of(const Schedule& schedule);
    bool wanted(int rank) const { return rank_ == all_ranks || rank == rank_; }
    bool together(int one, int other) const { return hosts_.empty() || hosts_[size_t(one)] == hosts_[size_t(other)]; }
    End next_end(int rank, bool incoming, bool remote, uint32_t depth);
    void connect(const ConnectionKey& key);
    ConnectionEnd end_of(const ConnectionKey& key, const KernelConnection& connection, bool incoming,
                         std::span<std::byte* const> areas, const RemoteEndMemory& remote) const;
    ConnectionEnd remote_end(const ConnectionKey& key, const KernelConnection& connection, bool incoming,
                             const RemoteEndMemory& remote) const;

    int rank_;
    std::vector<int32_t> hosts_;
    std::map<ConnectionKey, KernelConnection> connections_;
    std::vector<Extent> extents_;  // by rank
    Extent most_;
    std::vector<ProgramGroup> groups_;
    size_t program_bytes_ = 0, scratch_bytes_ = 0;
};

}  // namespace weft::internal::cuda
