#include "src/checker/verdict.hpp"

#include "src/schedule/text.hpp"

namespace weft::internal {

std::string Verdict::step_name(int rank, int block, int step) const {
    if (set_.options().step_name) return set_.options().step_name(rank, block, step);
    return fmt::format("rank {}, block {}, step {}", rank, block, step);
}

std::string Verdict::place(const StepContext& here) const {
    return fmt::format("operation {}, {} ({})", here.number, step_name(here.rank, here.block, here.step),
                       text_of(*here.it, here.iteration));
}

std::string Verdict::place(const ChunkAccess& access) const {
    const int rank = access.thread / set_.blocks(), block = access.thread % set_.blocks();
    if (access.step < 0) return fmt::format("the user of rank {}", rank);
    const Instruction& it = set_.operations()[size_t(access.operation)]
                                .schedules[size_t(rank)]
                                .blocks[size_t(block)]
                                .instructions[size_t(access.step)];
    return fmt::format("{} ({})", step_name(rank, block, access.step), text_of(it));
}

bool Verdict::object_to_race(const StepContext& here, const char* what, const ChunkAccess& earlier, const char* did,
                             Buffer buffer, int rank) {
    const std::string user = earlier.step < 0 ? " (the call may not have begun there)" : "";
    return object(error::schedule_race, here, "it {} chunk {} of the {} of rank {}, {} by {}, in no order{}", what,
                  here.chunk, name_of(buffer), rank, did, place(earlier), user);
}

}  // namespace weft::internal
