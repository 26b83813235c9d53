// kernel_names.cpp KIND: the kernels that are asked for by name, a line each: `shipping`, those in the library; `virtual`,
// those of virtual_ranks.cu; `perf`, those of the benchmarks.
#include <cstring>

#include "perf/pattern_kernels.hpp"
#include "src/gpu/kernels/access_arguments.hpp"
#include "src/gpu/kernels/message_arguments.hpp"
#include "src/gpu/kernels/training/batch_norm_arguments.hpp"
#include "src/gpu/kernels/training/codec_arguments.hpp"
#include "src/gpu/kernels/training/convert_arguments.hpp"
#include "src/gpu/kernels/training/hook_arguments.hpp"
#include "src/gpu/kernels/training/local_arguments.hpp"
#include "src/gpu/kernels/training/optimizer_arguments.hpp"
#include "tests/gpu/device_ranks.hpp"

int main(int count, char** arguments) {
    using namespace weft::internal;
    if (count != 2) return 2;
    if (strcmp(arguments[1], "perf") == 0) {
        fmt::print("{}\n{}\n", perf::fill_entry_point, perf::wrong_entry_point);
        return 0;
    }
    const bool shipping = strcmp(arguments[1], "shipping") == 0;
    if (shipping)
        for (const char* const name :
             {cuda::message_entry_point, cuda::access_entry_point, cuda::optimizer_entry_point,
              cuda::convert_entry_point, cuda::scale_entry_point, cuda::encode_entry_point, cuda::decode_entry_point,
              cuda::hook_entry_point, cuda::local_entry_point, cuda::batch_norm_entry_point})
            fmt::print("{}\n", name);
    for (int body = 0; body < cuda::body_count; ++body) {
        for (int type = 0; shipping && type < weftNumTypes; ++type)
            for (const bool sums : {false, true})
                // Objects have functions on the host for kernels of every target, not for those of one family.
                if (cuda::has_entry_point(cuda::Body(body), weftDataType_t(type), sums) &&
                    (cuda::needs(cuda::Body(body), weftDataType_t(type)) & cuda::switch_fp8) == 0)
                    fmt::print("{}\n", cuda::entry_point(cuda::Body(body), weftDataType_t(type), sums));
        if (!shipping && test::is_virtual(cuda::Body(body)))
            for (const weftDataType_t type : test::virtual_types)
                fmt::print("{}\n", test::virtual_entry_point(cuda::Body(body), type));
    }
}
