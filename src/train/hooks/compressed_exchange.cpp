#include "src/train/hooks/compressed_exchange.hpp"

#include <algorithm>

#include "src/train/peers.hpp"

namespace weft::internal::train {

NumberRange part_of(size_t count, int ranks, int rank, size_t unit) {
    const size_t each = (count + size_t(ranks) * unit - 1) / (size_t(ranks) * unit) * unit;
    const size_t begin = std::min(count, each * size_t(rank));
    return {begin, std::min(each, count - begin)};
}

Status CompressedExchange::run(const Peers& peers, Codec& codec, double divisor, std::span<float> numbers,
                               std::span<float> own_error, std::span<float> sum_error) {
    const int ranks = peers.ranks();
    const size_t unit = codec.part_unit(ranks);
    const auto part = [&](int rank) { return part_of(numbers.size(), ranks, rank, unit); };
    const size_t bytes = codec.bytes(part(0).count);
    sent_.resize(bytes * size_t(ranks));
    received_.resize(bytes * size_t(ranks));
    decoded_.resize(part(0).count);
    codec.begin(numbers);
    for (int rank = 0; rank < ranks; ++rank) {
        const NumberRange own = part(rank);
        std::byte* const message = sent_.data() + bytes * size_t(rank);
        codec.encode(numbers.subspan(own.begin, own.count), message);
        if (own_error.empty()) continue;
        codec.decode(message, {decoded_.data(), own.count});
        for (size_t i = 0; i < own.count; ++i) own_error[own.begin + i] = numbers[own.begin + i] - decoded_[i];
    }
    WEFT_TRY(peers.all_to_all(sent_.data(), received_.data(), bytes));
    const NumberRange mine = part(peers.rank());
    const std::span<float> decoded(decoded_.data(), mine.count);
    sum_.assign(mine.count, 0);
    for (int rank = 0; rank < ranks; ++rank) {
        codec.decode(received_.data() + bytes * size_t(rank), decoded);
        for (size_t i = 0; i < mine.count; ++i) sum_[i] += decoded[i];
    }
    const auto over = float(divisor);
    for (size_t i = 0; i < mine.count; ++i) sum_[i] = sum_[i] / over + (sum_error.empty() ? 0 : sum_error[i]);
    codec.begin(sum_);
    codec.encode(sum_, sent_.data());
    if (!sum_error.empty()) {
        codec.decode(sent_.data(), decoded);
        for (size_t i = 0; i < mine.count; ++i) sum_error[i] = sum_[i] - decoded[i];
    }
    WEFT_TRY(peers.all_gather(sent_.data(), received_.data(), bytes));
    for (int rank = 0; rank < ranks; ++rank) {
        const NumberRange each = part(rank);
        codec.decode(received_.data() + bytes * size_t(rank), numbers.subspan(each.begin, each.count));
    }
    return ok();
}

}  // namespace weft::internal::train
