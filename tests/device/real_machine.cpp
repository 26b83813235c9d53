// real_machine.cpp: the machine of a real driver, without the fake driver's controls (tests/fake_cuda/control.hpp).
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "tests/device/machine.hpp"
#include "tests/device/program.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

bool real_driver() { return true; }
std::vector<std::string> environment_of(const std::string&) { return {}; }
std::string device_worker() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "real_device_worker";
}
int devices_of(int wanted) { return std::min(wanted, devices()); }

}  // namespace weft::internal::test

namespace weft::internal::fake {

static std::logic_error untold(const std::string& what) {
    return std::logic_error(what + " is the fake driver's to tell: the test should have the tag [fake]");
}

void add_setting(const std::string& statements) {
    if (statements.rfind("queue ", 0) != 0) throw untold(statements);  // a real one is as long as it is
}
std::string leaks() { return {}; }
int calls(const std::string& function) { throw untold("calls of " + function); }
int calls() { throw untold("calls"); }
int running_blocks(int) {
    usleep(300'000);  // what was launched before runs by then
    return 1;
}
void* make_context(int) { throw untold("a context"); }
void destroy_context(void*) {}
int streams_destroyed_early() { throw untold("streams"); }
int uses_of_destroyed_streams() { return 0; }
int last_blocks() { throw untold("blocks"); }
int last_priority() { throw untold("a priority"); }

}  // namespace weft::internal::fake
