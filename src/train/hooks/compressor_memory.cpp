#include "src/train/hooks/compressor_memory.hpp"

#include <algorithm>

#include "src/train/hooks/power_sgd.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// Another rank adds these elements up now. This rank sends them with its own, of which the average is less.
void send_with_own(CompressorState& state, double divisor) {
    state.error.resize(state.count);
    for (size_t i = 0; i < state.sum_error.size(); ++i)
        state.error[state.sum_begin + i] += float(divisor) * state.sum_error[i];
    state.sum_error.clear();
}

}  // namespace

Result<CompressorMemory> CompressorMemory::make(HookWorker& worker, const MemoryNeeds& needs, const MessageForm& form,
                                                const GradientBuckets& buckets, std::vector<CompressorState> states,
                                                const Peers& peers, double divisor) {
    CompressorMemory made;
    made.lay_out(needs, form, buckets, peers);
    WEFT_TRY(made.fill(worker.space(), needs, states, divisor));
    return made;
}

void CompressorMemory::lay_out(const MemoryNeeds& needs, const MessageForm& form, const GradientBuckets& buckets,
                               const Peers& peers) {
    parameters_.resize(buckets.parameters().size());
    for (const Bucket& bucket : buckets.layout().buckets) {
        BucketPart own{elements_, {}, sums_};
        if (needs.has_sums)
            own.part = part_of(bucket.count, peers.ranks(), peers.rank(), form.part_unit(peers.ranks()));
        for (size_t i = 0; i < bucket.parameters.size(); ++i) {
            const TensorFacts& facts = buckets.parameters()[size_t(bucket.parameters[i])];
            Parameter& parameter = parameters_[size_t(bucket.parameters[i])];
            const size_t offset = bucket.offsets[i];
            parameter.count = facts.count;
            parameter.begin = elements_ + offset;
            const size_t begin = std::clamp(own.part.begin, offset, offset + facts.count);
            const size_t end = std::clamp(own.part.begin + own.part.count, offset, offset + facts.count);
            parameter.sum_begin = begin - offset;
            parameter.sum_count = end - begin;
            parameter.sum_at = end > begin ? sums_ + begin - own.part.begin : 0;
            const size_t rank = needs.factor_rank, columns = facts.rows > 0 ? facts.count / facts.rows : 0;
            if (rank == 0 || !is_worth_rank(facts.rows, columns, rank, needs.least_rate)) continue;
            parameter.right_begin = rights_;
            parameter.right_count = factor_columns(facts.rows, columns, rank) * columns;
            rights_ += parameter.right_count;
        }
        elements_ += bucket.count;
        sums_ += own.part.count;
        buckets_.push_back(own);
    }
}

Status CompressorMemory::fill(MemorySpace& space, const MemoryNeeds& needs, std::vector<CompressorState>& states,
                              double divisor) {
    std::vector<float> error(needs.error ? elements_ : 0), momentum(needs.momentum ? elements_ : 0);
    std::vector<float> sum_error(sums_), right(rights_);
    std::vector<double> scale(parameters_.size());
    for (size_t p = 0; p < parameters_.size(); ++p) {
        Parameter& own = parameters_[p];
        CompressorState& state = states[p];
        own.iterations = state.iterations;
        own.has_scale = state.scale != 0;
        scale[p] = state.scale;
        const bool same = state.sum_begin == own.sum_begin && state.sum_error.size() == own.sum_count;
        if (!state.sum_error.empty() && !same) send_with_own(state, divisor);
        const auto place = [](const std::vector<float>& from, std::vector<float>& to, size_t begin) {
            if (!to.empty()) std::copy(from.begin(), from.end(), to.begin() + ptrdiff_t(begin));
        };
        place(state.error, error, own.begin);
        place(state.momentum, momentum, own.begin);
        place(state.sum_error, sum_error, own.sum_at);
        // Those of another rank or shape begin anew.
        if (state.right.size() == own.right_count) place(state.right, right, own.right_begin);
    }
    const auto fill_one = [&](FlatBuffer& memory, const auto& numbers) -> Status {
        const size_t bytes = numbers.size() * sizeof numbers[0];
        WEFT_TRY(memory.grow(space, bytes));
        return space.copy(memory.data(), numbers.data(), bytes);
    };
    WEFT_TRY(fill_one(error_, error));
    WEFT_TRY(fill_one(momentum_, momentum));
    WEFT_TRY(fill_one(sum_error_, sum_error));
    WEFT_TRY(fill_one(right_, right));
    WEFT_TRY(fill_one(scale_, scale));
    return space.synchronize();
}

Result<std::vector<CompressorState>> CompressorMemory::states(HookWorker& worker) const {
    MemorySpace& space = worker.space();
    std::vector<CompressorState> all(parameters_.size());
    std::vector<double> scales(parameters_.size());
    const auto read = [&](std::vector<float>& to, const FlatBuffer& from, size_t begin, size_t count) -> Status {
        if (from.bytes() == 0) return ok();
        to.resize(count);
        return space.copy(to.data(), at(from, begin), count * sizeof(float));
    };
    for (size_t p = 0; p < parameters_.size(); ++p) {
        const Parameter& own = parameters_[p];
        CompressorState& state = all[p];
        state.iterations = own.iterations;
        state.count = own.count;
        state.sum_begin = own.sum_begin;
        WEFT_TRY(read(state.error, error_, own.begin, own.count));
        WEFT_TRY(read(state.momentum, momentum_, own.begin, own.count));
        WEFT_TRY(read(state.right, right_, own.right_begin, own.right_count));
        WEFT_TRY(read(state.sum_error, sum_error_, own.sum_at, own.sum_count));
    }
    WEFT_TRY(space.copy(scales.data(), scale_.data(), scales.size() * sizeof(double)));
    WEFT_TRY(space.synchronize());
    for (size_t p = 0; p < parameters_.size(); ++p) all[p].scale = parameters_[p].has_scale ? scales[p] : 0;
    return all;
}

size_t CompressorMemory::bytes() const {
    const size_t arrays = (error_.bytes() > 0 ? elements_ : 0) + (momentum_.bytes() > 0 ? elements_ : 0);
    return state_bytes(parameters_.size(), arrays + sums_ + rights_);
}

}  // namespace weft::internal::train
