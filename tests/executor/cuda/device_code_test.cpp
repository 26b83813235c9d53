// device_code_test.cpp: the device code in the library's bytes, and the names by which it is asked for.
#include "src/gpu/kernels/device_code.hpp"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "src/gpu/kernels/host_kernels.hpp"
#include "tests/catch.hpp"

namespace weft::internal::cuda {

TEST_CASE("each family of kernels is a fatbin in the library", "[cuda]") {
    if (std::string(device_code_targets()).empty()) {
        CHECK(device_code().empty());
        CHECK(optimizer_code() == nullptr);
        CHECK(hook_code() == nullptr);
        WARN("built without device code");
        return;
    }
    std::vector<DeviceCode> all(device_code().begin(), device_code().end());
    all.push_back(*optimizer_code());
    all.push_back(*hook_code());
    std::set<const std::byte*> begins;
    for (const DeviceCode& code : all) {
        INFO(code.name);
        uint32_t magic = 0;
        REQUIRE(code.fatbin.size() > 4'000);
        memcpy(&magic, code.fatbin.data(), sizeof magic);
        CHECK(magic == 0xba55ed50);
        CHECK(reinterpret_cast<uintptr_t>(code.fatbin.data()) % 64 == 0);
        // The header says how many bytes follow it.
        uint64_t bytes = 0;
        memcpy(&bytes, code.fatbin.data() + 8, sizeof bytes);
        CHECK(bytes + 16 <= code.fatbin.size());
        begins.insert(code.fatbin.data());
    }
    CHECK(begins.size() == all.size());
}

TEST_CASE("each body has an entry point of its own for each type, for sums and for the rest", "[cuda]") {
    CHECK(std::string(entry_point(Body::steps, weftBfloat16, true)) == "weft_steps_bfloat16_sum");
    std::set<std::string> names;
    std::set<HostKernel> kernels;
    for (int body = 0; body < body_count; ++body)
        for (int type = 0; type < weftNumTypes; ++type)
            for (const bool sums : {false, true}) {
                const char* name = entry_point(Body(body), weftDataType_t(type), sums);
                if (!has_entry_point(Body(body), weftDataType_t(type), sums)) {
                    CHECK(find_host_kernel(name) == nullptr);
                    continue;
                }
                names.insert(name);
                REQUIRE(find_host_kernel(name) != nullptr);
                kernels.insert(find_host_kernel(name));
            }
    // Unsigned integers have none. local_reduce: sums alone. multicast: sums of all types but one, whose place words have,
    // and others of six types.
    constexpr int types = weftNumTypes - 3;
    CHECK(names.size() == size_t((body_count - 2) * types * 2 + types + types + 6));
    CHECK(kernels.size() == names.size());
    CHECK(find_host_kernel("weft_steps_bfloat16") == nullptr);
}

}  // namespace weft::internal::cuda
