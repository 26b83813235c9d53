// machine.hpp: the machine that a test of device memory runs on: simulated by the fake driver (fake_machine.cpp), or
// real. Tests that are linked with a real driver use the latter (real_machine.cpp) and leave out cases with the tag
// [fake].
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
