// receiver.cpp: the receiving end of a connection over UCX.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/ucx/ends.hpp"

namespace weft::internal::ucx {

namespace {

// Bytes of all connections with a peer. If it may have more on the way, it must flush, which waits for this rank's next
// call; that one may wait for the peer.
constexpr uint64_t owed_most = on_the_way_most / 2;

// Thread-bound (transports/connection.hpp).
class UcxReceiver final : public Receiver, private Inbox {
  public:
    explicit UcxReceiver(End end)
        : end_(std::move(end)),
          depth_(uint64_t(end_.options.depth)),
          batch_(std::max<uint64_t>(1, depth_ / 2)),
          came_(depth_),
          offers_(depth_) {
        end_.worker->add(end_.token, *this);
    }
    UcxReceiver(const UcxReceiver&) = delete;
    UcxReceiver& operator=(const UcxReceiver&) = delete;
    ~UcxReceiver() override {
        withdraw();
        return_credits(1);  // they tell the sender that its messages have arrived
        if (end_.peer) end_.peer->owed_bytes -= owed_bytes_;
        end_.worker->remove(end_.token, std::move(end_.buffers));
    }

    Result<Slot> receive(SlotInfo& info) override;
    Status release() override;
    Result<bool> offer(std::byte* target, size_t capacity, RegisteredMemory*, uint64_t message) override;
    uint64_t next() const override { return released_; }
    void withdraw() override;
    void add_wakeups(Wakeups& wakeups) override {
        end_.add_wakeups(wakeups);
        wakeups.ready |= arrived() || !damage_ || (end_.peer && end_.peer->status != UCS_OK);
    }

  private:
    struct Offer {
        std::byte* target = nullptr;  // null: there is none
        size_t capacity = 0;
        bool taken = false;  // by the message
    };

    bool begun(const MessageHeader& header) const {
        return end_.buffers->headers[size_t((header.sequence - 1) % depth_)].sequence == header.sequence;
    }
    ucs_status_t on_message(const MessageHeader& header, void* data, size_t bytes, bool by_rendezvous) override;
    void on_credits(uint64_t) override {}
    uint32_t take_credits() override {
        end_.peer->owed_bytes -= std::exchange(owed_bytes_, 0);
        return uint32_t(released_ - std::exchange(returned_, released_));
    }
    Status check(const MessageHeader& header, size_t bytes, bool by_rendezvous) const;
    // Whether the next message is whole.
    bool arrived() const {
        const size_t place = size_t(released_ % depth_);
        const MessageHeader& header = end_.buffers->headers[place];
        return header.sequence == released_ + 1 && came_[place] == header.bytes &&
               end_.buffers->transfers[place].active == 0;
    }
    void return_credits(uint64_t least);

    End end_;
    uint64_t depth_;
    uint64_t batch_;         // credits that are returned together
    uint64_t released_ = 0;  // messages
    uint64_t returned_ = 0;  // credits
    uint64_t owed_bytes_ = 0;
    uint64_t credit_messages_ = 0;
    std::vector<uint64_t> came_;  // bytes, by message modulo depth_
    std::vector<Offer> offers_;   // likewise
    bool withdrawn_ = false;
    Status damage_;
};

Status UcxReceiver::check(const MessageHeader& header, size_t bytes, bool by_rendezvous) const {
    const ConnectionOptions& options = end_.options;
    const FailureFacts about{.rank = options.peer, .peer = options.self};
    const uint64_t first = released_ + 1;
    const size_t place = size_t((header.sequence - 1) % depth_);
    const MessageHeader& known = end_.buffers->headers[place];
    const bool expected =
        header.sequence >= first && header.sequence < first + depth_ &&
        (known.sequence < first || (known.sequence == header.sequence && came_[place] < header.bytes));
    if (!expected)
        return fail(error::internal_damaged,
                    "rank {} expected message {} from rank {} over ucx and got one numbered {}: the stream is damaged",
                    options.self, first, options.peer, header.sequence)
            .about(about);
    const uint64_t came = begun(header) ? came_[place] : 0, whole = begun(header) ? known.bytes : header.bytes;
    if (header.bytes > options.slot_bytes || header.bytes != whole || header.offset > whole ||
        bytes > whole - header.offset || bytes > whole - came || (by_rendezvous && bytes != whole) ||
        (bytes == 0 && whole > 0))
        return fail(error::internal_damaged,
                    "rank {} got {} bytes at {} of a message of {} bytes from rank {} over ucx: the stream is damaged; "
                    "slots hold {}",
                    options.self, bytes, header.offset, header.bytes, options.peer, options.slot_bytes)
            .about(about);
    return ok();
}

ucs_status_t UcxReceiver::on_message(const MessageHeader& header, void* data, size_t bytes, bool by_rendezvous) {
    if (Status wrong = check(header, bytes, by_rendezvous); !wrong) {
        if (damage_) damage_ = std::move(wrong);
        return UCS_OK;
    }
    const size_t place = size_t((header.sequence - 1) % depth_);
    Buffers& buffers = *end_.buffers;
    Transfer& transfer = buffers.transfers[place];
    Offer& offer = offers_[place];
    if (!begun(header)) {
        buffers.headers[place] = header;
        came_[place] = 0;
        transfer = {};
        offer.taken = offer.target != nullptr && !by_rendezvous && header.bytes <= offer.capacity;
    }
    came_[place] += bytes;
    std::byte* const slot = buffers.slot(header.sequence - 1);
    if (!by_rendezvous) {
        if (bytes > 0) memcpy((offer.taken ? offer.target : slot) + header.offset, data, bytes);
        return UCS_OK;
    }
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMH;
    param.cb.recv_am = Worker::complete_receive;
    param.user_data = &transfer;
    param.memh = buffers.handle();
    transfer.begin();
    ucs_status_ptr_t const request =
        end_.worker->library().ucp_am_recv_data_nbx(end_.worker->handle(), data, slot, bytes, &param);
    if (!UCS_PTR_IS_PTR(request)) transfer.end(UCS_PTR_RAW_STATUS(request));
    return UCS_INPROGRESS;
}

Result<Slot> UcxReceiver::receive(SlotInfo& info) {
    auto met = end_.meet();
    if (!met) return met.take_status();
    if (!*met) return Slot{};
    const size_t place = size_t(released_ % depth_);
    const MessageHeader& header = end_.buffers->headers[place];
    const Transfer& transfer = end_.buffers->transfers[place];
    if (!arrived()) {
        end_.worker->progress();
        return_credits(batch_);
        if (!damage_) return damage_.copy();
        if (!arrived()) {
            if (end_.peer->status != UCS_OK) return end_.failed("receive from", end_.peer->status);
            return Slot{};
        }
    }
    if (transfer.status != UCS_OK) return end_.failed("receive from", transfer.status);
    info = {header.bytes, header.operation, header.fingerprint};
    if (const Offer& offer = offers_[place]; offer.taken) return Slot{offer.target, offer.capacity};
    return Slot{end_.buffers->slot(released_), end_.options.slot_bytes};
}

// The sender does not know of offers: this end copies what UCX has received.
Result<bool> UcxReceiver::offer(std::byte* target, size_t capacity, RegisteredMemory*, uint64_t message) {
    if (withdrawn_ || !end_.peer || !end_.peer->by_tcp || message < released_ || message >= released_ + depth_)
        return false;
    const size_t place = size_t(message % depth_);
    if (offers_[place].target != nullptr || end_.buffers->headers[place].sequence == message + 1) return false;
    offers_[place] = {target, capacity, false};
    return true;
}

void UcxReceiver::withdraw() {
    withdrawn_ = true;
    std::fill(offers_.begin(), offers_.end(), Offer());
}

// A credit message that UCX still has is not overwritten; its successor waits for the next call. A sender that has left
// needs no credit.
void UcxReceiver::return_credits(uint64_t least) {
    if (released_ - returned_ < least || !end_.peer || end_.peer->status != UCS_OK) return;
    const size_t place = size_t(credit_messages_ % depth_);
    Buffers& buffers = *end_.buffers;
    if (buffers.credit_transfers[place].active > 0) return;
    // A sender that has left resets the socket at the next credit. Its last messages must be here by then.
    end_.worker->drain();
    if (end_.peer->status != UCS_OK) return;
    buffers.credit_transfers[place] = {};
    CreditHeader& credit = buffers.credits[place];
    credit = {end_.token, take_credits()};
    end_.worker->post(*end_.peer, Worker::credit_id, &credit, sizeof credit, nullptr, 0, nullptr,
                      buffers.credit_transfers[place]);
    ++credit_messages_;
}

Status UcxReceiver::release() {
    offers_[size_t(released_ % depth_)] = {};
    const uint64_t bytes = end_.buffers->headers[size_t(released_ % depth_)].bytes + headers_bytes;
    ++released_;
    owed_bytes_ += bytes;
    if (end_.peer) end_.peer->owed_bytes += bytes;
    return_credits(end_.peer && end_.peer->owed_bytes > owed_most ? 1 : batch_);
    // The rest goes along with the next message to the peer.
    if (released_ > returned_ && end_.peer) end_.peer->owing = end_.token;
    return ok();
}

}  // namespace

std::unique_ptr<Receiver> make_receiver(End end) { return std::make_unique<UcxReceiver>(std::move(end)); }

}  // namespace weft::internal::ucx
