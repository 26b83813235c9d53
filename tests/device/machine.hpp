// machine.hpp: the machine that a test of device memory runs on: one that the fake driver plays (fake_machine.cpp), or what
// there is, where tests are linked with a real driver's library (real_machine.cpp): all but those tagged [fake].
#pragma once
#include <string>
#include <vector>

namespace weft::internal::test {

bool real_driver();
// What a process finds in its environment that has such a machine (tests/fake_cuda/control.hpp).
std::vector<std::string> environment_of(const std::string& machine);
std::string device_worker();  // worker.cpp as a program
// Of so many devices those that there are: ranks share them.
int devices_of(int wanted);

}  // namespace weft::internal::test
