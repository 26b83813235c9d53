#include "tests/reference/exact.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/base/datatype.hpp"
#include "tests/reference/plain.hpp"

namespace weft::internal::reference {

namespace {

template <class T>
T element_of(const void* bytes, size_t i) {
    T element;
    memcpy(&element, static_cast<const std::byte*>(bytes) + i * sizeof element, sizeof element);
    return element;
}

// Bits of the significand, the hidden one included, and the smallest positive number.
template <weftDataType_t type>
constexpr int significand_bits() {
    if constexpr (type == weftBfloat16)
        return 8;
    else if constexpr (type == weftFloat16)
        return 11;
    else if constexpr (type == weftFloat8e4m3)
        return 4;
    else if constexpr (type == weftFloat8e5m2)
        return 3;
    else
        return std::numeric_limits<typename Plain<type>::Element>::digits;
}
template <weftDataType_t type>
long double smallest() {
    if constexpr (type == weftFloat64)
        return std::numeric_limits<double>::denorm_min();
    else if constexpr (type == weftFloat32)
        return std::numeric_limits<float>::denorm_min();
    else
        return Plain<type>::wide(1);
}
template <weftDataType_t type>
constexpr bool is_integer = std::is_integral_v<typename Plain<type>::Wide>;

// Integers wrap: the ring of integers modulo 2^n does not care about order.
template <weftDataType_t type>
bool integer_right(const Question& question, size_t i, const void* got) {
    using T = typename Plain<type>::Element;
    const auto input = [&](size_t rank) {
        const T value = element_of<T>((*question.inputs)[rank].data(), i);
        return question.scalars ? T(uint64_t(value) * uint64_t(element_of<T>((*question.scalars)[rank].data(), 0)))
                                : value;
    };
    const size_t ranks = question.inputs->size();
    uint64_t sum = 0, product = 1, all = ~uint64_t(0), any = 0, odd = 0;
    T least = input(0), most = input(0);
    for (size_t rank = 0; rank < ranks; ++rank) {
        const T value = input(rank);
        sum += uint64_t(value);
        product *= uint64_t(value);
        all &= uint64_t(value);
        any |= uint64_t(value);
        odd ^= uint64_t(value);
        least = std::min(least, value);
        most = std::max(most, value);
    }
    const T total = T(sum);
    T expected = total;
    switch (question.op) {
        case weftProd: expected = T(product); break;
        case weftMin: expected = least; break;
        case weftMax: expected = most; break;
        case weftBand: expected = T(all); break;
        case weftBor: expected = T(any); break;
        case weftBxor: expected = T(odd); break;
        case weftAvg:
            if constexpr (std::is_signed_v<T>)
                expected = T(int64_t(total) / int64_t(ranks));
            else
                expected = T(uint64_t(total) / ranks);
            break;
        default: break;
    }
    return element_of<T>(got, i) == expected;
}

template <weftDataType_t type>
bool float_right(const Question& question, size_t i, const void* got, bool exact) {
    using T = typename Plain<type>::Element;
    const size_t ranks = question.inputs->size();
    const auto input = [&](size_t rank) {
        const long double value = Plain<type>::wide(element_of<T>((*question.inputs)[rank].data(), i));
        return question.scalars ? value * Plain<type>::wide(element_of<T>((*question.scalars)[rank].data(), 0)) : value;
    };
    long double sum = 0, magnitude = 0, product = 1, least = input(0), most = input(0);
    for (size_t rank = 0; rank < ranks; ++rank) {
        const long double value = input(rank);
        sum += value;
        magnitude += std::fabs(value);
        product *= value;
        least = std::min(least, value);
        most = std::max(most, value);
    }
    const long double unit = std::ldexp(1.0L, -significand_bits<type>());  // one rounding, relative
    const long double steps = (long double)(ranks) + 2;          // roundings that a result has been through, at most
    const long double vanished = steps * 16 * smallest<type>();  // rounding near zero, grown by later factors
    long double expected = sum, bound = steps * unit * magnitude * 1.1L + vanished;
    switch (question.op) {
        case weftProd:
            expected = product;
            bound = steps * unit * std::fabs(product) * 1.1L + vanished;
            break;
        case weftMin: expected = least, bound = 0; break;
        case weftMax: expected = most, bound = 0; break;
        case weftAvg:
            expected = sum / (long double)(ranks);
            bound = bound / (long double)(ranks) + unit * std::fabs(expected) * 1.1L + vanished;
            break;
        default: break;
    }
    const long double value = Plain<type>::wide(element_of<T>(got, i));
    const bool sharp = exact && question.op == weftSum;
    return std::fabs(value - expected) <= (sharp ? 0 : bound);
}

}  // namespace

size_t first_wrong(const Question& question, const void* got, bool exact) {
    return with_type(question.type, [&](auto t) {
        constexpr weftDataType_t type = decltype(t)::value;
        const size_t count = (*question.inputs)[0].size() / sizeof(typename Plain<type>::Element);
        for (size_t i = 0; i < count; ++i) {
            if constexpr (is_integer<type>) {
                if (!integer_right<type>(question, i, got)) return i;
            } else {
                if (!float_right<type>(question, i, got, exact)) return i;
            }
        }
        return count;
    });
}

size_t first_beyond_roundings(weftDataType_t type, const std::vector<Bytes>& inputs, double divisor, bool wide,
                              const void* got) {
    return with_type(type, [&](auto t) {
        constexpr weftDataType_t constant = decltype(t)::value;
        using T = typename Plain<constant>::Element;
        const size_t count = inputs[0].size() / sizeof(T), ranks = inputs.size();
        if constexpr (is_integer<constant>) {
            return first_wrong({type, weftAvg, &inputs, nullptr}, got, true);
        } else {
            size_t power = 1;
            while (power < ranks) power *= 2;
            for (size_t i = 0; i < count; ++i) {
                long double sum = 0, most = 0;
                bool equal = true;
                const long double first = Plain<constant>::wide(element_of<T>(inputs[0].data(), i));
                for (const Bytes& input : inputs) {
                    const long double value = Plain<constant>::wide(element_of<T>(input.data(), i));
                    sum += value;
                    most = std::max(most, std::fabs(value));
                    equal &= value == first;
                }
                const long double unit = std::ldexp(1.0L, -significand_bits<constant>()), steps = (long double)(ranks);
                // A share that is subnormal loses half of the smallest number, which the last division makes more of.
                const long double lost = ((long double)(power) + 1) * smallest<constant>() / 2;
                const long double normal = std::ldexp(smallest<constant>(), significand_bits<constant>() - 1);
                // Up to three equal numbers are added exactly or so that a fourth makes up for it.
                const bool exact =
                    equal && most >= normal * (long double)(power) && (wide || (ranks == power && ranks <= 4));
                const long double bound = exact ? 0 : (steps * unit * most + lost) * 1.000001L;
                const long double value = Plain<constant>::wide(element_of<T>(got, i));
                if (!(std::fabs(value - sum / (long double)(divisor)) <= bound)) return i;
            }
            return count;
        }
    });
}

namespace {

template <class Draw>
Bytes filled(weftDataType_t type, size_t count, Draw&& draw) {
    return with_type(type, [&](auto t) {
        using T = typename Plain<decltype(t)::value>::Element;
        Bytes bytes(count * sizeof(T));
        for (size_t i = 0; i < count; ++i) {
            const T element = draw(t);
            memcpy(bytes.data() + i * sizeof element, &element, sizeof element);
        }
        return bytes;
    });
}

template <class Accumulator>
Accumulator any_integer(std::mt19937& random) {
    return Accumulator(uint64_t(random()) << 32 | random());
}

}  // namespace

Bytes whole(weftDataType_t type, size_t count, int ranks, int rank, std::mt19937& random) {
    size_t i = 0;
    return filled(type, count, [&](auto t) {
        constexpr weftDataType_t constant = decltype(t)::value;
        using Accumulator = typename Plain<constant>::Wide;
        if constexpr (is_integer<constant>) {
            return any_integer<Accumulator>(random);
        } else {
            // |scalar| is at most 2, so sums stay within 2^bits, up to which every integer is a number of the type.
            // With many ranks and few bits only some ranks contribute; which, differs by element.
            constexpr int64_t limit = int64_t(1) << std::min(significand_bits<constant>(), 30);
            const int64_t room = std::max<int64_t>(1, limit / (2 * int64_t(ranks)));
            const auto stride = size_t((2 * int64_t(ranks) * room + limit - 1) / limit);
            const int64_t value = int64_t(random() % uint32_t(2 * room + 1)) - room;
            return Plain<constant>::narrow(Accumulator((i++ + size_t(rank)) % stride == 0 ? value : 0));
        }
    });
}

Bytes whole_scalar(weftDataType_t type, std::mt19937& random) {
    return filled(type, 1, [&](auto t) {
        constexpr weftDataType_t constant = decltype(t)::value;
        using Accumulator = typename Plain<constant>::Wide;
        if constexpr (is_integer<constant>)
            return any_integer<Accumulator>(random);
        else
            return Plain<constant>::narrow(Accumulator(int(random() % 5) - 2));
    });
}

std::vector<Bytes> extremes(weftDataType_t type, size_t count, int ranks, std::mt19937& random) {
    std::vector<Bytes> all(size_t(ranks), Bytes(count * size_of(type)));
    with_type(type, [&](auto t) {
        constexpr weftDataType_t constant = decltype(t)::value;
        using A = Plain<constant>;
        using Element = typename A::Element;
        const auto draw = [&](size_t kind) -> Element {
            if constexpr (is_integer<constant>) {
                return any_integer<Element>(random);
            } else {
                // The bits of positive numbers are in the order of the numbers.
                using Bits = std::conditional_t<sizeof(Element) == 8, uint64_t,
                                                std::conditional_t<sizeof(Element) == 4, uint32_t, Element>>;
                constexpr int fraction = significand_bits<constant>() - 1;
                constexpr Bits sign = Bits(1) << (8 * sizeof(Bits) - 1), normal = Bits(1) << fraction;
                Bits largest = Bits(constant == weftFloat8e4m3 ? 0x7e : Bits(sign - 1) & Bits(~(normal - 1)));
                if (constant != weftFloat8e4m3) --largest;  // of infinity's pattern
                const auto some = Bits(uint64_t(random()) << 32 | random());
                const Bits small = Bits(some % normal), near_one = Bits(largest / 2 + some % (4 * normal));
                const Bits bits = kind == 0 ? Bits(largest - some % 4) : kind == 1 ? small : near_one;
                return __builtin_bit_cast(Element, Bits(bits | (random() % 4 == 0 ? sign : Bits(0))));
            }
        };
        for (size_t i = 0; i < count; ++i) {
            const size_t kind = i % 3;
            const bool equal = i / 3 % 2 == 0;
            Element element = draw(kind);
            for (Bytes& bytes : all) {
                if (!equal) element = draw(kind);
                memcpy(bytes.data() + i * sizeof element, &element, sizeof element);
            }
        }
    });
    return all;
}

Bytes mild(weftDataType_t type, size_t count, std::mt19937& random) {
    return filled(type, count, [&](auto t) {
        constexpr weftDataType_t constant = decltype(t)::value;
        using Accumulator = typename Plain<constant>::Wide;
        if constexpr (is_integer<constant>) {
            return any_integer<Accumulator>(random);
        } else {
            const Accumulator value =
                Accumulator(0.75) + Accumulator(random() % 4096) / Accumulator(8192);  // [0.75, 1.25)
            return Plain<constant>::narrow(random() % 2 ? value : -value);
        }
    });
}

}  // namespace weft::internal::reference
