#include "src/train/checkpoint/delivery.hpp"

#include <cstring>
#include <utility>

#include "src/base/datatype.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// The elements of a part, from one box to another.
Status copy_part(const Read& read, const Box& from_box, const std::byte* from, const Box& to_box, std::byte* to) {
    const size_t element = size_of(read.stored->type);
    return for_each_run(read.part, from_box, to_box, [&](size_t left, size_t right, size_t count) {
        memcpy(to + right * element, from + left * element, count * element);
        return ok();
    });
}

}  // namespace

void Delivery::Messages::add(Part part) {
    size_t& bytes = counts[size_t(part.peer)];
    part.begin = bytes;
    bytes += part.read.part.volume() * size_of(part.read.stored->type);
    parts.push_back(std::move(part));
}

void Delivery::Messages::allocate() {
    size_t bytes = 0;
    for (const size_t count : counts) {
        places.push_back(bytes);
        bytes += count;
    }
    data.resize(bytes);
}

std::byte* Delivery::Messages::memory_of(const Part& part) {
    return data.data() + places[size_t(part.peer)] + part.begin;
}
const std::byte* Delivery::Messages::memory_of(const Part& part) const {
    return data.data() + places[size_t(part.peer)] + part.begin;
}

Delivery::Delivery(const Peers& peers, const std::vector<const StateCopy*>& sources)
    : peers_(peers), sources_(sources) {
    for (Messages* each : {&sends_, &receives_}) each->counts.resize(size_t(peers.ranks()));
}

void Delivery::add(int reader, std::vector<Read> reads, size_t number) {
    for (Read& read : reads) {
        const int holder = read.stored->rank;
        const bool sends = holder == peers_.rank(), receives = reader == peers_.rank();
        if (sends && receives)
            own_.push_back({std::move(read), reader, number, 0});
        else if (sends)
            sends_.add({std::move(read), reader, number, 0});
        else if (receives)
            receives_.add({std::move(read), holder, number, 0});
    }
}

void Delivery::allocate() {
    sends_.allocate();
    receives_.allocate();
}

Status Delivery::exchange() {
    for (const Part& each : sends_.parts)
        WEFT_TRY(copy_part(each.read, each.read.stored->box, memory_of(*each.read.stored), each.read.part,
                           sends_.memory_of(each)));
    return finished(weftAlltoAllv(sends_.data.data(), sends_.counts.data(), sends_.places.data(), receives_.data.data(),
                                  receives_.counts.data(), receives_.places.data(), weftUint8, peers_.comm(), nullptr),
                    peers_.comm());
}

Status Delivery::unpack(const std::vector<StoredBox>& boxes, const std::vector<void*>& memory) const {
    const auto copy = [&](const Part& each, const Box& from_box, const std::byte* from) {
        return copy_part(each.read, from_box, from, boxes[each.number].box,
                         static_cast<std::byte*>(memory[each.number]));
    };
    for (const Part& each : receives_.parts) WEFT_TRY(copy(each, each.read.part, receives_.memory_of(each)));
    for (const Part& each : own_) WEFT_TRY(copy(each, each.read.stored->box, memory_of(*each.read.stored)));
    return ok();
}

const std::byte* Delivery::memory_of(const StoredBox& stored) const {
    size_t begin = stored.begin, source = 0;
    for (; begin >= sources_[source]->data.size(); ++source) begin -= sources_[source]->data.size();
    return sources_[source]->data.data() + begin;
}

}  // namespace weft::internal::train
