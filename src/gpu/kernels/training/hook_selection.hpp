// hook_selection.hpp: top-k's selection of the numbers of largest magnitude, in the order of their indices. Of equal ones
// the first are taken. The host's counterpart is largest_numbers() (src/train/hooks), with the same result.
#pragma once
#include "src/base/block_scale.hpp"
#include "src/gpu/kernels/training/hook_elements.hpp"
#include "src/gpu/kernels/training/hook_sums.hpp"

namespace weft::internal::cuda {

WEFT_DEVICE void count_high(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    for (uint64_t i = own.first; i < a.count; i += own.step)
        add_one(&a.counts[magnitude_bits(a.numbers[i]) >> selection_low_bits]);
}
WEFT_DEVICE void count_low(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    const uint32_t high = a.facts->high;
    for (uint64_t i = own.first; i < a.count; i += own.step) {
        const uint32_t bits = magnitude_bits(a.numbers[i]);
        if (bits >> selection_low_bits == high) add_one(&a.counts[bits & ((1u << selection_low_bits) - 1)]);
    }
}

struct FoundValue {
    uint32_t value;
    uint32_t equal;  // so many of those with the value remain
};
// The value from which on `remaining` numbers remain at most. For the first thread of a block by itself, which gets it.
WEFT_DEVICE FoundValue find_value(const Team& team, const uint32_t* counts, uint32_t remaining, HookBlock& shared) {
    constexpr uint32_t each = uint32_t(selection_values) / hook_threads;
    for (int part = team.thread; part < hook_threads; part += team.threads) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < each; ++i) sum += counts[uint32_t(part) * each + i];
        shared.words[part] = sum;
    }
    team.barrier();
    if (team.thread != 0) return {0, 0};
    int part = hook_threads - 1;
    for (; part > 0 && shared.words[part] < remaining; --part) remaining -= shared.words[part];
    uint32_t value = uint32_t(part + 1) * each - 1;
    for (; value > uint32_t(part) * each && counts[value] < remaining; --value) remaining -= counts[value];
    return {value, remaining};
}
WEFT_DEVICE void find_high(const Team& team, const HookArguments& a, HookBlock& shared) {
    const FoundValue found = find_value(team, a.counts, uint32_t(a.kept), shared);
    if (team.thread != 0) return;
    a.facts->high = found.value;
    a.facts->equal = found.equal;
}
WEFT_DEVICE void find_low(const Team& team, const HookArguments& a, HookBlock& shared) {
    const FoundValue found = find_value(team, a.counts, a.facts->equal, shared);
    if (team.thread != 0) return;
    a.facts->least = a.facts->high << selection_low_bits | found.value;
    a.facts->equal = found.equal;
}

// Numbers above the threshold, and equal to it.
struct SelectionCounts {
    uint32_t above = 0, equal = 0;
};
WEFT_DEVICE SelectionCounts count_selection(const HookArguments& a, uint64_t begin, uint64_t end) {
    const uint32_t least = a.facts->least;
    SelectionCounts counts;
    for (uint64_t i = begin; i < end; ++i) {
        const uint32_t bits = magnitude_bits(a.numbers[i]);
        counts.above += bits > least;
        counts.equal += bits == least;
    }
    return counts;
}
// Share number `share` of `shares` of the numbers from begin to end.
struct NumberShare {
    uint64_t begin, end;
};
WEFT_DEVICE NumberShare share_of(uint64_t begin, uint64_t end, int share, int shares) {
    const uint64_t each = (end - begin + uint64_t(shares) - 1) / uint64_t(shares);
    const uint64_t first = begin + uint64_t(share) * each;
    return {first < end ? first : end, end - begin < uint64_t(share + 1) * each ? end : first + each};
}
// The counts of all threads before this one.
WEFT_DEVICE SelectionCounts counts_before(const Team& team, SelectionCounts own, HookBlock& shared) {
    shared.words[2 * team.thread] = own.above;
    shared.words[2 * team.thread + 1] = own.equal;
    team.barrier();
    SelectionCounts before;
    for (int thread = 0; thread < team.thread; ++thread) {
        before.above += shared.words[2 * thread];
        before.equal += shared.words[2 * thread + 1];
    }
    team.barrier();  // before the next use
    return before;
}

WEFT_DEVICE void count_parts(const Team& team, const HookArguments& a, HookBlock& shared) {
    uint32_t* const parts = a.counts + selection_values;
    for_chunks(team, a.count, [&](uint64_t chunk, uint64_t begin, uint64_t end) {
        const NumberShare share = share_of(begin, end, team.thread, team.threads);
        const SelectionCounts own = count_selection(a, share.begin, share.end);
        const SelectionCounts before = counts_before(team, own, shared);
        if (team.thread != team.threads - 1) return;
        parts[2 * chunk] = before.above + own.above;
        parts[2 * chunk + 1] = before.equal + own.equal;
    });
}
// The counts of each chunk become those of all chunks before it. For a block by itself.
WEFT_DEVICE void place_parts(const Team& team, const HookArguments& a, HookBlock& shared) {
    uint32_t* const parts = a.counts + selection_values;
    const NumberShare share = share_of(0, hook_chunks(a.count), team.thread, team.threads);
    SelectionCounts own;
    for (uint64_t chunk = share.begin; chunk < share.end; ++chunk) {
        own.above += parts[2 * chunk];
        own.equal += parts[2 * chunk + 1];
    }
    SelectionCounts before = counts_before(team, own, shared);
    for (uint64_t chunk = share.begin; chunk < share.end; ++chunk) {
        const SelectionCounts here{parts[2 * chunk], parts[2 * chunk + 1]};
        parts[2 * chunk] = before.above;
        parts[2 * chunk + 1] = before.equal;
        before.above += here.above;
        before.equal += here.equal;
    }
}
WEFT_DEVICE void select(const Team& team, const HookArguments& a, HookBlock& shared) {
    const uint32_t* const parts = a.counts + selection_values;
    auto* const list = static_cast<IndexedNumber*>(a.memory);
    const uint32_t least = a.facts->least, most_equal = a.facts->equal;
    for_chunks(team, a.count, [&](uint64_t chunk, uint64_t begin, uint64_t end) {
        const NumberShare share = share_of(begin, end, team.thread, team.threads);
        const SelectionCounts earlier = counts_before(team, count_selection(a, share.begin, share.end), shared);
        uint32_t above = parts[2 * chunk] + earlier.above, equal = parts[2 * chunk + 1] + earlier.equal;
        for (uint64_t i = share.begin; i < share.end; ++i) {
            const uint32_t bits = magnitude_bits(a.numbers[i]);
            const bool selected = bits > least || (bits == least && equal < most_equal);
            if (selected) list[above + (equal < most_equal ? equal : most_equal)] = {uint32_t(i), a.numbers[i]};
            above += bits > least;
            equal += bits == least;
        }
    });
}

// The indices of one list differ. One that is none becomes a NaN, so that no rank takes the result.
WEFT_DEVICE void add_selected(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    const auto* const list = static_cast<const IndexedNumber*>(a.memory);
    for (uint64_t i = own.first; i < a.count; i += own.step) {
        if (list[i].index < a.limit)
            a.numbers[list[i].index] += list[i].number;
        else
            a.numbers[0] = __builtin_bit_cast(float, 0x7fc00000u);
    }
}
WEFT_DEVICE void zero_selected(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    const auto* const list = static_cast<const IndexedNumber*>(a.memory);
    for (uint64_t i = own.first; i < a.count; i += own.step) a.numbers[list[i].index] = 0;
}

}  // namespace weft::internal::cuda
