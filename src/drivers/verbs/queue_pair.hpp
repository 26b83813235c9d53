// queue_pair.hpp: a reliable connection between two devices: a queue of sends and one of receives.
#pragma once
#include <memory>
#include <optional>

#include "src/base/result.hpp"
#include "src/drivers/verbs/completion_queue.hpp"
#include "src/drivers/verbs/memory.hpp"
#include "src/drivers/verbs/path.hpp"

namespace weft::internal::verbs {

struct QueuePairOptions {
    int send_requests = 256, receive_requests = 1'024;
    int send_sges = 2, receive_sges = 1;
    int inline_bytes = 220;  // a wish: halved until the device agrees
};

// RESET -> init() -> connect() carries messages. The domain and the completion queues must outlive it. Thread-bound.
class QueuePair {
  public:
    // verbs.call names the device's limit where it is known.
    static Result<std::unique_ptr<QueuePair>> make(const ProtectionDomain& domain, const CompletionQueue& sends,
                                                   const CompletionQueue& receives, const QueuePairOptions& options);
    QueuePair(const QueuePair&) = delete;
    QueuePair& operator=(const QueuePair&) = delete;
    ~QueuePair();

    uint32_t number() const { return pair_->qp_num; }
    int inline_bytes() const { return inline_bytes_; }  // what the device agreed to

    // To INIT: receive requests may be posted from here on. `access`: the rights of the peer.
    Status init(int port, int pkey_index, int access);
    // To RTR: accepts the peer's messages. May block for seconds while the kernel resolves the peer's address: never
    // call it on a thread that drives transfers. verbs.path names both ends.
    Status receive_from(const PathEnd& own, const PathEnd& peer, const PathOptions& options);
    // To RTS: may send.
    Status begin_sending(const PathEnd& own, const PathOptions& options);
    // To ERR: ends all requests, which complete as flushed. Nothing from the peer lands after it.
    Status fail_requests();
    // To RESET, for another connection.
    Status reset();
    // The device's view: it goes to ERR by itself.
    Result<int> state() const;

    // Enhanced connection establishment. Empty, or false: the device has none, which is no failure.
    std::optional<abi::Ece> ece() const;
    bool set_ece(const abi::Ece& ece);

    // Post a list with one doorbell. 0, or an errno value with `failed` at the first request that was not posted.
    // ENOMEM: the queue is full.
    [[nodiscard]] int post(abi::SendRequest* first, abi::SendRequest** failed) {
        return pair_->context->operations.post_send(pair_, first, failed);
    }
    [[nodiscard]] int post(abi::ReceiveRequest* first, abi::ReceiveRequest** failed) {
        return pair_->context->operations.post_recv(pair_, first, failed);
    }

  private:
    QueuePair(const ProtectionDomain& domain, abi::Pair* pair, int inline_bytes)
        : domain_(domain), pair_(pair), inline_bytes_(inline_bytes) {}
    Status modify(abi::PairAttributes& attributes, int mask, const char* state);
    int reads(const PathOptions& options) const;
    const abi::Functions& functions() const { return domain_.context().functions(); }

    const ProtectionDomain& domain_;
    abi::Pair* const pair_;
    const int inline_bytes_;
};

}  // namespace weft::internal::verbs
