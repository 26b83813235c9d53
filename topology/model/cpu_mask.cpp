#include "topology/model/cpu_mask.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>

namespace weft::internal::topology {

CpuMask CpuMask::from_list(std::string_view list) {
    CpuMask made;
    const char* place = list.data();
    const char* const end = place + list.size();
    while (place < end) {
        int first = -1;
        const auto one = std::from_chars(place, end, first);
        if (one.ec != std::errc()) return made;
        int last = first;
        place = one.ptr;
        if (place < end && *place == '-') {
            const auto other = std::from_chars(place + 1, end, last);
            if (other.ec != std::errc()) return made;
            place = other.ptr;
        }
        for (int thread = std::max(0, first); thread <= last && thread < threads_most; ++thread) made.add(thread);
        if (place < end && *place != ',') return made;
        ++place;
    }
    return made;
}

CpuMask CpuMask::from_mask(std::string_view mask) {
    CpuMask made;
    for (int first = 0; !mask.empty() && first < threads_most; first += 32) {
        const size_t comma = mask.rfind(',');
        const std::string_view group = comma == mask.npos ? mask : mask.substr(comma + 1);
        uint32_t bits = 0;
        const auto [end, error] = std::from_chars(group.data(), group.data() + group.size(), bits, 16);
        if (error != std::errc() || end != group.data() + group.size()) return {};
        for (int bit = 0; bit < 32; ++bit)
            if (bits >> bit & 1) made.add(first + bit);
        mask = comma == mask.npos ? std::string_view() : mask.substr(0, comma);
    }
    return made;
}

bool CpuMask::is_mask(std::string_view text) {
    for (size_t digits = 0, i = 0; i <= text.size(); ++i) {
        if (i < text.size() && std::isxdigit(uint8_t(text[i]))) {
            if (++digits > 8) return false;
        } else if (digits == 0 || (i < text.size() && text[i] != ',')) {
            return false;
        } else {
            digits = 0;
        }
    }
    return true;
}

CpuMask CpuMask::from_set(const CpuSet& set) {
    CpuMask made;
    made.words_.assign(std::begin(set.words), std::end(set.words));
    made.trim();
    return made;
}

std::string CpuMask::list() const {
    std::string text;
    const int bits = int(words_.size()) * 64;
    for (int thread = 0; thread < bits; ++thread) {
        if (!contains(thread)) continue;
        const int first = thread;
        while (contains(thread + 1)) ++thread;
        text += fmt::format("{}{}", text.empty() ? "" : ",", first);
        if (thread > first) text += fmt::format("-{}", thread);
    }
    return text;
}

std::string CpuMask::mask() const {
    std::string text;
    for (size_t i = words_.size(); i-- > 0;) {
        const auto high = uint32_t(words_[i] >> 32), low = uint32_t(words_[i]);
        if (!text.empty())
            text += fmt::format(",{:08x},{:08x}", high, low);
        else
            text = high != 0 ? fmt::format("{:x},{:08x}", high, low) : fmt::format("{:x}", low);
    }
    return text;
}

void CpuMask::add(int thread) {
    const size_t word = size_t(thread) / 64;
    if (words_.size() <= word) words_.resize(word + 1);
    words_[word] |= uint64_t(1) << (thread % 64);
}

bool CpuMask::contains(int thread) const {
    const size_t word = size_t(thread) / 64;
    return thread >= 0 && word < words_.size() && (words_[word] >> (thread % 64) & 1) != 0;
}

int CpuMask::count() const {
    int bits = 0;
    for (const uint64_t word : words_) bits += std::popcount(word);
    return bits;
}

int CpuMask::first() const {
    for (size_t i = 0; i < words_.size(); ++i)
        if (words_[i] != 0) return int(i) * 64 + std::countr_zero(words_[i]);
    return -1;
}

int CpuMask::last() const {
    return words_.empty() ? -1 : int(words_.size()) * 64 - 1 - std::countl_zero(words_.back());
}

CpuMask CpuMask::operator&(const CpuMask& other) const {
    CpuMask made;
    made.words_.resize(std::min(words_.size(), other.words_.size()));
    for (size_t i = 0; i < made.words_.size(); ++i) made.words_[i] = words_[i] & other.words_[i];
    made.trim();
    return made;
}

CpuMask& CpuMask::operator|=(const CpuMask& other) {
    words_.resize(std::max(words_.size(), other.words_.size()));
    for (size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
}

void CpuMask::trim() {
    while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

}  // namespace weft::internal::topology
