// cases.hpp: every way in which an algorithm can run, as operations for the checker.
#pragma once
#include <string>
#include <vector>

#include "src/checker/checker.hpp"
#include "src/registry.hpp"
#include "tests/amount.hpp"

namespace weft::internal::test {

enum class Way { plain, mixed, all_readable, direct, pipelined, pipelined_mixed };
enum class InPlaceMode { out, in, mixed };
inline constexpr InPlaceMode in_place_modes[] = {InPlaceMode::out, InPlaceMode::in, InPlaceMode::mixed};

// The ranks' hosts: one; two, in blocks; rank 0 alone and the others together; three, in turn; pairs, the last perhaps
// alone. For larger numbers 32 ranks on each, the most that rails have.
enum class Hosts { one, two, lonely, dealt, pairs, rails };
// For any number of ranks.
inline constexpr Hosts all_hosts[] = {Hosts::one, Hosts::two, Hosts::lonely, Hosts::dealt, Hosts::pairs};
std::vector<int32_t> hosts_of(Hosts hosts, int ranks);

// One form inside a host and one between hosts.
bool made_of_two(const std::string& algorithm);

struct Case {
    std::string algorithm;
    Way way = Way::plain;
    int channels = 1;
    InPlaceMode place = InPlaceMode::out;
    int tiles = 2;
    Hosts hosts = Hosts::one;
    Collective collective = Collective::all_reduce;
    int root = -1;
    std::string text() const;
    Layout layout(int ranks, int rank) const { return {ranks, rank, hosts_of(hosts, ranks)}; }
};

// The cases of an algorithm with so many ranks. Channels matter only to the ring, and ways to share buffers only to the
// two-shot all-reduce. Some algorithms need one host or several. An algorithm that needs neither runs on one host and
// on hosts that reorder the ranks. All roots are tried for small numbers of ranks, some for large ones.
std::vector<Case> cases_of(const Algorithm& algorithm, int channels_most, int ranks);
// Whether the algorithm serves so many ranks on any hosts.
bool anywhere(const Algorithm& algorithm, int ranks);

std::vector<bool> every_second(int ranks);
DirectMode mode_of(Way way, int ranks);
Schedule schedule_of(const Case& one, int ranks, int rank);
CheckedOperation operation_of(const Case& one, int ranks);

// A ring whose blocks divide the work: one receives and sums, one sends, and dependencies join them.
Schedule two_block_ring(int ranks, int rank);

}  // namespace weft::internal::test
