// worker.hpp: a rank's UCX worker, and its endpoints to other ranks. All connections of the rank use them: a call of one
// may complete requests and deliver messages of another. Connections of one rank are never used concurrently, so there is
// no lock.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "src/net/secret.hpp"
#include "transports/ucx/library.hpp"

namespace weft::internal::ucx {

// The header of a message, as an active message carries it.
struct MessageHeader {
    uint64_t connection = 0;  // the receiver's token, which no other connection of its process has
    uint64_t sequence = 0;    // from 1
    uint64_t bytes = 0;
    uint64_t operation = 0;
    uint32_t fingerprint = 0;
    uint32_t credits = 0;   // that go along, for a connection in the other direction
    uint64_t credited = 0;  // the token of that one
};
// Returns credits to the sender.
struct CreditHeader {
    uint64_t connection = 0;
    uint64_t credits = 0;
};

// An operation that UCX may complete later.
struct Transfer {
    bool active = false;
    ucs_status_t status = UCS_OK;
    void begin() { active = true, status = UCS_OK; }
    void end(ucs_status_t how) { active = false, status = how; }
};

// Memory of one end. It outlives the end while UCX may still use it.
class Buffers {
  public:
    static Result<std::shared_ptr<Buffers>> make(const Library& library, int depth, size_t slot_bytes);
    Buffers() = default;
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;
    ~Buffers();
    std::byte* slot(uint64_t message) { return memory_.get() + message % transfers.size() * stride_; }
    ucp_mem_h handle() const { return handle_; }
    bool active() const;

    // One for each slot.
    std::vector<Transfer> transfers;
    std::vector<MessageHeader> headers;
    std::vector<Transfer> credit_transfers;
    std::vector<CreditHeader> credits;
    Transfer flush;

  private:
    struct Freed {
        void operator()(std::byte* memory) const;
    };
    const Library* library_ = nullptr;
    std::unique_ptr<std::byte, Freed> memory_;
    ucp_mem_h handle_ = nullptr;
    size_t stride_ = 0;
};

// An end of a connection, as a worker sees it.
class Inbox {
  public:
    virtual ~Inbox() = default;
    // A message: its data, or with `by_rendezvous` what ucp_am_recv_data_nbx() takes. The result is the callback's.
    virtual ucs_status_t on_message(const MessageHeader& header, void* data, size_t bytes, bool by_rendezvous) = 0;
    virtual void on_credits(uint64_t credits) = 0;
    // For a message to the peer: the credits that this receiver owes.
    virtual uint32_t take_credits() { return 0; }
};

struct Peer {
    ucp_ep_h endpoint = nullptr;
    ucs_status_t status = UCS_OK;  // otherwise the endpoint is broken
    uint64_t unreleased = 0;       // messages that the peer may not have yet
    uint64_t owing = 0;            // the token of a receiver that owes it credits; 0: none
};

// Thread-bound to its rank.
class Worker {
  public:
    // Of a rank of a communicator in this process.
    static Result<std::shared_ptr<Worker>> of(const net::Identity& identity, int rank);
    explicit Worker(const Library& library) : library_(library) {}
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker();

    const Library& library() const { return library_; }
    const std::vector<std::byte>& address() const { return address_; }
    // The endpoint to a rank with the worker at `address`. The pointer stays valid as long as the worker.
    Result<Peer*> peer(int rank, const std::vector<std::byte>& address);
    void progress() { (void)library_.ucp_worker_progress(worker_); }
    void drain();  // takes what has arrived
    ucp_worker_h handle() const { return worker_; }
    int descriptor() const { return descriptor_; }
    // False: something came, for any connection of the rank, or there is no end of events; the rank must not sleep.
    bool arm();

    // An end gets what comes with its token until it is removed. UCX may still use the buffers then.
    void add(uint64_t token, Inbox& inbox) { inboxes_[token] = &inbox; }
    void remove(uint64_t token, std::shared_ptr<Buffers> buffers);
    // Adds credits that a receiver owes the peer to a message for it.
    void add_credits(Peer& peer, MessageHeader& header);
    // Posts an active message. `transfer` is active until it is complete.
    void post(Peer& peer, unsigned id, const void* header, size_t header_bytes, const std::byte* data, size_t bytes,
              ucp_mem_h memory, Transfer& transfer);
    // Completes when all that was posted to the peer needs no further call of this worker.
    void flush(Peer& peer, Transfer& transfer);

    static constexpr unsigned message_id = 0, credit_id = 1;
    static void complete(void* request, ucs_status_t status, void* transfer);
    static void complete_receive(void* request, ucs_status_t status, size_t bytes, void* transfer);

  private:
    Status init(int rank);
    void close_endpoints();
    static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                   const ucp_am_recv_param_t* param);
    static ucs_status_t on_credits(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                   const ucp_am_recv_param_t* param);
    static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

    const Library& library_;
    ucp_worker_h worker_ = nullptr;
    int descriptor_ = -1;
    std::vector<std::byte> address_;
    std::map<int, std::unique_ptr<Peer>> peers_;
    std::unordered_map<uint64_t, Inbox*> inboxes_;
    std::vector<std::shared_ptr<Buffers>> kept_;  // of ends that are gone
};

}  // namespace weft::internal::ucx
