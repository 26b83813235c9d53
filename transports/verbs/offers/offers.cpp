#include "transports/verbs/offers/offers.hpp"

#include <cstring>
#include <utility>

namespace weft::internal::verbs {

Result<std::unique_ptr<OfferRing>> OfferRing::make(const Devices& devices, size_t depth) {
    auto made = std::make_unique<OfferRing>();
    auto memory = SlotMemory::make(devices, depth * sizeof(OfferEntry), access::local_write | access::remote_write);
    if (!memory) return memory.take_status();
    made->memory_ = std::move(*memory);
    made->valid_.resize(depth);
    return made;
}

// No later entry lands here before the message is released, and no earlier one after this one's completion.
void OfferRing::take(uint64_t message) {
    const size_t place = size_t(message % valid_.size());
    memcpy(&valid_[place], memory_->data() + place * sizeof(OfferEntry), sizeof(OfferEntry));
}

bool OfferRing::use(uint64_t message, uint64_t bytes) {
    const OfferEntry& entry = target_of(message);
    return bytes > 0 && entry.number == message && bytes <= entry.capacity;
}

void OpenOffers::withdraw() {
    withdrawn_ = true;
    if (!any()) return;
    for (Offer& offer : all_)
        if (const Offer ended = std::exchange(offer, {}); ended.target != nullptr) ended.memory->revoke();
    count_ = 0;
}

}  // namespace weft::internal::verbs
