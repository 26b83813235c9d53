// table.hpp: calls of every kind as a table with columns: ranks, type, reduction, count, root, buffer placement. Every
// two values of two columns meet in some call; the full product would be too large. Results are held against the
// interpreter, on data that is exact in any order. Half of the averages of floats use the largest and subnormal
// numbers, and are held against a bound.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tests/device/calls.hpp"

namespace weft::internal::test {

// An index for each column.
using Line = std::vector<int>;

// Lines of indices below `sizes` in which every two values of two columns meet.
std::vector<Line> all_pairs_of(const std::vector<int>& sizes, std::mt19937& random);

// A column of reductions: those of types.h, premul, and a user's that sums, which on device memory is the usual one.
inline constexpr int sum_by_function = premul + 1, reductions_drawn = premul + 2;
// Of the reductions that serve the type the one of that number, or another one; a sum's result is exact in any order.
int reduction_of(int number, weftDataType_t type);

// The table of a collective, for communicators of so many ranks.
struct Table {
    static constexpr size_t counts[] = {0, 1, 13, 700, 9'000};  // of the whole
    enum class Placement { apart, in_place, in_place_on_some, beside_lines };
    enum Column { ranks, type, op, count, root, placement };

    Collective collective;
    std::vector<int> rank_counts;

    std::vector<int> sizes() const;
    Call call(const Line& line, std::mt19937& random) const;
};

// Makes the call on every rank, and says what is wrong with what this process's ranks have then, or nothing. Throws where
// it is refused.
std::string fault_of(const Ranks& ranks, const Call& call, DeviceBuffer::Kind kind);

// The calls of tables.
class Checks {
  public:
    explicit Checks(std::mt19937& random) : random_(random) {}

    // Those for so many ranks. False: this memory is not served by what the communicator admits.
    template <class AnyTable>
    bool check(const Ranks& ranks, const AnyTable& table, DeviceBuffer::Kind kind) {
        for (const Line& line : lines_of(table.sizes())) {
            if (table.rank_counts[size_t(line[AnyTable::ranks])] != ranks.of) continue;
            if (small() && random_() % (sanitized ? 6 : 3) != 0) continue;
            const auto call = table.call(line, random_);
            INFO(call.text());
            try {
                if (const std::string fault = fault_of(ranks, call, kind); !fault.empty()) FAIL_CHECK(fault);
            } catch (const std::exception& refused) {
                if (DeviceBuffer::on_host(kind) || !contains(refused.what(), "[gpu.not-served]")) throw;
                return false;
            }
            ++calls_;
        }
        return true;
    }
    int calls() const { return calls_; }

  private:
    // One table for all algorithms of a collective, alike in all processes.
    const std::vector<Line>& lines_of(const std::vector<int>& sizes) {
        auto& known = lines_[sizes];
        std::mt19937 alike(seed());
        if (known.empty()) known = all_pairs_of(sizes, alike);
        return known;
    }
    std::mt19937& random_;
    std::map<std::vector<int>, std::vector<Line>> lines_;
    int calls_ = 0;
};

}  // namespace weft::internal::test
