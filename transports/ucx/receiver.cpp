// receiver.cpp: the receiving end of a connection over UCX.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/ucx/ends.hpp"

namespace weft::internal::ucx {

namespace {

// Thread-bound (transports/connection.hpp).
class UcxReceiver final : public Receiver, private Inbox {
  public:
    explicit UcxReceiver(End end)
        : end_(std::move(end)), depth_(uint64_t(end_.options.depth)), batch_(std::clamp<uint64_t>(depth_ / 2, 1, 3)) {
        end_.worker->add(end_.token, *this);
    }
    UcxReceiver(const UcxReceiver&) = delete;
    UcxReceiver& operator=(const UcxReceiver&) = delete;
    ~UcxReceiver() override {
        return_credits(1);  // they tell the sender that its messages have arrived
        end_.worker->remove(end_.token, std::move(end_.buffers));
    }

    Result<Slot> receive(SlotInfo& info) override;
    Status release() override;
    void add_wakeups(Wakeups& wakeups) override {
        end_.add_wakeups(wakeups);
        wakeups.ready |= arrived() || !damage_ || (end_.peer && end_.peer->status != UCS_OK);
    }

  private:
    ucs_status_t on_message(const MessageHeader& header, void* data, size_t bytes, bool by_rendezvous) override;
    void on_credits(uint64_t) override {}
    uint32_t take_credits() override { return uint32_t(released_ - std::exchange(returned_, released_)); }
    Status check(const MessageHeader& header, size_t bytes) const;
    // Whether the next message is in its slot.
    bool arrived() const {
        const size_t place = size_t(released_ % depth_);
        return end_.buffers->headers[place].sequence == released_ + 1 && !end_.buffers->transfers[place].active;
    }
    void return_credits(uint64_t least);

    End end_;
    uint64_t depth_;
    uint64_t batch_;         // credits that are returned together: few, so that the sender's few_on_the_way() holds
    uint64_t released_ = 0;  // messages
    uint64_t returned_ = 0;  // credits
    uint64_t credit_messages_ = 0;
    Status damage_;
};

Status UcxReceiver::check(const MessageHeader& header, size_t bytes) const {
    const ConnectionOptions& options = end_.options;
    const FailureFacts about{.rank = options.peer, .peer = options.self};
    const uint64_t first = released_ + 1;
    const bool expected = header.sequence >= first && header.sequence < first + depth_ &&
                          end_.buffers->headers[size_t((header.sequence - 1) % depth_)].sequence < first;
    if (!expected)
        return fail(error::internal_damaged,
                    "rank {} expected message {} from rank {} over ucx and got one numbered {}: the stream is damaged",
                    options.self, first, options.peer, header.sequence)
            .about(about);
    if (header.bytes > options.slot_bytes || header.bytes != bytes)
        return fail(error::internal_damaged,
                    "rank {} got a message of {} bytes from rank {} over ucx that claims {} bytes; slots hold {}",
                    options.self, bytes, options.peer, header.bytes, options.slot_bytes)
            .about(about);
    return ok();
}

ucs_status_t UcxReceiver::on_message(const MessageHeader& header, void* data, size_t bytes, bool by_rendezvous) {
    if (Status wrong = check(header, bytes); !wrong) {
        if (damage_) damage_ = std::move(wrong);
        return UCS_OK;
    }
    const size_t place = size_t((header.sequence - 1) % depth_);
    Buffers& buffers = *end_.buffers;
    buffers.headers[place] = header;
    Transfer& transfer = buffers.transfers[place];
    std::byte* const slot = buffers.slot(header.sequence - 1);
    if (!by_rendezvous) {
        if (bytes > 0) memcpy(slot, data, bytes);
        transfer.end(UCS_OK);
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
    return Slot{end_.buffers->slot(released_), end_.options.slot_bytes};
}

// A credit message that UCX still has is not overwritten; its successor waits for the next call. A sender that has left
// needs no credit.
void UcxReceiver::return_credits(uint64_t least) {
    if (released_ - returned_ < least || !end_.peer || end_.peer->status != UCS_OK) return;
    const size_t place = size_t(credit_messages_ % depth_);
    Buffers& buffers = *end_.buffers;
    if (buffers.credit_transfers[place].active) return;
    // A sender that has left resets the socket at the next credit. Its last messages must be here by then.
    end_.worker->drain();
    if (end_.peer->status != UCS_OK) return;
    CreditHeader& credit = buffers.credits[place];
    credit = {end_.token, released_ - returned_};
    end_.worker->post(*end_.peer, Worker::credit_id, &credit, sizeof credit, nullptr, 0, nullptr,
                      buffers.credit_transfers[place]);
    ++credit_messages_;
    returned_ = released_;
}

Status UcxReceiver::release() {
    ++released_;
    return_credits(batch_);
    // The rest goes along with the next message to the peer.
    if (released_ > returned_ && end_.peer) end_.peer->owing = end_.token;
    return ok();
}

}  // namespace

std::unique_ptr<Receiver> make_receiver(End end) { return std::make_unique<UcxReceiver>(std::move(end)); }

}  // namespace weft::internal::ucx
