// reduce.hpp: the loops over bytes. They combine n sources in order and write m targets. They use packs of 16 bytes if
// all addresses allow it, else of 4 (8 for 8-byte elements), else byte by byte. Elements before and after whole packs
// are handled singly. A target may equal a source.
#pragma once
#include "src/gpu/kernels/packed_elements.hpp"

namespace weft::internal::cuda {

// The range of whole packs.
struct PackRange {
    size_t begin, end;
};

// Pointers in arrays of at most `most_sources` and `most_targets`. Small arrays stay in registers, because their indices
// are constants.
template <int most_sources_, int most_targets_>
struct Streams {
    static constexpr int most_sources = most_sources_, most_targets = most_targets_;
    static constexpr bool few_sources = most_sources <= 2, few_targets = most_targets <= 3;
    const std::byte* const* sources;
    int source_count;
    std::byte* const* targets;  // few: most_targets, of which some may be null
    int target_count;           // others only
    int first_target;           // the others follow cyclically
    bool finish;                // averages divide at the end
    int own = -1;               // the source that is this rank's unscaled input; only with two sources

    WEFT_DEVICE bool scales(int source) const { return most_sources == 2 && source == own; }
    // use(number, address)
    template <class Use>
    WEFT_DEVICE void each_source(Use&& use) const {
        if constexpr (few_sources) {
            WEFT_UNROLL
            for (int i = 0; i < most_sources; ++i)
                if (i < source_count) use(i, sources[i]);
        } else {
            WEFT_NO_UNROLL
            for (int i = 0; i < source_count; ++i) use(i, sources[i]);
        }
    }
    template <class Use>
    WEFT_DEVICE void each_target(Use&& use) const {
        if constexpr (few_targets) {
            WEFT_UNROLL
            for (int i = 0; i < most_targets; ++i)
                if (most_targets == 1 || targets[i]) use(targets[i]);
        } else {
            WEFT_NO_UNROLL
            for (int i = 0; i < target_count; ++i) {
                const int at = first_target + i;
                use(targets[at < target_count ? at : at - target_count]);
            }
        }
    }
    // The bits in which the addresses differ.
    WEFT_DEVICE uint32_t differences() const {
        const auto bits = [](const void* address) { return uint32_t(reinterpret_cast<uintptr_t>(address)); };
        const uint32_t first = bits(sources[0]);
        uint32_t all = 0;
        each_source([&](int, const std::byte* source) { all |= bits(source) ^ first; });
        each_target([&](const std::byte* target) { all |= bits(target) ^ first; });
        return all;
    }
};

// How many packs a thread loads before it uses the first. Rarely used reductions take less code.
template <weftDataType_t type, bool adds, class Streams_, int bytes>
struct LoadBatch {
    static constexpr int batch = !adds || bytes < 16 || Streams_::most_sources < 4 ? 2 : 4;  // sources
    static constexpr int unroll =                                                            // packs of each
        !adds || bytes < 16                         ? 1
        : batch == 2 && sizeof(ElementOf<type>) > 1 ? 4
                                                    : 2;
};

// This rank's input, scaled, in memory's form. Not inlined, because the loops need all registers.
template <weftDataType_t type, bool adds, int bytes>
WEFT_DEVICE_COLD Pack<bytes> scaled(Reducer<type, adds> reducer, Pack<bytes> pack) {
    WEFT_UNROLL
    for (int w = 0; w < words_of_pack<type, bytes>; ++w)
        put_word<type>(pack, w, round<type>(reducer.scale(widen<type>(word_of<type>(pack, w)))));
    return pack;
}

template <weftDataType_t type, bool adds, int bytes, class Streams_>
WEFT_DEVICE void reduce_packs(const Team& team, const Reducer<type, adds>& reducer, const Streams_& streams,
                              PackRange range) {
    using F = LoadBatch<type, adds, Streams_, bytes>;
    constexpr int words = words_of_pack<type, bytes>;
    const size_t stride = size_t(team.threads) * bytes;
    for (size_t i = range.begin + size_t(team.thread) * bytes; i < range.end; i += F::unroll * stride) {
        WidenedWord<type> value[F::unroll][words] = {};
        const auto add_batch = [&](int first) {
            Pack<bytes> packs[F::batch][F::unroll] = {};
            WEFT_UNROLL
            for (int k = 0; k < F::batch; ++k) {
                if (first + k >= streams.source_count) continue;
                const std::byte* source = streams.sources[first + k];
                WEFT_UNROLL
                for (int u = 0; u < F::unroll; ++u)
                    if (i + size_t(u) * stride < range.end)
                        packs[k][u] = load_pack<bytes>(source + i + size_t(u) * stride);
                if constexpr (adds) {
                    if (!streams.scales(first + k)) continue;
                    WEFT_UNROLL
                    for (int u = 0; u < F::unroll; ++u) packs[k][u] = scaled<type, adds, bytes>(reducer, packs[k][u]);
                }
            }
            WEFT_UNROLL
            for (int k = 0; k < F::batch; ++k) {
                if (first + k >= streams.source_count) continue;
                WEFT_UNROLL
                for (int u = 0; u < F::unroll; ++u) WEFT_UNROLL
                for (int w = 0; w < words; ++w) {
                    const WidenedWord<type> wide = reducer.contribution(widen<type>(word_of<type>(packs[k][u], w)));
                    value[u][w] = first + k == 0 ? wide : reducer.combine(value[u][w], wide);
                }
            }
        };
        if constexpr (Streams_::few_sources) {
            static_assert(F::batch == Streams_::most_sources);
            add_batch(0);
        } else {
            WEFT_NO_UNROLL
            for (int first = 0; first < streams.source_count; first += F::batch) add_batch(first);
        }
        WEFT_UNROLL
        for (int u = 0; u < F::unroll; ++u) {
            if (i + size_t(u) * stride >= range.end) continue;
            Pack<bytes> pack;
            WEFT_UNROLL
            for (int w = 0; w < words; ++w)
                put_word<type>(pack, w, round<type>(streams.finish ? reducer.finish(value[u][w]) : value[u][w]));
            streams.each_target([&](std::byte* target) { store_pack(target + i + size_t(u) * stride, pack); });
        }
    }
}

// One element at any address.
template <weftDataType_t type>
WEFT_DEVICE WordOf<type> load_element(const std::byte* address) {
    WordOf<type> word = 0;
    __builtin_memcpy(&word, address, sizeof(ElementOf<type>));
    return word;
}
// The elements from begin to end, except those within `range`.
template <weftDataType_t type, bool adds, class Streams_>
WEFT_DEVICE void reduce_elements(const Team& team, const Reducer<type, adds>& reducer, const Streams_& streams,
                                 size_t begin, PackRange range, size_t end) {
    constexpr size_t size = sizeof(ElementOf<type>);
    const size_t skipped = range.end - range.begin;
    WEFT_NO_UNROLL
    for (size_t at = begin + size_t(team.thread) * size; at < end - skipped; at += size_t(team.threads) * size) {
        const size_t i = at < range.begin ? at : at + skipped;
        WidenedWord<type> value = {};
        streams.each_source([&](int number, const std::byte* source) {
            WidenedWord<type> wide = reducer.contribution(widen<type>(load_element<type>(source + i)));
            if constexpr (adds) {
                if (streams.scales(number)) wide = reducer.scale(wide);
            }
            value = number == 0 ? wide : reducer.combine(value, wide);
        });
        const WordOf<type> word = round<type>(streams.finish ? reducer.finish(value) : value);
        streams.each_target([&](std::byte* target) { __builtin_memcpy(target + i, &word, size); });
    }
}

// The bounds of the whole packs of `bytes` between begin and end.
template <int bytes>
WEFT_DEVICE PackRange packs_within(const std::byte* base, size_t begin, size_t end) {
    const size_t head = (bytes - misalignment(base + begin, bytes)) & (bytes - 1);
    if (head >= end - begin) return {end, end};
    return {begin + head, begin + head + (end - begin - head) / bytes * bytes};
}

// Bytes begin to end (whole elements) of all streams.
template <weftDataType_t type, bool adds, class Streams_>
WEFT_DEVICE void reduce_range(const Team& team, const Reducer<type, adds>& reducer, const Streams_& streams,
                              size_t begin, size_t end) {
    if (begin >= end) return;
    constexpr int element = int(sizeof(ElementOf<type>)), small = element < 4 ? 4 : element;
    const uint32_t differences = streams.differences();
    PackRange packs = {end, end};
    if (misalignment(streams.sources[0] + begin, element) == 0) {
        if ((differences & 15) == 0) {
            packs = packs_within<16>(streams.sources[0], begin, end);
            reduce_packs<type, adds, 16>(team, reducer, streams, packs);
        } else if ((differences & (small - 1)) == 0) {
            packs = packs_within<small>(streams.sources[0], begin, end);
            reduce_packs<type, adds, small>(team, reducer, streams, packs);
        }
    }
    reduce_elements(team, reducer, streams, begin, packs, end);
}

// Copies bits without regard to the type.
WEFT_DEVICE_COLD void copy_range(Team team, std::byte* target, const std::byte* source, size_t bytes) {
    const uint32_t differences = uint32_t(reinterpret_cast<uintptr_t>(target) ^ reinterpret_cast<uintptr_t>(source));
    if (bytes == 0 || target == source) return;
    PackRange packs = {bytes, bytes};
    if ((differences & 15) == 0) {
        packs = packs_within<16>(source, 0, bytes);
        const size_t stride = size_t(team.threads) * 16;
        size_t i = packs.begin + size_t(team.thread) * 16;
        for (; i + 3 * stride < packs.end; i += 4 * stride) {
            Pack<16> value[4];
            WEFT_UNROLL
            for (int u = 0; u < 4; ++u) value[u] = load_pack<16>(source + i + size_t(u) * stride);
            WEFT_UNROLL
            for (int u = 0; u < 4; ++u) store_pack(target + i + size_t(u) * stride, value[u]);
        }
        for (; i < packs.end; i += stride) store_pack(target + i, load_pack<16>(source + i));
    } else if ((differences & 3) == 0) {
        packs = packs_within<4>(source, 0, bytes);
        for (size_t i = packs.begin + size_t(team.thread) * 4; i < packs.end; i += size_t(team.threads) * 4)
            store_pack(target + i, load_pack<4>(source + i));
    }
    for (size_t i = size_t(team.thread); i < packs.begin; i += size_t(team.threads)) target[i] = source[i];
    for (size_t i = packs.end + size_t(team.thread); i < bytes; i += size_t(team.threads)) target[i] = source[i];
}

// Multiplies each element by this rank's scalar, for up to three targets, of which one may be the source. Rarely used, so
// it works by single elements.
template <weftDataType_t type, bool adds>
WEFT_DEVICE_COLD void scale_range(Team team, Reducer<type, adds> reducer, const std::byte* source, size_t bytes,
                                  std::byte* target0, std::byte* target1 = nullptr, std::byte* target2 = nullptr) {
    constexpr size_t size = sizeof(ElementOf<type>);
    WEFT_NO_UNROLL
    for (size_t i = size_t(team.thread) * size; i < bytes; i += size_t(team.threads) * size) {
        const WordOf<type> word = round<type>(reducer.scale(widen<type>(load_element<type>(source + i))));
        if (target0) __builtin_memcpy(target0 + i, &word, size);
        if (target1) __builtin_memcpy(target1 + i, &word, size);
        if (target2) __builtin_memcpy(target2 + i, &word, size);
    }
}
// This rank's contribution, scaled if the operation requires it.
template <weftDataType_t type, bool adds>
WEFT_DEVICE void copy_input(const Team& team, const Reducer<type, adds>& reducer, std::byte* target,
                            const std::byte* source, size_t bytes) {
    if (reducer.scaled())
        scale_range<type, adds>(team, reducer, source, bytes, target);
    else
        copy_range(team, target, source, bytes);
}

}  // namespace weft::internal::cuda
