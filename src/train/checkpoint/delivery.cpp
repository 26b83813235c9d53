#include "src/train/checkpoint/delivery.hpp"

#include <cstring>

#include "src/base/datatype.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

Delivery::Delivery(const Peers& peers, const std::vector<const StateCopy*>& sources)
    : peers_(peers), sources_(sources), sends_(size_t(peers.ranks())), receives_(size_t(peers.ranks())) {}

Status Delivery::add(int reader, const std::vector<Read>& reads, size_t number) {
    for (const Read& read : reads) {
        if (read.stored->rank == peers_.rank()) WEFT_TRY(pack(read, sends_[size_t(reader)]));
        if (reader == peers_.rank()) {
            const size_t bytes = read.part.volume() * size_of(read.stored->type);
            auto& from = receives_[size_t(read.stored->rank)];
            arrivals_.push_back({read, number, read.stored->rank, from.size()});
            from.resize(from.size() + bytes);
        }
    }
    return ok();
}

Status Delivery::exchange() {
    std::vector<size_t> counts[2], places[2];
    std::vector<std::byte> buffers[2];
    for (const int side : {0, 1})
        for (std::vector<std::byte>& each : side == 0 ? sends_ : receives_) {
            counts[side].push_back(each.size());
            places[side].push_back(buffers[side].size());
            buffers[side].insert(buffers[side].end(), each.begin(), each.end());
            if (side == 0) each = {};
        }
    WEFT_TRY(finished(weftAlltoAllv(buffers[0].data(), counts[0].data(), places[0].data(), buffers[1].data(),
                                    counts[1].data(), places[1].data(), weftUint8, peers_.comm(), nullptr),
                      peers_.comm()));
    for (size_t rank = 0; rank < receives_.size(); ++rank)
        if (counts[1][rank] > 0) memcpy(receives_[rank].data(), buffers[1].data() + places[1][rank], counts[1][rank]);
    return ok();
}

Status Delivery::unpack(const std::vector<StoredBox>& boxes, const std::vector<void*>& memory) const {
    for (const Arrival& each : arrivals_) {
        const size_t element = size_of(each.read.stored->type);
        const std::byte* const from = receives_[size_t(each.holder)].data() + each.begin;
        auto* const to = static_cast<std::byte*>(memory[each.number]);
        WEFT_TRY(for_each_run(each.read.part, each.read.part, boxes[each.number].box,
                              [&](size_t left, size_t right, size_t count) {
                                  memcpy(to + right * element, from + left * element, count * element);
                                  return ok();
                              }));
    }
    return ok();
}

Status Delivery::pack(const Read& read, std::vector<std::byte>& bytes) const {
    const size_t element = size_of(read.stored->type);
    const std::byte* const from = memory_of(*read.stored);
    return for_each_run(read.part, read.stored->box, read.part, [&](size_t left, size_t, size_t count) {
        bytes.insert(bytes.end(), from + left * element, from + (left + count) * element);
        return ok();
    });
}

const std::byte* Delivery::memory_of(const StoredBox& stored) const {
    size_t begin = stored.begin, source = 0;
    for (; begin >= sources_[source]->data.size(); ++source) begin -= sources_[source]->data.size();
    return sources_[source]->data.data() + begin;
}

}  // namespace weft::internal::train
