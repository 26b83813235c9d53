#include "memory.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace perf {
namespace {

// The memory of Weft itself for a rank and its process is below this. A control group's limit counts it, too.
constexpr double own_bytes = 4 << 20;

}  // namespace

std::string groups_text(const std::vector<weft::internal::MemoryHeadroom>& rooms) {
    std::string text = " ";
    for (const weft::internal::MemoryHeadroom& room : rooms)
        if (const std::string one = fmt::format("{:x} ", room.group); text.size() + one.size() < Rank::text_bytes)
            text += one;
    return text;
}

std::string memory_lack(const std::vector<weft::internal::MemoryHeadroom>& rooms, size_t bytes, Rank& rank,
                        const std::vector<std::string>& hosts) {
    return memory_lack(rooms, bytes, rank.index(), hosts, rank.gather(groups_text(rooms)));
}

std::string memory_lack(const std::vector<weft::internal::MemoryHeadroom>& rooms, size_t bytes, int index,
                        const std::vector<std::string>& hosts, const std::vector<std::string>& groups) {
    for (const weft::internal::MemoryHeadroom& room : rooms) {
        const std::string word = fmt::format(" {:x} ", room.group);
        int sharing = 0;
        for (size_t other = 0; other < hosts.size(); ++other)
            sharing += hosts[other] == hosts[size_t(index)] && groups[other].find(word) != std::string::npos;
        const double needed = (double(bytes) + own_bytes) * std::max(sharing, 1);
        if (needed <= double(room.bytes)) continue;
        return fmt::format(
            "the buffers of all ranks on {} ({}) need {:.0f} MiB, {:.0f} MiB are available{}: lower -e or --sizes",
            hosts[size_t(index)], std::max(sharing, 1), needed / 0x1p20, double(room.bytes) / 0x1p20,
            room.group == 0 ? "" : " under the memory limit of the container (control group)");
    }
    return "";
}

}  // namespace perf
