// transfers.hpp: the puts and gets of a connection: RDMA writes and reads in the peer's registered memory, in which the
// peer takes no part (posted by transfer_posting.hpp). Thread-bound to the thread that drives the endpoint.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/result.hpp"
#include "transports/verbs/registered.hpp"

namespace weft::internal::verbs {

// A peer's registered memory.
class RemoteRange final : public RemoteMemory {
  public:
    // internal.state: the key is none of the process with this net::process_mark().
    static Result<std::unique_ptr<RemoteRange>> of(std::span<const std::byte> key, uint32_t process);
    bool holds(uint64_t offset, uint64_t bytes) const { return offset <= bytes_ && bytes <= bytes_ - offset; }
    uint64_t address() const { return address_; }
    size_t devices() const { return keys_.size(); }
    uint32_t rkey(size_t device) const { return keys_[device]; }

  private:
    uint64_t address_ = 0, bytes_ = 0;
    std::vector<uint32_t> keys_;  // by Devices::all() of the peer
};

// A put into the peer's memory at `there`, or a get from it.
struct Transfer {
    bool puts = true;
    std::byte* own = nullptr;
    const Registered* memory = nullptr;  // holds `own`
    const RemoteRange* peer = nullptr;
    uint64_t there = 0, bytes = 0;
};

// Owned by the sending end of a connection: counts of posted and of complete transfers.
// A put is acknowledged when the peer's device has it, which may be before its bytes are in memory. A later message on the
// same lane is received after them. A read of one byte on each of their lanes confirms that they are there.
class Transfers {
  public:
    bool has_room() const { return posted_ - ended_ < most; }
    // Counts a transfer of so many parts, on one lane or several. Returns its number.
    uint64_t add(bool puts, int parts, bool scattered);
    void complete(uint64_t number, int parts = 1);  // parts of a transfer

    // While puts are unconfirmed, messages take their connection's home lane, to be received after them.
    bool unconfirmed() const { return confirmed_ < puts_end_; }
    size_t home() const { return home_; }
    void move_home(size_t lane) { home_ = unconfirmed() ? home_ : lane; }
    // Messages must wait until so many transfers are confirmed: the last put used several lanes.
    uint64_t fence() const { return scattered_end_; }
    // A transfer has a part on this lane.
    void use(size_t lane) { lanes_ |= uint64_t(1) << lane; }
    // A bit for each lane with parts that no confirmation covers yet.
    uint64_t lanes() const { return lanes_; }
    // So many reads will confirm all that was posted.
    void begin_confirming(int reads);
    bool confirming() const { return confirming_left_ > 0; }
    // True: all the reads have ended. `works`: the link has not failed, so that they are complete.
    bool complete_confirmation(bool works, int reads = 1);

    // Whether no device uses this side's memory any more.
    bool idle() const { return ended_ == posted_; }
    bool quiet() const { return idle() && !confirming(); }
    // Transfers, from the first, with their bytes in the memory that they go to.
    uint64_t confirmed() const { return confirmed_; }
    // Gets need no confirmation. False: some put does.
    bool settle();

  private:
    static constexpr uint64_t most = 64;  // under way: more do not make a link faster

    std::vector<int> parts_left_ = std::vector<int>(most);  // by number modulo `most`
    size_t home_ = 0;
    uint64_t lanes_ = 0;
    uint64_t posted_ = 0, ended_ = 0, confirmed_ = 0;
    uint64_t puts_end_ = 0, scattered_end_ = 0;  // one more than the last put; than the last put on several lanes
    uint64_t confirming_ = 0;                    // transfers that the reads under way confirm
    int confirming_left_ = 0;                    // reads
};

}  // namespace weft::internal::verbs
