// schedule_text_fuzz.cpp: any bytes end in schedules or in an error, and the checker accepts or refuses what was read.
// libFuzzer: meson setup build --native-file tools/native/asan-ubsan.ini -Dfuzz=enabled; then
//
//     build/tests/fuzz/schedule_text_fuzz -dict=tests/fuzz/schedule_text.dict corpus tests/schedules
//     tests/schedules/wrong
#include <cstdlib>

#include "src/checker/checker.hpp"
#include "src/schedule/text.hpp"
#include "src/schedule/validate.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    const auto schedules = weft::internal::read_texts({reinterpret_cast<const char*>(data), bytes});
    if (!schedules) return 0;
    for (const weft::internal::Schedule& schedule : *schedules)
        if (!weft::internal::validate(schedule)) std::abort();
    const auto again = weft::internal::read_texts(weft::internal::write_text(*schedules));
    if (!again || *again != *schedules) std::abort();
    // The checker's bounds are wide; small schedules leave time for many.
    for (const weft::internal::Schedule& schedule : *schedules) {
        if (int64_t(schedule.chunks) * schedule.tiles > 256) return 0;
        for (const weft::internal::Block& block : schedule.blocks)
            for (const weft::internal::Instruction& instruction : block.instructions)
                if (instruction.repeat > 64 || instruction.after.ago > 8) return 0;
    }
    (void)weft::internal::check_set(*schedules).ok();
    return 0;
}
