// mutation.hpp: schedules with one fault each, to test that the checker finds it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/checker/checker.hpp"

namespace weft::internal::test {

enum class Fault {
    dropped_dependency,
    shifted_chunk,  // an instruction works on the chunk beside its own
    shifted_peer,   // a block's connection, or the slot read, is the next rank's
    missing_wait,
    missing_post,
    dropped_instruction,
    shortened_loop,      // one iteration less
    shortened_span,      // one chunk less
    exchanged_operands,  // of a sum
    lagging_dependency,  // on one run earlier
    flipped_finish,
    exchanged_neighbours,  // two instructions of a block in the other order
    depth_one_less,
    slot_reused_early,  // one slot less than the flag block needs
};
inline constexpr int fault_kinds = int(Fault::slot_reused_early) + 1;
const char* name_of(Fault fault);

struct Mutant {
    Fault fault;
    std::vector<Schedule> schedules;  // by rank
    CheckOptions options;
    int rank = -1;  // the only one with the fault; -1: all have it
    int block = -1;
    int step = -1;  // where the fault is, in the original
    std::string text;
};

// Calls visit for every mutant of every kind: the fault on each rank alone, and on all ranks. `slots_needed`: of the
// flag block.
void each_mutant(const std::vector<Schedule>& original, int slots_needed,
                 const std::function<void(const Mutant&)>& visit);

}  // namespace weft::internal::test
