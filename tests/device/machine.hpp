// machine.hpp: the machine of a test of device memory: one that the fake driver simulates (fake_machine.cpp), or the
// real one (real_machine.cpp). The real one is used if the tests are linked with a real driver's library; it runs all
// tests except those tagged [fake].
#pragma once
#include <string>
#include <vector>

namespace weft::internal::test {

bool real_driver();
// The environment of a process on such a machine (tests/fake_cuda/control.hpp).
std::vector<std::string> environment_of(const std::string& machine);
std::string device_worker();  // worker.cpp as a program
// Of so many devices those that there are: ranks share them.
int devices_of(int wanted);

}  // namespace weft::internal::test
