// connection.hpp: a connection over a plugin: one comm in each direction. A message is two of the plugin's: a header, and
// the data. So data go between registered buffers, which may be device memory, and the header stays in host memory. The
// receiver posts targets for `depth` messages. A plugin accepts a message only if its target is posted, which is the credit.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "src/net/secret.hpp"
#include "transports/nccl_net/memory.hpp"
#include "transports/transport.hpp"

namespace weft::internal::nccl_net {

struct Header {
    static constexpr uint32_t expected_magic = 0x676e6677;  // "wfng"
    static constexpr uint32_t goodbye_magic = 0x656e6677;   // "wfne": the sender has left
    uint32_t magic = expected_magic;
    uint32_t fingerprint = 0;
    uint64_t sequence = 0;  // of the message on this connection, from 1
    uint64_t bytes = 0;     // of the data
    uint64_t operation = 0;
    net::Digest proof{};  // in the first message: the sender knows the communicator's secret
};
static_assert(sizeof(Header) == 64);

// A receiver's address in a Blob.
struct Address {
    int device = 0;  // of the receiver
    int depth = 0;
    size_t slot_bytes = 0;
    alignas(std::max_align_t) unsigned char handle[abi::handle_bytes] = {};  // a plugin may write to it
    Blob blob() const;
    static Address of(const Blob& blob);  // of no depth if the blob is none of ours
};

// The buffers of one end: the headers, and slots unless the caller gives them.
class Buffers {
  public:
    static Result<Buffers> make(const Net& net, const ConnectionOptions& options);
    Header& header(uint64_t message) { return headers_[message % depth_]; }
    std::byte* slot(uint64_t message) { return slots_ + message % depth_ * stride_; }
    const NetMemory& headers() const { return own_.registered(); }
    const NetMemory& slots() const { return *slot_memory_; }
    // Own slots, for copies of messages in memory that the plugin refuses: those of slot(), or more of them beside the
    // caller's.
    Status make_copies(const Net& net);
    std::byte* copy(uint64_t message) { return (copies_ ? copies_.data() : slots_) + message % depth_ * stride_; }
    const NetMemory& copies() const { return copies_ ? copies_.registered() : own_.registered(); }

  private:
    OwnMemory own_, copies_;
    Header* headers_ = nullptr;
    std::byte* slots_ = nullptr;
    size_t stride_ = 0;
    const NetMemory* slot_memory_ = nullptr;
    uint64_t depth_ = 0;
};

// The facts of both ends. A failure of a plugin is final.
struct End {
    const Net& net;
    ConnectionOptions options;

    Status failed(const char* what, abi::Answer answer) const;
    // Of the connection from rank `sender`: equal at both ends, and known to no other process.
    net::Digest proof(int sender) const;
};

// How long the ends of a communicator wait for each other's goodbyes. Some plugins do not close a comm with requests, or
// break others. So a sender completes the targets that its receiver has posted.
class Patience {
  public:
    Patience();
    bool lasts() const;  // false: give up, and so do the next connections of this thread
  private:
    int64_t until_us_;
};

enum Part : uint64_t { header_part, data_part, parts };  // tags of the plugin's messages, too
// Targets that a receiver posts ahead of what has arrived, in messages. One request more may be a flush.
inline constexpr uint64_t messages_ahead = (abi::requests_most - 1) / parts;

// The device of an end: `wanted` if it can carry the slots, or else another one.
Result<int> device_for(const Net& net, const ConnectionOptions& options, int wanted);

Result<std::unique_ptr<Receiver>> make_receiver(const Net& net, const ConnectionOptions& options, Blob& address);
Result<std::unique_ptr<Sender>> make_sender(const Net& net, const ConnectionOptions& options, const Address& address);

}  // namespace weft::internal::nccl_net
