// offers.hpp: receive buffers that a receiver offers to its sender, which writes messages straight there. A message
// without an offer goes into its slot. docs/design/verbs-offers.md has the protocol. All classes are thread-bound to the
// thread that drives the endpoint.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "transports/verbs/registered.hpp"
#include "transports/verbs/wire.hpp"

namespace weft::internal::verbs {

// The target of one message, as the receiver writes it into the sender's ring.
struct alignas(64) OfferEntry {
    static constexpr size_t rails_most = 16;
    uint64_t number = UINT64_MAX;  // of the message
    uint64_t address = 0, capacity = 0;
    uint32_t keys[rails_most] = {};  // by rail
    static constexpr size_t bytes(size_t rails) { return 3 * sizeof(uint64_t) + rails * sizeof(uint32_t); }
};

// The sender's ring: message m has place m % depth. Receivers write there, so it lives as long as the link.
class OfferRing {
  public:
    // verbs.memlock, verbs.call.
    static Result<std::unique_ptr<OfferRing>> make(const Devices& devices, size_t depth);
    Area area(std::vector<uint32_t> keys) const {
        return {uintptr_t(memory_->data()), sizeof(OfferEntry), std::move(keys)};
    }
    const Registered& registered() const { return memory_->registered(); }

    // The completion of the entry for this message came, before the message was posted.
    void take(uint64_t message);
    // The message is posted now. True: it goes to its offer, in every try.
    bool use(uint64_t message, uint64_t bytes);
    // Of a message for which use() was true. It is valid until the receiver has released the message.
    const OfferEntry& target_of(uint64_t message) const { return valid_[size_t(message % valid_.size())]; }

  private:
    std::unique_ptr<SlotMemory> memory_;
    std::vector<OfferEntry> valid_;
};

// The receiver's offers that are not ended.
class OpenOffers {
  public:
    struct Offer {
        std::byte* target = nullptr;  // null: none
        size_t capacity = 0;
        RegisteredMemory* memory = nullptr;
    };
    explicit OpenOffers(size_t depth = 0) : all_(depth) {}

    // `ring`: of the sender. Without keys it takes no offers.
    void open(const Area& ring) {
        if (ring.keys.size() <= OfferEntry::rails_most) ring_ = ring;
    }
    bool can_offer(uint64_t message) const { return !withdrawn_ && !ring_.keys.empty() && !find(message).target; }
    const Area& ring() const { return ring_; }
    void add(uint64_t message, const Offer& offer) {
        all_[size_t(message % all_.size())] = offer;
        ++count_;
    }
    // Of a message that is not released yet.
    const Offer& find(uint64_t message) const { return all_[size_t(message % all_.size())]; }
    void end(uint64_t message) {
        if (count_ == 0) return;
        Offer& offer = all_[size_t(message % all_.size())];
        count_ -= offer.target != nullptr;
        offer = {};
    }
    bool any() const { return count_ > 0; }
    void withdraw();
    // True once: no offer of this connection has been declined before.
    bool declines_first() { return !std::exchange(declined_, true); }

    // All entries of a connection go over one lane, so that an old one never lands on a newer one.
    struct Route {
        size_t lane = SIZE_MAX;
        uint32_t generation = 0;
        uint64_t index = 0;    // the lane's requests up to the last entry
        uint64_t message = 0;  // the entries of earlier messages are complete
    } route;

  private:
    Area ring_;
    std::vector<Offer> all_;  // by message modulo their number
    size_t count_ = 0;
    bool withdrawn_ = false, declined_ = false;
};

}  // namespace weft::internal::verbs
