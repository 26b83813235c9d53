// gpu_present.cpp: whether there is a GPU that Weft can use: status 0, or 77, which Meson takes for skipped, and the
// reason.
#include "src/drivers/cuda/device.hpp"
#include "src/gpu/kernels/device_code.hpp"

int main() {
    std::string why;
    if (weft::internal::cuda::device_code().empty()) {
        why = "Weft was built without device code";
    } else if (auto driver = weft::internal::cuda::Driver::get(); !driver) {
        why = driver.status().sentence();
    } else if (auto devices = weft::internal::cuda::device_count(**driver); !devices) {
        why = devices.status().sentence();
    } else if (*devices == 0) {
        why = "there is no GPU";
    }
    if (why.empty()) return 0;
    fmt::print("skipped: {}\n", why);
    return 77;
}
