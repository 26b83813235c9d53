// transfers.hpp: the puts and gets of a connection. They are RDMA writes and reads in the peer's registered memory, so the
// peer takes no part. Thread-bound to the thread that drives the endpoint.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/result.hpp"
#include "transports/verbs/registered.hpp"

namespace weft::internal::verbs {

class Link;
struct Lane;
struct Outgoing;

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
    int parts_left = 0;
};

// Owned by the sending end of a connection.
// A put is acknowledged when the peer's device has it, which may be before its bytes are in memory. A later message on the
// same lane is received after them. A read of one byte on each lane confirms that they are there.
class Transfers {
  public:
    bool has_room() const { return posted_ - ended_ < most; }
    // False: a send queue is full. internal.damaged: the peer uses a device that the key does not have.
    Result<bool> post(Link& link, Outgoing& of, Transfer transfer);
    // While puts are unconfirmed, messages take their connection's home lane, to be received after them.
    bool unconfirmed() const { return confirmed_ < puts_end_; }
    // Messages must wait until so many transfers are confirmed: the last put used several lanes.
    uint64_t fence() const { return scattered_end_; }
    // Reads what confirms all that was posted, unless such reads are under way. False: a send queue is full.
    bool confirm(Link& link, Outgoing& of);
    void complete(uint64_t number, int parts = 1);  // parts of a transfer
    // A read of confirm(). True: it was the last one. `works`: the link has not failed, so that the read is complete.
    bool complete_confirmation(bool works);

    // Transfers, from the first: whose own memory is free, and whose bytes are where they should be.
    bool idle() const { return ended_ == posted_; }
    bool quiet() const { return idle() && confirming_left_ == 0; }
    uint64_t confirmed() const { return confirmed_; }
    // Gets need no confirmation.
    bool settle() {
        if (!unconfirmed()) confirmed_ = ended_;
        return confirmed_ >= ended_;
    }

  private:
    static constexpr uint64_t most = 64;  // under way: more do not make a link faster
    size_t parts_of(const Link& link, const Transfer& transfer) const;
    static bool post_part(Link& link, Outgoing& of, size_t lane, uint64_t number, const Transfer& part);
    Transfer& at(uint64_t number) { return ring_[size_t(number % most)]; }

    std::vector<Transfer> ring_{most};
    uint64_t posted_ = 0, ended_ = 0, confirmed_ = 0;
    uint64_t puts_end_ = 0, scattered_end_ = 0;  // one more than the last put; than the last put on several lanes
    uint64_t confirming_ = 0;                    // transfers that the reads under way confirm
    int confirming_left_ = 0;                    // reads
};

}  // namespace weft::internal::verbs
