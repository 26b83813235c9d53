// tuning_fuzz.cpp: any bytes as a file of `weft tune` end in an error or in a tuning. A tuning is the same when written
// and read again, and predicts a time for every call.
//
//     build/tests/fuzz/tuning_fuzz -dict=tests/fuzz/tuning.dict corpus tests/fuzz/tunings
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "src/selector/tuning.hpp"
#include "src/selector/tuning_text.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    using namespace weft::internal;
    const auto read = read_tuning({reinterpret_cast<const char*>(data), bytes});
    if (!read) {
        if (read.status().sentence().empty()) std::abort();
        return 0;
    }
    const auto again = read_tuning(tuning_text(*read));
    if (!again || tuning_text(*again) != tuning_text(*read)) std::abort();
    for (const Tuning::Curve& curve : read->curves) {
        for (const size_t size : {size_t(0), size_t(1), size_t(4096), curve.points.back().bytes - 1, SIZE_MAX}) {
            const double us = curve.us_at(size);
            if (!std::isfinite(us) || us <= 0) std::abort();
        }
        if (!read->nearest(curve.collective, curve.algorithm, layout_in_blocks(curve.ranks, curve.hosts))) std::abort();
        const LinkCosts links = read->links_of(curve);
        if (!std::isfinite(links.signal_us) || !(links.net_us_per_byte > 0)) std::abort();
    }
    return 0;
}
