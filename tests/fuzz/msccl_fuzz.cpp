// msccl_fuzz.cpp: any bytes as MSCCL's XML end in valid schedules or in an error with its place.
//     build/tests/fuzz/msccl_fuzz -dict=tests/fuzz/msccl.dict corpus tests/schedules/msccl tests/schedules/msccl/wrong
#include <cstdlib>

#include "src/msccl/msccl.hpp"
#include "src/schedule/validate.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    for (const bool any_order : {false, true}) {
        const auto program = weft::internal::read_msccl({reinterpret_cast<const char*>(data), bytes}, any_order);
        if (!program) {
            if (program.status().sentence().find("line ") != 0) std::abort();
            continue;
        }
        for (const weft::internal::Schedule& schedule : program->schedules)
            if (!weft::internal::validate(schedule)) std::abort();
    }
    return 0;
}
