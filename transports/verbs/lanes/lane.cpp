#include "transports/verbs/lanes/lane.hpp"

#include <array>

namespace weft::internal::verbs {

PairNumber Lane::numbers() const {
    const abi::Ece ece = own.ece.value_or(abi::Ece{});
    return {own.pair, own.sequence, ece.vendor, ece.options};
}

void Lane::set_peer(const PairNumber& numbers) {
    peer.pair = numbers.number;
    peer.sequence = numbers.sequence;
    peer.ece.reset();
    if (numbers.ece_vendor != 0) peer.ece = abi::Ece{numbers.ece_vendor, numbers.ece_options, 0};
}

int post_receives(QueuePair& pair, uint64_t id, int count) {
    std::array<abi::ReceiveRequest, receives_at_once> list{};
    for (int i = 0; i < count; ++i) {
        list[size_t(i)].wr_id = id;
        list[size_t(i)].next = i + 1 < count ? &list[size_t(i) + 1] : nullptr;
    }
    abi::ReceiveRequest* failed = nullptr;
    return count > 0 ? pair.post(&list[0], &failed) : 0;
}

}  // namespace weft::internal::verbs
