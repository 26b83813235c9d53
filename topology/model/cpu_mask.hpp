// cpu_mask.hpp: a set of hardware threads, by the operating system's numbers. Read and written as lists "0-3,8", as in
// Linux and hwloc, and as masks of topology files, "ffff0000,0000ffff". A value.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/cpu.hpp"

namespace weft::internal::topology {

class CpuMask {
  public:
    static constexpr int threads_most = 8'192;  // the limit of Linux

    // Ignores everything that is not a list.
    static CpuMask from_list(std::string_view list);
    // The form of mask(), in groups of at most 32 bits. Empty for other texts.
    static CpuMask from_mask(std::string_view mask);
    static CpuMask from_set(const CpuSet& set);
    std::string list() const;  // "0-3,8"
    std::string mask() const;  // in hexadecimal, 32 bits in a group; empty for the empty set

    void add(int thread);
    bool contains(int thread) const;
    int count() const;
    // Whether from_mask() can read it: groups of at most eight hexadecimal digits.
    static bool is_mask(std::string_view text);
    bool empty() const { return words_.empty(); }
    int first() const;  // -1: none
    int last() const;
    CpuMask operator&(const CpuMask& other) const;
    CpuMask& operator|=(const CpuMask& other);
    bool operator==(const CpuMask&) const = default;
    bool operator<(const CpuMask& other) const { return words_ < other.words_; }

  private:
    void trim();
    std::vector<uint64_t> words_;  // the last is not zero
};

}  // namespace weft::internal::topology
