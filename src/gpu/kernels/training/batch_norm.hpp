// batch_norm.hpp: the kernel of batch-norm statistics. Sums have an order that does not depend on the number of threads.
#pragma once
#include "src/gpu/kernels/training/batch_norm_channels.hpp"
#include "src/gpu/kernels/training/hook_elements.hpp"

namespace weft::internal::cuda {

struct TwoSums {
    double first, second;
};

// Memory of one block.
struct BatchNormBlock {
    TwoSums sums[batch_norm_threads];  // by lane
};

class BatchNormKernel {
  public:
    WEFT_DEVICE BatchNormKernel(const Team& team, const BatchNormArguments& arguments, BatchNormBlock& block)
        : team_(team), a_(arguments), shared_(block) {}

    WEFT_DEVICE void run() const {
        const NumbersOfThread own(team_);
        switch (a_.work) {
            case BatchNormWork::measure: return for_slices([this](const Slice& slice) { return moments_of(slice); });
            case BatchNormWork::slopes: return for_slices([this](const Slice& slice) { return slopes_of(slice); });
            case BatchNormWork::join_slices: return join_slices(own);
            case BatchNormWork::finish: return finish_channels(own, a_);
            case BatchNormWork::add_slices: return add_slices(own);
            case BatchNormWork::write_sums:
                for (uint64_t i = own.first; i < 2 * a_.form.channels; i += own.step)
                    a_.results.sums[i] = float(a_.message[i]);
                return;
        }
    }

  private:
    // Elements [begin, end) of a channel.
    struct Slice {
        uint64_t channel, begin, end;
        WEFT_DEVICE double count() const { return double(end - begin); }
    };

    WEFT_DEVICE Slice slice_at(uint64_t channel, uint64_t number) const {
        const uint64_t count = a_.form.batch * a_.form.inner, length = (count + a_.form.slices - 1) / a_.form.slices;
        const uint64_t begin = number * length, end = begin + length;
        return {channel, begin < count ? begin : count, end < count ? end : count};
    }
    // body(slice) gives two sums.
    template <class Body>
    WEFT_DEVICE void for_slices(Body&& body) const {
        for (uint64_t b = uint64_t(team_.block); b < a_.form.channels * a_.form.slices; b += uint64_t(team_.blocks)) {
            const TwoSums sums = body(slice_at(b / a_.form.slices, b % a_.form.slices));
            if (team_.thread != 0) continue;
            a_.of_slices[2 * b] = sums.first;
            a_.of_slices[2 * b + 1] = sums.second;
        }
    }

    WEFT_DEVICE double get(const void* memory, uint64_t i) const {
        if (a_.form.type == weftFloat32) return double(static_cast<const float*>(memory)[i]);
        const uint16_t bits = static_cast<const uint16_t*>(memory)[i];
        return double(a_.form.type == weftFloat16 ? Arithmetic<weftFloat16>::widen(bits)
                                                  : Arithmetic<weftBfloat16>::widen(bits));
    }
    // Adds up term(place in memory), which gives two numbers. Each lane takes every batch_norm_threads-th element; then
    // the lanes are added up in halves. All threads get the sums.
    template <class Term>
    WEFT_DEVICE TwoSums sum(const Slice& slice, Term&& term) const {
        constexpr uint64_t lanes = batch_norm_threads;
        const uint64_t rows = lanes / a_.form.inner, rest = lanes % a_.form.inner;
        for (uint64_t lane = uint64_t(team_.thread); lane < lanes; lane += uint64_t(team_.threads)) {
            TwoSums total{0, 0};
            uint64_t row = (slice.begin + lane) / a_.form.inner, column = (slice.begin + lane) % a_.form.inner;
            for (uint64_t i = slice.begin + lane; i < slice.end; i += lanes) {
                const TwoSums one = term((row * a_.form.channels + slice.channel) * a_.form.inner + column);
                total.first += one.first;
                total.second += one.second;
                row += rows;
                column += rest;
                if (column < a_.form.inner) continue;
                column -= a_.form.inner;
                ++row;
            }
            shared_.sums[lane] = total;
        }
        return sum_of_lanes();
    }
    WEFT_DEVICE TwoSums sum_of_lanes() const {
        for (int half = batch_norm_threads / 2; half > 0; half /= 2) {
            team_.barrier();
            for (int lane = team_.thread; lane < half; lane += team_.threads) {
                shared_.sums[lane].first += shared_.sums[lane + half].first;
                shared_.sums[lane].second += shared_.sums[lane + half].second;
            }
        }
        team_.barrier();
        const TwoSums total = shared_.sums[0];
        team_.barrier();  // before the next use
        return total;
    }
    // The mean, and the sum of squared distances to it.
    WEFT_DEVICE TwoSums moments_of(const Slice& slice) const {
        if (slice.begin == slice.end) return {0, 0};
        const TwoSums total = sum(slice, [this](uint64_t at) { return TwoSums{get(a_.x, at), 0}; });
        const double mean = total.first / slice.count();
        const TwoSums squares = sum(slice, [this, mean](uint64_t at) {
            const double distance = get(a_.x, at) - mean;
            return TwoSums{distance * distance, 0};
        });
        return {mean, squares.first};
    }
    WEFT_DEVICE TwoSums slopes_of(const Slice& slice) const {
        const auto mean = double(a_.results.mean[slice.channel]);
        return sum(slice, [this, mean](uint64_t at) {
            const double slope = get(a_.dy, at);
            return TwoSums{slope, slope * (get(a_.x, at) - mean)};
        });
    }
    WEFT_DEVICE void join_slices(const NumbersOfThread& own) const {
        for (uint64_t c = own.first; c < a_.form.channels; c += own.step) {
            Moments all;
            for (uint64_t s = 0; s < a_.form.slices; ++s) {
                const double* const from = a_.of_slices + 2 * (c * a_.form.slices + s);
                all.add({slice_at(c, s).count(), from[0], from[1]});
            }
            a_.message[c] = all.mean;
            a_.message[a_.form.channels + c] = all.squares;
        }
        if (own.first == 0) a_.message[2 * a_.form.channels] = double(a_.form.batch * a_.form.inner);
    }
    WEFT_DEVICE void add_slices(const NumbersOfThread& own) const {
        for (uint64_t i = own.first; i < 2 * a_.form.channels; i += own.step) {
            const uint64_t channel = i % a_.form.channels, which = i / a_.form.channels;
            double total = 0;
            for (uint64_t s = 0; s < a_.form.slices; ++s)
                total += a_.of_slices[2 * (channel * a_.form.slices + s) + which];
            a_.message[i] = total;
            if (a_.results.own_sums) a_.results.own_sums[i] = float(total);
        }
    }

    const Team& team_;
    const BatchNormArguments& a_;
    BatchNormBlock& shared_;
};

WEFT_DEVICE void batch_norm(const Team& team, const BatchNormArguments& arguments, BatchNormBlock& block) {
    BatchNormKernel(team, arguments, block).run();
}

}  // namespace weft::internal::cuda
