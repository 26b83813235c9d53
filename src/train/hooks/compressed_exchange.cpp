#include "src/train/hooks/compressed_exchange.hpp"

#include <algorithm>

#include "src/train/peers.hpp"

namespace weft::internal::train {

NumberRange part_of(size_t count, int ranks, int rank, size_t unit) {
    const size_t each = (count + size_t(ranks) * unit - 1) / (size_t(ranks) * unit) * unit;
    const size_t begin = std::min(count, each * size_t(rank));
    return {begin, std::min(each, count - begin)};
}

Status CompressedExchange::run(const Peers& peers, HookWorker& worker, const MessageForm& form, double divisor,
                               std::span<float> numbers, std::span<float> own_error, std::span<float> sum_error) {
    MemorySpace& space = worker.space();
    const int ranks = peers.ranks();
    const size_t unit = form.part_unit(ranks);
    const auto part = [&](int rank) { return part_of(numbers.size(), ranks, rank, unit); };
    const size_t bytes = form.bytes(part(0).count);
    WEFT_TRY(sent_.grow(space, bytes * size_t(ranks)));
    WEFT_TRY(received_.grow(space, bytes * size_t(ranks)));
    WEFT_TRY(decoded_.grow(space, part(0).count * sizeof(float)));
    WEFT_TRY(sum_.grow(space, part(0).count * sizeof(float)));
    WEFT_TRY(worker.begin_message(form, numbers.data(), numbers.size()));
    for (int rank = 0; rank < ranks; ++rank) {
        const NumberRange own = part(rank);
        std::byte* const message = sent_.data() + bytes * size_t(rank);
        float* const from = numbers.data() + own.begin;
        WEFT_TRY(worker.encode(form, from, own.count, message));
        if (own_error.empty()) continue;
        WEFT_TRY(worker.decode(form, message, own.count, decoded()));
        WEFT_TRY(worker.each(HookWork::subtract, own.count, own_error.data() + own.begin, from, decoded()));
    }
    WEFT_TRY(peers.all_to_all(sent_.data(), received_.data(), bytes, space.stream()));
    const std::span<float> sum(reinterpret_cast<float*>(sum_.data()), part(peers.rank()).count);
    WEFT_TRY(add_up(peers, worker, form, bytes, sum));
    const float* const error = sum_error.empty() ? nullptr : sum_error.data();
    WEFT_TRY(worker.each(HookWork::average, sum.size(), sum.data(), error, nullptr, float(divisor)));
    WEFT_TRY(worker.begin_message(form, sum.data(), sum.size()));
    WEFT_TRY(worker.encode(form, sum.data(), sum.size(), sent_.data()));
    if (!sum_error.empty()) {
        WEFT_TRY(worker.decode(form, sent_.data(), sum.size(), decoded()));
        WEFT_TRY(worker.each(HookWork::subtract, sum.size(), sum_error.data(), sum.data(), decoded()));
    }
    WEFT_TRY(peers.all_gather(sent_.data(), received_.data(), bytes, space.stream()));
    for (int rank = 0; rank < ranks; ++rank) {
        const NumberRange each = part(rank);
        WEFT_TRY(worker.decode(form, received_.data() + bytes * size_t(rank), each.count, numbers.data() + each.begin));
    }
    return ok();
}

Status CompressedExchange::add_up(const Peers& peers, HookWorker& worker, const MessageForm& form, size_t bytes,
                                  std::span<float> sum) {
    WEFT_TRY(worker.space().zero(sum.data(), sum.size_bytes()));
    for (int rank = 0; rank < peers.ranks(); ++rank) {
        WEFT_TRY(worker.decode(form, received_.data() + bytes * size_t(rank), sum.size(), decoded()));
        WEFT_TRY(worker.space().add(sum.data(), decoded(), sum.size(), weftFloat32));
    }
    return ok();
}

}  // namespace weft::internal::train
