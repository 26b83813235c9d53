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
    static constexpr bool few_sources = most_sources == 2, few_targets = most_targets <= 3;
    const std::byte* const* sources;
    int source_count;           // few: 2
    std::byte* const* targets;  // few: most_targets, of which some may be null
    int target_count;           // others only
    int first_target;           // the others follow cyclically
    bool finish;                // averages divide at the end
    int own = -1;               // the source that is this rank's unscaled input; only with two sources

    WEFT_DEVICE bool scales(int source) const { return few_sources && source == own; }
    // use(number, address)
    template <class Use>
    WEFT_DEVICE void each_source(Use&& use) const {
        if constexpr (few_sources) {
            WEFT_UNROLL
            for (int i = 0; i < most_sources; ++i) use(i, sources[i]);
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

// The same for a fixed number of ranks, all of which are sources. So no load depends on a branch.
template <int ranks, int most_targets_>
struct FixedStreams {
    static constexpr int most_sources = ranks, most_targets = most_targets_;
    static constexpr bool few_sources = false, few_targets = false;
    const std::byte* const* sources;
    std::byte* const* targets;
    int first_target;
    bool finish;

    template <class Streams_>
    WEFT_DEVICE explicit FixedStreams(const Streams_& streams)
        : sources(streams.sources),
          targets(streams.targets),
          first_target(streams.first_target),
          finish(streams.finish) {}
    template <class Use>
    WEFT_DEVICE void each_target(Use&& use) const {
        WEFT_UNROLL
        for (int i = 0; i < most_targets; ++i) use(targets[(first_target + i) % most_targets]);
    }
};
template <class>
inline constexpr bool is_fixed = false;
template <int ranks, int targets>
inline constexpr bool is_fixed<FixedStreams<ranks, targets>> = true;

template <weftDataType_t type>
inline constexpr bool is_fp8 = sizeof(ElementOf<type>) == 1 && std::is_floating_point_v<AccumulatorOf<type>>;

// How many packs a thread loads before it uses the first. Rarely used reductions take less code.
template <weftDataType_t type, bool adds, class Streams_, int bytes>
struct LoadBatch {
    static constexpr int sources = is_fixed<Streams_>                             ? Streams_::most_sources
                                   : !adds || bytes < 16 || Streams_::few_sources ? 2
                                                                                  : 4;
    static constexpr int packs =  // of each
        !adds || bytes < 16                           ? 1
        : is_fixed<Streams_>                          ? (sizeof(ElementOf<type>) > 4 && sources == 2 ? 2 : 8 / sources)
        : sources == 2 && sizeof(ElementOf<type>) > 1 ? 3
        : is_fp8<type> && !Streams_::few_targets      ? 1  // a pack is 16 accumulators
                                                      : 2;
};

// Reduces `packs` packs at the offsets at, at + stride, ...
template <weftDataType_t type, bool adds, int bytes, int packs, class Streams_>
class PackReduction {
  public:
    WEFT_DEVICE PackReduction(const Reducer<type, adds>& reducer, const Streams_& streams, size_t at, size_t stride)
        : reducer_(reducer), streams_(streams), at_(at), stride_(stride) {}

    // The contributions of sources first to first + count - 1. Their number is a constant and no load depends on a
    // branch, so all loads are issued before the first is used. source(k): the address of source first + k.
    template <int count, class Source>
    WEFT_DEVICE void add(int first, Source&& source) {
        Pack<bytes> loaded[count][packs];
        WEFT_UNROLL
        for (int k = 0; k < count; ++k) {
            const std::byte* const from = source(k) + at_;
            WEFT_UNROLL
            for (int u = 0; u < packs; ++u) loaded[k][u] = load_pack<bytes>(from + size_t(u) * stride_);
        }
        WEFT_UNROLL
        for (int k = 0; k < count; ++k) {
            WEFT_UNROLL
            for (int u = 0; u < packs; ++u) WEFT_UNROLL
            for (int w = 0; w < words; ++w) {
                WidenedWord<type> wide = widen<type>(word_of<type>(loaded[k][u], w));
                if constexpr (adds && Streams_::few_sources) {
                    if (streams_.scales(first + k)) wide = reducer_.scale(wide);
                }
                wide = reducer_.contribution(wide);
                value_[u][w] = first + k == 0 ? wide : reducer_.combine(value_[u][w], wide);
            }
        }
    }
    WEFT_DEVICE void store() const {
        WEFT_UNROLL
        for (int u = 0; u < packs; ++u) {
            Pack<bytes> pack;
            WEFT_UNROLL
            for (int w = 0; w < words; ++w)
                put_word<type>(pack, w, round<type>(streams_.finish ? reducer_.finish(value_[u][w]) : value_[u][w]));
            streams_.each_target([&](std::byte* target) { store_pack(target + at_ + size_t(u) * stride_, pack); });
        }
    }

  private:
    static constexpr int words = words_of_pack<type, bytes>;
    const Reducer<type, adds>& reducer_;
    const Streams_& streams_;
    size_t at_, stride_;
    WidenedWord<type> value_[packs][words] = {};
};

template <weftDataType_t type, bool adds, int bytes, int packs, class Streams_>
WEFT_DEVICE void reduce_packs_at(const Reducer<type, adds>& reducer, const Streams_& streams, size_t at,
                                 size_t stride) {
    constexpr int batch = LoadBatch<type, adds, Streams_, bytes>::sources;
    PackReduction<type, adds, bytes, packs, Streams_> reduction(reducer, streams, at, stride);
    [[maybe_unused]] const std::byte* const* const sources = streams.sources;
    if constexpr (Streams_::few_sources) {
        reduction.template add<2>(0, [&](int k) { return sources[k]; });
    } else if constexpr (is_fixed<Streams_>) {
        reduction.template add<batch>(0, [&](int k) { return streams.sources[k]; });
    } else {
        int first = 0;
        const auto source = [&](int k) { return sources[first + k]; };
        WEFT_NO_UNROLL
        for (; first + batch <= streams.source_count; first += batch) reduction.template add<batch>(first, source);
        if constexpr (batch > 2) {
            if (first + 2 <= streams.source_count) {
                reduction.template add<2>(first, source);
                first += 2;
            }
        }
        if (first < streams.source_count) reduction.template add<1>(first, source);
    }
    reduction.store();
}

template <weftDataType_t type, bool adds, int bytes, class Streams_>
WEFT_DEVICE void reduce_packs(const Team& team, const Reducer<type, adds>& reducer, const Streams_& streams,
                              PackRange range) {
    constexpr int packs = LoadBatch<type, adds, Streams_, bytes>::packs;
    const size_t stride = size_t(team.threads) * bytes;
    size_t i = range.begin + size_t(team.thread) * bytes;
    if constexpr (packs > 1) {
        WEFT_NO_UNROLL
        for (; i + size_t(packs - 1) * stride < range.end; i += packs * stride)
            reduce_packs_at<type, adds, bytes, packs>(reducer, streams, i, stride);
    }
    WEFT_NO_UNROLL
    for (; i < range.end; i += stride) reduce_packs_at<type, adds, bytes, 1>(reducer, streams, i, stride);
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

// Sums of all of 2, 4 or 8 ranks have code of their own, unless elements are so small that registers do not suffice.
template <weftDataType_t type, bool adds, class Streams_>
WEFT_DEVICE void reduce_whole_packs(const Team& team, const Reducer<type, adds>& reducer, const Streams_& streams,
                                    PackRange range) {
    constexpr bool of_all = adds && !Streams_::few_sources && sizeof(ElementOf<type>) > 1;
    const auto reduce_of = [&]<int ranks>(std::integral_constant<int, ranks>) {
        constexpr int targets = Streams_::most_targets == 1 ? 1 : ranks;
        if (streams.source_count != ranks || (targets > 1 && streams.target_count != ranks)) return false;
        reduce_packs<type, adds, 16>(team, reducer, FixedStreams<ranks, targets>(streams), range);
        return true;
    };
    if constexpr (of_all) {
        if (reduce_of(std::integral_constant<int, 8>()) || reduce_of(std::integral_constant<int, 4>()) ||
            reduce_of(std::integral_constant<int, 2>()))
            return;
    }
    reduce_packs<type, adds, 16>(team, reducer, streams, range);
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
            reduce_whole_packs<type, adds>(team, reducer, streams, packs);
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

}  // namespace weft::internal::cuda
