// transport.hpp: the interface of a transport, which makes connections between ranks (transports/connection.hpp).
// A transport declines by its capabilities. docs/design/transports.md has the owners of memory, the thread of each call,
// and a mapping to RDMA. For all ranks of a host at once, see segment/flag_block.hpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/segment/segment.hpp"
#include "transports/connection.hpp"

namespace weft::internal {

namespace net {
struct Identity;
}

// State that the two connections between two ranks, one in each direction, may share.
class Shared {
  public:
    virtual ~Shared() = default;
};

struct ConnectionOptions {
    int self = 0;
    int peer = 0;
    int channel = 0;
    int depth = 2;  // slots
    size_t slot_bytes = 0;
    Segment* host = nullptr;                  // the segment of both ends; null: they are on different hosts
    size_t* heap_used = nullptr;              // used bytes of this rank's heap; a transport that takes more advances it
    const net::Identity* identity = nullptr;  // of the communicator, for the handshake of a socket
    // Null: there is no connection in the other direction. Otherwise both ends set it, listen first, and connect when
    // both have listened.
    std::shared_ptr<Shared>* shared = nullptr;
    // In shared memory: the size of the data ring, if that is more than the slots hold. The receiver's value is used.
    size_t ring_bytes = 0;
    // Capability::given_slots: this end's `depth` slots of `slot_bytes`, which `slot_memory` holds; null: the
    // transport's own. Message m uses slot m % depth. The caller keeps both until the connection has ended.
    std::byte* slots = nullptr;
    const RegisteredMemory* slot_memory = nullptr;
    // The thread that will call the connection, at one end: connections of one rank and thread may share their resources.
    enum class Driver : uint8_t { rank, proxy } driver = Driver::rank;
    // The bus id of the device whose kernels use the connection, for the choice of a NIC; empty: none.
    std::string gpu{};
};

// A receiver's address: it listens and fills a blob, the planner passes the blob to the sender, and the sender connects.
// A transport whose set-up takes more steps puts a door (an address) and a token here. The ends exchange the rest over a
// socket of the process's listener.
struct Blob {
    static constexpr size_t of_transport = 20;  // words: a handle of 128 bytes and four more
    uint64_t words[of_transport + 1] = {};      // the last word belongs to the connector
};

// The abilities of a transport beyond slots in its own memory. Bits; weft/transport.h has the same values.
enum class Capability : uint32_t {
    posts = 1,         // post() does not copy; otherwise it is send()
    offers = 2,        // a message can go straight into offered memory
    registers = 4,     // memory of post(), offer(), put(), get() and given slots must be registered
    device = 8,        // registers device memory
    given_slots = 16,  // uses slots that the caller gives
    one_sided = 32,    // put() and get()
    sleeps = 64,       // add_wakeups() gives descriptors; without it a remote connection is polled by time
    remote = 128,      // connects ranks of different hosts
};
constexpr uint32_t capabilities(auto... each) { return (uint32_t(each) | ... | 0u); }

struct Reached {
    uint32_t network = 0;  // 0: every rank of a host, or every rank that has an identity
    NetworkSpeed speed;    // for predictions
};

// One NIC, port or interface that a transport uses, for `weft info`.
struct Rail {
    std::string name;       // as in eth0 or mlx5_0:1
    std::string detail;     // an address, a GID, or a sentence about the choice
    int64_t mbps = 0;       // 0: unknown
    std::string why_not{};  // not empty: it is not used, for this reason
};

// One row of the registry. Immutable, thread-safe, lives as long as the process.
class Transport {
  public:
    Transport(const char* name, uint32_t capabilities) : name(name), capabilities_(capabilities) {}
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;
    virtual ~Transport() = default;

    const char* const name;  // as in logs and `weft info`
    bool can(Capability capability) const { return (capabilities_ & uint32_t(capability)) != 0; }

    // Empty: the transport works on this machine; otherwise the reason why it does not, for `weft info`.
    virtual std::string available() const { return {}; }
    // The networks that the transport reaches, the preferred one first; at least one. Unless it is 0, two ranks use the
    // transport only if both have it, with a network in common; otherwise they agree on the next transport.
    virtual std::vector<Reached> networks() const { return {Reached{}}; }
    // For so long its device repeats data that the peer's does not acknowledge, before it reports a failure; 0: it has none.
    virtual int64_t repeat_us() const { return 0; }
    virtual std::vector<Rail> rails() const { return {}; }
    // The NICs that connections of this rank may use if its device has this bus id: names as in /sys (mlx5_0), or bus
    // ids. Empty: unknown.
    virtual std::vector<std::string> nics(const std::string& gpu, int rank) const {
        (void)gpu, (void)rank;
        return {};
    }

    // Empty: the ranks can connect; otherwise the reason why they cannot. Both ends find the same.
    virtual std::string can_connect(const ConnectionOptions& options) const = 0;
    // Called by the thread that drives the communicator; neither blocks. A slow step, such as a lookup by the kernel,
    // runs on a thread of the transport while the ends answer "not yet".
    virtual Result<std::unique_ptr<Receiver>> listen(const ConnectionOptions& options, Blob& address) const = 0;
    virtual Result<std::unique_ptr<Sender>> connect(const ConnectionOptions& options, const Blob& address) const = 0;

    // For all connections of the process; from any thread. May take milliseconds.
    virtual Result<std::unique_ptr<RegisteredMemory>> register_memory(const MemoryRange& range) const;

  private:
    uint32_t capabilities_;
};

}  // namespace weft::internal
