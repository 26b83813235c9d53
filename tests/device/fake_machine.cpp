// fake_machine.cpp: a machine that the fake driver plays.
#include "tests/device/machine.hpp"

namespace weft::internal::test {

bool real_driver() { return false; }

std::vector<std::string> environment_of(const std::string& machine) {
    return {std::string("WEFT_CUDA_LIBRARY=") + FAKE_CUDA_LIBRARY, "FAKE_CUDA=" + machine};
}

std::string device_worker() { return DEVICE_WORKER; }

int devices_of(int wanted) { return wanted; }

}  // namespace weft::internal::test
